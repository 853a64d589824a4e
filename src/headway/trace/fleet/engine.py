"""Where files are reduced: in this process, in a pool of processes of this machine, or on a Ray cluster. The answers are the same.

A worker holds one file at a time, so its memory is that of the largest file. What is left of each comes back through the disk (`spool`),
and the caller maps it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

from headway.spec.errors import TraceError
from headway.trace.fleet.spool import Spooled, load, store
from headway.trace.part import FileParts, of_file

Engine = Literal["local", "ray"]
Outcome = tuple[FileParts, ...] | TraceError
Watch = Callable[[Sequence[Path]], AbstractContextManager[Callable[[Path], None]]]  # all files -> called with each before it is waited for
WORTH_BYTES: Final = 32 << 20  # of all files together: below it a pool costs more than it saves


def unwatched(paths: Sequence[Path]) -> AbstractContextManager[Callable[[Path], None]]:
    """A watch that looks away."""
    return nullcontext(lambda path: None)


def reduced(
    paths: Sequence[Path], *, engine: Engine = "local", workers: int = 1, watch: Watch = unwatched
) -> Iterator[tuple[Path, Outcome]]:
    """Each file with its parts, or with the error that it raises, in the order of `paths`.

    `workers`: processes of this machine; 1 reads here, 0 takes one a core if there is enough to do. Ray decides by itself.
    """
    if engine == "ray":
        from headway.trace.fleet.on_ray import outcomes

        found = outcomes(paths, attempt)
    else:
        workers = min(workers or _wise(paths), len(paths))
        found = map(attempt, paths) if workers <= 1 else _pooled(paths, workers)
    with watch(paths) as begins:
        for path in paths:
            begins(path)
            yield path, next(found)


def attempt(path: Path) -> Outcome:
    """The parts of a file, or its TraceError as a value: one bad file of thousands is told, not raised."""
    try:
        return of_file(path)
    except TraceError as error:
        return error


def _spooled(read: Callable[[Path], Outcome], path: Path, folder: Path) -> Outcome | Spooled:
    """In a worker: the parts of a file on disk, or as they are if the disk refuses."""
    outcome = read(path)
    return outcome if isinstance(outcome, TraceError) else store(outcome, folder) or outcome


def _pooled(paths: Sequence[Path], workers: int) -> Iterator[Outcome]:
    """Fresh processes (forked from one that has nothing but the readers); no more than two files a worker are on their way."""
    from concurrent.futures import ProcessPoolExecutor  # here: most reads need no pool, and it is slow to import
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with TemporaryDirectory(prefix="headway-") as name, ProcessPoolExecutor(workers, mp_context=context) as pool:
        pending = [pool.submit(_spooled, attempt, p, Path(name)) for p in paths[: 2 * workers]]
        for i in range(len(paths)):
            try:
                result = pending[i].result()
            except BrokenProcessPool:
                fix = "If memory ran out, use fewer processes: --workers 1."
                raise TraceError("a process that read traces was killed", where=str(paths[i]), fix=fix) from None
            pending[i] = None  # type: ignore[call-overload]  # what came back is the caller's alone
            if len(pending) < len(paths):
                pending.append(pool.submit(_spooled, attempt, paths[len(pending)], Path(name)))
            yield load(result) if isinstance(result, Spooled) else result


def _wise(paths: Sequence[Path]) -> int:
    """One process a core, if there are several files worth it."""
    size = sum(p.stat().st_size * (8 if p.name.endswith(".gz") else 1) for p in paths if p.is_file())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if len(paths) > 1 and size > WORTH_BYTES else 1
