"""Errors that come from outside of the house and that the user can put right: a missing package, no memory, a file that cannot be used.

Rooms say more where they know more; this is for what no room has met. Anything else is a bug of ours.
"""

from __future__ import annotations

from typing import Final

from headway.spec.errors import HeadwayError, RunError
from headway.spec.extras import missing_extra

_NO_MEMORY: Final = ("out of memory", "not enough memory", "can't allocate memory", "Unable to allocate")  # CUDA, CPU, CPU, numpy
_SMALLER: Final = (
    "Take fewer samples at once (--accumulate N, a smaller --global-batch), shard more (--mesh.dp-shard N), keep less for the backward "
    "(--remat.mode full), or make the network smaller."
)


def from_outside(error: Exception) -> HeadwayError | None:
    """The error for the user if `error` is of such a kind, else None."""
    if isinstance(error, ModuleNotFoundError):
        return missing_extra(error)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(sign in str(error) for sign in _NO_MEMORY)):
        said = (str(error).strip() or "it asked for more than there is").splitlines()[0]
        return RunError(f"out of memory: {said}", fix=_SMALLER)
    if isinstance(error, OSError) and error.strerror:
        name = str(error.filename) if error.filename is not None else ""
        shown = name if len(name) <= 200 else f"{name[:100]}...{name[-60:]}"
        return RunError(error.strerror, where=shown, fix="Put it right there, or give another path.")
    return None
