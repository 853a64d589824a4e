"""A file of several processes (ranks whose traces were merged) as one table each.

Correlation ids and device numbers count from the beginning in every process, so that they say nothing across processes: host rows are told
apart by their process id, and work of a device goes to the process that launched it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.health import Health
from headway.trace.memory.history import Allocations
from headway.trace.sweep import Ints, distinct
from headway.trace.table import DEVICE_WORK, Kind, Table

_EARLY_NS: Final = 1_000_000  # work may seem to start this long before its launch (clocks)
_FAR: Final = np.iinfo(np.int64).max


def split(table: Table) -> tuple[Table, ...]:
    """One table a process, in order of their ids; `table` itself if it holds one."""
    process = np.array([_number(pid) for pid, _ in table.tracks], np.int64)[table.track]
    own = table.of(Kind.RUNTIME, Kind.OPERATOR)
    ids = distinct(process[own])
    if len(ids) < 2:
        return (table,)
    owner = np.where(table.of(Kind.RUNTIME, Kind.OPERATOR, Kind.MARK, Kind.PYTHON), process, -1)
    placed = table.rows(*DEVICE_WORK, Kind.SYNC, Kind.DEVICE_MARK)
    owner[placed] = _launchers(table, placed, process, ids)
    text = f"the file holds {len(ids)} processes; links hold within each, and each is taken for a rank in the order of their ids"
    note = Health(what="merged_processes", count=len(ids), affects="ranks", text=text)
    return tuple(_part(table, np.flatnonzero(owner == i), rank, int(i), note) for rank, i in enumerate(ids.tolist()))


def _number(pid: str) -> int:
    """A process id as a number; what is none (Spans, Traces) belongs to nobody."""
    return int(pid) if pid.isdecimal() and len(pid) < 19 else -2


def _launchers(table: Table, rows: Ints, process: Ints, ids: Ints) -> Ints:
    """The process that launched each row of a device.

    What a writer kept apart (rows of one process id) has one launcher: the process that knows most of its ids at possible times, of equals
    the one that launched them latest. Rows that no id tells apart are not split.
    """
    delays = np.stack([_delays(table, rows, np.flatnonzero(table.of(Kind.RUNTIME) & (process == i))) for i in ids.tolist()])
    known = delays < _FAR
    nearest = np.argmin(delays, axis=0)
    out = np.empty(len(rows), np.int64)
    claims: dict[int, list[int]] = {}
    devices = distinct(process[rows]).tolist()
    for device in devices:
        mine = process[rows] == device
        middle = [np.median(d[k]) if k.any() else np.inf for d, k in zip(delays[:, mine], known[:, mine], strict=True)]
        best = min(range(len(ids)), key=lambda i: (-int(known[i, mine].sum()), middle[i]))
        claims.setdefault(best, []).append(device)
        out[mine] = best
    if len(claims) < len(ids):  # some process has no device of its own: the ranks' devices have one id in the file
        out = np.where(known.any(axis=0), nearest, out)
    return ids[out]


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
