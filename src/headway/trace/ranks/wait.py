"""Several ranks of one run: the same collective found on each, and when the last rank arrived at it.

A collective is known by (step, members, axis, kind, its place among those of the step). Until its last rank has arrived, the others
wait; after that, data moves. Clocks of ranks are taken as equal: right on one host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.spec.breakdown import Health
from headway.trace.sweep import Ints
from headway.trace.windows import Windows
from headway.trace.work import Work

Key = tuple[int, tuple[int, ...], str, str, int]


@dataclass(frozen=True)
class Seat:
    """One device's place in the run: its rank, its work and its windows."""

    rank: int
    work: Work
    windows: Windows
    host: str = ""


@dataclass(frozen=True)
class Arrivals:
    """For each row of work of one device: when the last rank arrived at its collective and which rank that was; -1 where that is unknown."""

    time: Ints
    rank: Ints


def arrivals(seats: Sequence[Seat]) -> tuple[tuple[Arrivals, ...], tuple[Health, ...]]:
    """When the last rank arrived at each collective of each seat, and what is doubtful about it."""
    found: dict[Key, dict[int, tuple[int, int, int]]] = defaultdict(dict)  # key -> rank -> (seat, collective, start)
    doubled: set[Key] = set()
    keys = [_keys(seat) for seat in seats]
    for s, seat in enumerate(seats):
        rows = np.flatnonzero(seat.work.comm_of >= 0)
        for c, key in enumerate(keys[s]):
            if key is not None:
                if seat.rank in found[key]:
                    doubled.add(key)
                found[key][seat.rank] = (s, int(rows[c]), int(seat.work.start[rows[c]]))
    out = [Arrivals(np.full(len(s.work), -1, np.int64), np.full(len(s.work), -1, np.int64)) for s in seats]
    crossed = 0
    for key, by_rank in found.items():
        if key in doubled or set(by_rank) != set(key[1]):
            continue
        last, rank = max((start, rank) for rank, (_, _, start) in by_rank.items())
        for s, c, _ in by_rank.values():
            out[s].time[c], out[s].rank[c] = last, rank
            crossed += int(seats[s].work.end[c] < last)
    return tuple(out), tuple(_health(seats, crossed, doubled))


def lateness(seats: Sequence[Seat], found: Sequence[Arrivals]) -> dict[int, int]:
    """Nanoseconds that each rank, arriving last, made the others wait inside collectives."""
    out: dict[int, int] = defaultdict(int)
    for seat, arrival in zip(seats, found, strict=True):
        start, end = seat.work.start, seat.work.end
        waited = np.where(arrival.rank >= 0, np.minimum(arrival.time, end) - start, 0)
        for rank in np.unique(arrival.rank[waited > 0]).tolist():
            out[rank] += int(waited[(arrival.rank == rank) & (waited > 0)].sum())
    return dict(out)


def _keys(seat: Seat) -> list[Key | None]:
    """The key of each collective of one device; None if its members are unknown or it pairs ranks one to one."""
    work, first = seat.work, int(seat.windows.edges[0])
    step = seat.windows.of_launch(work, first)[work.comm_of >= 0].tolist()
    count: dict[tuple[int, tuple[int, ...], str, str], int] = defaultdict(int)
    out: list[Key | None] = []
    for k, comm in zip(step, [work.comm[c] for c in work.comm_of[work.comm_of >= 0].tolist()], strict=True):
        if k < 0 or not comm.ranks or not comm.matched or seat.rank not in comm.ranks:
            out.append(None)
            continue
        short = (seat.windows.steps[k], comm.ranks, comm.axis, comm.name)
        out.append((*short, count[short]))
        count[short] += 1
    return out


def _health(seats: Sequence[Seat], crossed: int, doubled: set[Key]) -> list[Health]:
    out = []
    hosts = {seat.host for seat in seats}
    if len({seat.rank for seat in seats}) > 1 and len(hosts) > 1:
        text = f"ranks are on {len(hosts)} hosts; their clocks are taken as equal, so wait and transfer may be off by the difference"
        out.append(Health(what="clocks_of_hosts", count=len(hosts), affects="comm wait and transfer", text=text))
    if crossed:
        text = "collectives that end on a rank before the last rank has begun them: clocks differ, or they are matched wrongly"
        out.append(Health(what="crossed_collectives", count=crossed, affects="comm wait and transfer", text=text))
    if doubled:
        text = "collectives found twice on one rank are left unsplit"
        out.append(Health(what="doubled_collectives", count=len(doubled), affects="comm wait and transfer", text=text))
    return out
