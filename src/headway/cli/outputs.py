"""Files that a command is asked to write, looked at before it does any work. No torch."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headway.spec.errors import RunError, SpecError

_FLAGS: Final = ("html", "perfetto", "out")  # options that name a file to write


def claim(args: argparse.Namespace, inputs: Sequence[str | None]) -> None:
    """Nothing, if every file to be written can be: it is named, an ordinary or a new file, none of `inputs` nor read of one, and not
    that of another option. Raises SpecError or RunError otherwise."""
    from headway.report.output import target

    given = {f"--{flag}": name for flag in _FLAGS if (name := getattr(args, flag, None)) is not None}
    taken: dict[Path, str] = {}
    for flag, name in given.items():
        if not name.strip():
            raise SpecError("names no file", where=flag, fix="Name the file to write.")
        out = target(name)
        if _is_read(out, [i for i in inputs if i]):
            raise RunError("is read by this command and would be lost", where=f"{flag} {name}", fix="Name a new file.")
        place = Path(os.path.realpath(out))
        if place in taken:
            raise SpecError(f"{taken[place]} and {flag} name the same file", where=name, fix="Name a file for each.")
        taken[place] = flag


def _is_read(out: Path, inputs: Sequence[str]) -> bool:
    """Whether `out` is there and is one of the inputs, or one of the files that a folder among them stands for."""
    from headway.trace.gather import gather
    from headway.trace.read.remote import is_remote, path_of

    if not out.exists():
        return False
    place = Path(os.path.realpath(out))
    local = [p for p in map(path_of, inputs) if not is_remote(p) and p.exists()]
    if any(out.samefile(p) for p in local):
        return True
    folders = [p for p in local if p.is_dir() and Path(os.path.realpath(p)) in place.parents]
    return any(out.samefile(f) for folder in folders for f in gather([folder]).files)
