"""Requests for memory that found no block: the allocator gives cached segments back, for which the device must be done, and asks again.

In a trace: a malloc that fails, one free or more, a malloc; between them nothing else on the thread but looks at the device. Whether memory
was full or only in pieces is told by the profiler's memory events: reserved - allocated was enough for the request, or it was not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from headway.trace.memory.history import Action, History
from headway.trace.sweep import EMPTY, Ints, distinct
from headway.trace.table import Kind, Table

_MALLOC: Final = re.compile(r"^(cuda|hip)(Ext)?Malloc(WithFlags)?$")
FREE: Final = re.compile(r"^(cuda|hip)Free$")  # waits for all of the device
_LOOKS: Final = re.compile(r"^(cuda|hip)(Get|Set|Peek|\w*Synchronize$|EventQuery|StreamQuery|EventDestroy)")
_OTHER, _ASKS, _FREES, _SILENT = range(4)


@dataclass(frozen=True, kw_only=True)
class Retries:
    """Of one process, in order of time; one entry each. Bytes are -1 where no memory was recorded."""

    time: Ints = field(default_factory=lambda: EMPTY)  # nanoseconds, when the request began
    freed: Ints = field(default_factory=lambda: EMPTY)  # segments given back
    asked: Ints = field(default_factory=lambda: EMPTY)  # bytes of the request
    reserved: Ints = field(default_factory=lambda: EMPTY)  # bytes, before it
    allocated: Ints = field(default_factory=lambda: EMPTY)  # bytes of it in use

    def __len__(self) -> int:
        return len(self.time)


def retries(table: Table, histories: Sequence[History], spans: Sequence[tuple[int, int]]) -> Retries:
    """Those that begin within `spans` [begin, end) of time: the steps of a device."""
    calls = table.rows(Kind.RUNTIME)
    code = table.coded(_code)[calls]
    if not (code == _FREES).any():
        return Retries()
    found = [run for track in distinct(table.track[calls[code == _FREES]]).tolist() for run in _of_thread(table, calls, code, track)]
    inside = sorted((time, freed) for time, freed in found if any(a <= time < b for a, b in spans))
    rows = np.array([(time, freed, *_memory(histories, time)) for time, freed in inside], np.int64).reshape(-1, 5)
    time, freed, asked, reserved, allocated = rows.T
    return Retries(time=time, freed=freed, asked=asked, reserved=reserved, allocated=allocated)


def _code(name: str) -> int:
    kinds = ((_MALLOC, _ASKS), (FREE, _FREES), (_LOOKS, _SILENT))
    return next((code for pattern, code in kinds if pattern.match(name)), _OTHER)


def _of_thread(table: Table, calls: Ints, code: Ints, track: int) -> Iterator[tuple[int, int]]:
    """(time, segments given back) of each retry on one thread; a second try of the same request belongs to the first."""
    mine = (table.track[calls] == track) & (code != _SILENT)
    rows, what = calls[mine], code[mine]
    change = np.diff(np.concatenate(([0], (what == _FREES).astype(np.int64), [0])))
    begin, end = np.flatnonzero(change > 0), np.flatnonzero(change < 0)
    held = (begin > 0) & (end < len(what))
    begin, end = begin[held], end[held]
    held = (what[begin - 1] == _ASKS) & (what[end] == _ASKS)
    begin, end = begin[held], end[held]
    first = np.concatenate(([True], begin[1:] - 1 != end[:-1])) if len(begin) else np.zeros(0, bool)
    freed = np.add.reduceat(end - begin, np.flatnonzero(first)) if len(begin) else begin
    yield from zip(table.start[rows[begin[first] - 1]].tolist(), freed.tolist(), strict=True)


def _memory(histories: Sequence[History], time: int) -> tuple[int, int, int]:
    """(bytes asked for, reserved, allocated) at a retry: of the device that gives a block next; -1 where it is not known."""
    best, out = None, (-1, -1, -1)
    for h in histories:
        at = int(np.searchsorted(h.time, time, side="right"))  # the state before is that after event at - 1
        given = np.flatnonzero(h.action[at:] == Action.ALLOC)
        if at and len(given) and len(h.reserved) and (best is None or h.time[at + given[0]] < best):
            best = int(h.time[at + given[0]])
            out = int(h.size[at + given[0]]), int(h.reserved[at - 1]), int(h.allocated[at - 1])
    return out


# ---- said of a run ----


def reason(found: Iterable[Retries]) -> str:
    """Why requests found no block: `fragmentation` (enough was free, in pieces), `full`, `retries` (not known); `allocator` without any."""
    every = [r for r in found if len(r)]
    if not every:
        return "allocator"
    asked, reserved, allocated = (np.concatenate([getattr(r, n) for r in every]) for n in ("asked", "reserved", "allocated"))
    known = asked > 0
    if not known.any():
        return "retries"
    return "fragmentation" if (reserved - allocated >= asked)[known].mean() >= 0.5 else "full"


def lines(found: Sequence[tuple[int, Retries]], num_steps: Mapping[int, int]) -> list[str]:
    """A line for each rank with retries, most first: how often, and what memory was like. `num_steps` of each rank."""
    out = []
    for rank, r in sorted((f for f in found if len(f[1]) and f[0] in num_steps), key=lambda f: -len(f[1])):
        often = (
            f"rank {rank}: {len(r) / num_steps[rank]:.1f} requests a step find no block, {r.freed.mean():.0f} segments given back for each"
        )
        known = r.asked > 0
        if known.any():
            asked, reserved, allocated = (float(np.median(x[known])) / 2**30 for x in (r.asked, r.reserved, r.allocated))
            often += f"; {asked:.2f} GiB asked while {reserved - allocated:.2f} of {reserved:.2f} GiB reserved were free"
        out.append(often)
    return out
