"""Where an answer may be written: a new file, or over an ordinary one; never over a device, a folder or a run's own records."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from headway.spec.errors import RunError
from headway.spec.event import RECORDS

_EVENTS: Final = re.compile(r"events(\.rank\d+)?\.jsonl")
_KEPT: Final = ("checkpoints", "traces", "control")  # folders of a run


def target(path: str | os.PathLike[str]) -> Path:
    """`path` itself. Raises RunError if nothing should be written there."""
    out = Path(path)
    fix = "Name a new file, or an ordinary one."
    if out.is_dir():
        raise RunError("is a folder", where=str(out), fix=fix)
    if out.exists() and not out.is_file():
        raise RunError("is no ordinary file and would be replaced by one", where=str(out), fix=fix)
    if out.exists() and _is_record(out):
        raise RunError("is a record of a run and would be lost", where=str(out), fix=fix)
    return out


@contextmanager
def replaced(path: str | os.PathLike[str], what: str) -> Iterator[Path]:
    """A file to write, which then takes the place of `path`: all of it or nothing. Raises RunError if `what` cannot be written there."""
    out = target(path)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, out)
    except OSError as error:
        fix = "Name a file in a folder that exists and is writable."
        raise RunError(f"the {what} cannot be written: {error.strerror or error}", where=str(out), fix=fix) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _is_record(out: Path) -> bool:
    """Whether a file is one that a run keeps of itself: by its name, or by the folder of a run that it lies in."""
    if out.name in RECORDS or _EVENTS.fullmatch(out.name):
        return True
    within = out.absolute().parents
    return any(above.name in _KEPT and (above.parent / "run.json").is_file() for above in within)
