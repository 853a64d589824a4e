"""One process at a time in a run folder: a lock that the system takes back however its holder ends. No torch."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headway.spec.errors import RunError

NAME: Final = ".lock"
_HELD: Final = (errno.EACCES, errno.EAGAIN)  # which of them depends on the system


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Keep the folder `path` for this process while inside; a folder that is not there needs no keeping. Raises RunError if another has it.

    A POSIX record lock: children do not inherit it, it crosses nodes where the file system carries locks, and where it carries none
    (status.json still tells a run that is live) nothing is locked.
    """
    try:
        file = (path / NAME).open("a")
    except FileNotFoundError:
        yield
        return
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD:
                fix = f"Wait for it, stop it with `headway stop {path}`, or give this run another name with --run."
                raise RunError("another process has just started it", where=f"run {path}", fix=fix) from None
        yield
