"""Where an answer may be written: a new file, or over an ordinary one; never over a device, a folder or a run's own records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headway.spec.errors import RunError
from headway.spec.event import RECORDS


def target(path: str | os.PathLike[str]) -> Path:
    """`path` itself. Raises RunError if nothing should be written there."""
    out = Path(path)
    fix = "Name a new file, or an ordinary one."
    if out.is_dir():
        raise RunError("is a folder", where=str(out), fix=fix)
    if out.exists() and not out.is_file():
        raise RunError("is no ordinary file and would be replaced by one", where=str(out), fix=fix)
    if out.name in RECORDS and out.exists():
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
