"""A file of several processes (ranks whose traces were merged) as one table each.

Correlation ids and device numbers count from the beginning in every process, so that they say nothing across processes: host rows are told
apart by their process id, and work of a device goes to the process that launched it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.health import Health
from headway.trace.memory.history import Allocations
from headway.trace.sweep import Ints, distinct
from headway.trace.table import HOST, ON_DEVICE, Kind, Table

_EARLY_NS: Final = 1_000_000  # work may seem to start this long before its launch (clocks)
_FAR: Final = np.iinfo(np.int64).max


def split(table: Table) -> tuple[Table, ...]:
    """One table a process, in order of their ids; `table` itself if it holds one."""
    process = np.array([_number(pid) for pid, _ in table.tracks], np.int64)[table.track]
    own = table.of(Kind.RUNTIME, Kind.OPERATOR)
    ids = distinct(process[own])
    if len(ids) < 2:
        return (table,)
    owner = np.where(table.of(*HOST), process, -1)
    placed = table.rows(*ON_DEVICE)
    owner[placed] = _launchers(table, placed, process, ids)
    text = f"the file holds {len(ids)} processes; links hold within each, and each is taken for a rank in the order of their ids"
    note = Health(what="merged_processes", count=len(ids), affects="ranks", text=text)
    return tuple(_part(table, np.flatnonzero(owner == i), rank, int(i), note) for rank, i in enumerate(ids.tolist()))


def parted(table: Table, owner: Ints, ids: Sequence[int]) -> tuple[Table, ...]:
    """One table for each process in `ids`, in their order; its rows are those that it owns. What no one of them owns is left out."""
    if len(ids) == 1 and (owner == ids[0]).all():
        return (table,)
    note = Health(what="merged_processes", count=len(ids), affects="ranks", text=f"the file holds {len(ids)} processes; each is a rank")
    health = (*table.health, note) if len(ids) > 1 else table.health
    found = [_part(table, np.flatnonzero(owner == i), rank, i & 0xFFFFFF, note) for rank, i in enumerate(ids)]
    return tuple(replace(part, rank=None, health=health if i == 0 else ()) for i, part in enumerate(found))


def _number(pid: str) -> int:
    """A process id as a number; what is none (Spans, Traces) belongs to nobody."""
    return int(pid) if pid.isdecimal() and len(pid) < 19 else -2


def _launchers(table: Table, rows: Ints, process: Ints, ids: Ints) -> Ints:
    """The process that launched each row of a device.

    Where the ids of its launches are in one process only, that one. Else, where each process is one piece of the file, the piece that the
    row is in. Else what its writer kept apart (rows of one process id) has one launcher: the process that knows most of its ids at possible
    times, of equals the one that launched them latest.
    """
    delays = np.stack([_delays(table, rows, np.flatnonzero(table.of(Kind.RUNTIME) & (process == i))) for i in ids.tolist()])
    known = delays < _FAR
    several = known.sum(axis=0) > 1
    best = _by_device(process[rows], delays)
    if several.any():
        best = _by_piece(table, rows, process, ids, best)
        return ids[best]
    return ids[np.where(known.any(axis=0), np.argmax(known, axis=0), best)]


def _by_device(device: Ints, delays: Ints) -> Ints:
    """One launcher for all rows of a process id of devices."""
    out = np.zeros(len(device), np.int64)
    for value in distinct(device).tolist():
        mine = device == value
        known = delays[:, mine] < _FAR
        middle = [np.median(d[k]) if k.any() else np.inf for d, k in zip(delays[:, mine], known, strict=True)]
        out[mine] = min(range(len(delays)), key=lambda i: (-int(known[i].sum()), middle[i]))
    return out


def _by_piece(table: Table, rows: Ints, process: Ints, ids: Ints, otherwise: Ints) -> Ints:
    """The process whose host rows stand around each row in the file, or before it; `otherwise` if the pieces are not apart."""
    host = table.of(Kind.RUNTIME, Kind.OPERATOR)
    places = [table.place[host & (process == i)] for i in ids.tolist()] if len(table.place) else []
    order = sorted(range(len(places)), key=lambda i: int(places[i].min()))
    first = np.array([places[i].min() for i in order], np.int64)
    last = np.array([places[i].max() for i in order], np.int64)
    if not len(order) or (first[1:] <= last[:-1]).any():
        return otherwise
    return np.array(order, np.int64)[np.maximum(np.searchsorted(first, table.place[rows], side="right") - 1, 0)]


def _delays(table: Table, rows: Ints, calls: Ints) -> Ints:
    """Time from the call with its id to each row; _FAR where there is no such call, or it came later."""
    calls = calls[table.correlation[calls] > 0]
    if not len(calls):
        return np.full(len(rows), _FAR, np.int64)
    calls = calls[np.argsort(table.correlation[calls], kind="stable")]
    index = np.minimum(np.searchsorted(table.correlation[calls], table.correlation[rows]), len(calls) - 1)
    found = calls[index]
    delay = table.start[rows] - table.start[found]
    return np.where((table.correlation[found] == table.correlation[rows]) & (delay >= -_EARLY_NS), np.abs(delay), _FAR)


def _part(table: Table, rows: Ints, rank: int, pid: int, note: Health) -> Table:
    place = np.full(len(table), -1, np.int64)
    place[rows] = np.arange(len(rows))
    columns: dict[str, NDArray[np.int64]] = {
        key: getattr(table, key)[rows]
        for key in ("start", "end", "kind", "name", "track", "device", "stream", "correlation", "sequence", "forward")
    }
    return replace(
        table,
        **columns,  # type: ignore[arg-type]
        shape=table.shape[rows] if len(table.shape) else table.shape,
        place=table.place[rows] if len(table.place) else table.place,
        collectives={int(place[r]): c for r, c in table.collectives.items() if place[r] >= 0},
        rank=rank,
        allocations=_of_process(table.allocations, pid),
        health=(*table.health, note) if rank == 0 else (),
    )


def _of_process(found: Allocations | None, pid: int) -> Allocations | None:
    if found is None:
        return None
    mine = np.flatnonzero(np.array([_number(p) == pid for p, _ in found.tracks], bool)[found.track])
    columns = {key: getattr(found, key)[mine] for key in ("time", "device", "track", "address", "size", "allocated", "reserved")}
    return replace(found, **columns) if len(mine) else None
