"""Which extra brings which package: the one place that turns a missing package into the command that installs it."""

from __future__ import annotations

from typing import Final

from headway.spec.errors import RunError

EXTRAS: Final = {  # import name -> extra
    "torch": "train",
    "safetensors": "train",
    "PIL": "train",
    "sklearn": "train",
    "jaxtyping": "train",
    "diffusers": "models",
    "transformers": "models",
    "pyarrow": "robot",
    "av": "robot",
    "fsspec": "remote",
    "ray": "ray",
}


def missing_extra(error: ModuleNotFoundError) -> RunError | None:
    """The error for the user if `error` is about a package of an extra; None if it is not (then it is a bug or the user's own)."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return RunError(f"this needs the package {package}, which is not installed", fix=f"Run: pip install 'headway[{EXTRAS[package]}]'")
