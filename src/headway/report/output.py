"""Where an answer may be written: a new file, or over an ordinary one; never over a device, a folder or a run's own records."""

from __future__ import annotations

import os
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
