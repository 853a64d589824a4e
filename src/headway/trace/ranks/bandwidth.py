"""Bus bandwidth of collectives: per step and device with what they waited, and per kind, axis and size of message without.

Bus bandwidth as NCCL's tests define it (nccl-tests, doc/PERFORMANCE.md): bytes of the message over time, times what crosses each link for
one byte of it; comparable with the speed of the link whatever the number of ranks. The message is the larger of what a rank sends and gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from headway.trace.ranks.match import Seat
from headway.trace.ranks.wait import Meeting
from headway.trace.sweep import Ints, union
from headway.trace.windows import Windows
from headway.trace.work import Work

SURE: Final = 0.1  # of a transfer: what the error of clocks may be for it to count as measured


def bus_factor(name: str, num: int) -> float:
    """Bytes that cross each link for one byte of message in a group of `num`."""
    share = (num - 1) / num
    halves = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    return 2 * share if name == "all_reduce" else share if name in halves else 1.0


def of_windows(work: Work, windows: Windows) -> list[tuple[Mapping[str, object], ...]]:
    """Per window and (collective, axis): how many start in it, their bytes, the time in which one runs and bus bandwidth over that."""
    out: list[list[Mapping[str, object]]] = [[] for _ in windows.steps]
    rows = np.flatnonzero(work.comm_of >= 0)
    place = windows.of_time(work.start[rows])
    rows, place = rows[place >= 0], place[place >= 0]
    if not len(rows):
        return [()] * len(out)
    kinds = sorted({(c.name, c.axis) for c in work.comm})
    kind = np.array([kinds.index((c.name, c.axis)) for c in work.comm], np.int64)[work.comm_of[rows]]
    size = work.comm_bytes[work.comm_of[rows]]
    num, origin = len(out), int(work.start[rows].min())
    span = int(work.end[rows].max()) - origin + 1  # windows are laid end to end, so that the union of one does not see the others
    for k, (name, axis) in enumerate(kinds):
        mine = np.flatnonzero(kind == k)
        at = place[mine]
        start, end = union(*(side[rows[mine]] - origin + at * span for side in (work.start, work.end)))
        busy = np.bincount(start // span, (end - start).astype(np.float64), num).astype(np.int64)
        count, known = np.bincount(at, minlength=num), np.bincount(at, size[mine] >= 0, num)
        total = np.bincount(at, size[mine].astype(np.float64), num)
        members = next(len(c.ranks) for c in work.comm if (c.name, c.axis) == (name, axis))
        factor = bus_factor(name, members) if members > 1 else None
        for w in np.flatnonzero(count).tolist():
            moved = int(total[w]) if known[w] == count[w] else None
            rate = moved * factor / (int(busy[w]) / 1e9) if moved is not None and factor is not None and busy[w] else None
            out[w].append(
                {"collective": name, "axis": axis, "count": int(count[w]), "bytes": moved, "busy_ns": int(busy[w]), "bus_bytes_s": rate}
            )
    return [tuple(lines) for lines in out]


def collectives(seats: Sequence[Seat], meeting: Meeting) -> list[dict[str, Any]]:
    """A row for each collective, axis, number of ranks and size of message (a power of two and what lies below the next).

    `count` is over ranks, `split` says how many of them are known without their wait; transfer and bandwidth are of those, if there are
    any, else of whole durations. Rows are in order of time.
    """
    parts = [_durations(s, seat, meeting) for s, seat in enumerate(seats) if seat.work.comm]
    if not parts:
        return []
    codes = {k: i for i, k in enumerate(sorted({k for _, keys, *_ in parts for k in keys}))}
    group = np.concatenate([np.array([codes[k] for k in keys], np.int64)[code] for code, keys, *_ in parts])
    size, length, moves, wait, sure = (np.concatenate(c) for c in list(zip(*parts, strict=True))[2:])
    bins = np.where(size > 0, np.floor(np.log2(np.maximum(size, 1))), -1).astype(np.int64)
    keys, code = np.unique(np.stack((group, bins)), axis=1, return_inverse=True)
    names = list(codes)
    rows = []
    for i, (kind, power) in enumerate(keys.T.tolist()):
        mine = np.flatnonzero(code.reshape(-1) == i)
        good = mine[sure[mine]]
        used = good if len(good) else mine
        name, axis, num = names[kind]
        time = np.where(sure[used], moves[used], length[used]).astype(np.float64)
        known = (size[used] > 0) & (time > 0) & (num > 1)
        speed = size[used][known] * bus_factor(name, max(num, 1)) / time[known] * 1e9
        rows.append(
            {
                "collective": name,
                "axis": axis,
                "num_ranks": num or None,
                "size_bytes": [1 << power, 2 << power] if power >= 0 else None,
                "count": len(mine),
                "split": len(good),
                "total_ns": int(length[mine].sum()),
                "wait_ns": int(wait[mine].sum()),
                "transfer_ns": _spread(time),
                "bus_bytes_s": _spread(speed) if len(speed) else None,
            }
        )
    return sorted(rows, key=lambda r: -r["total_ns"])


def _durations(index: int, seat: Seat, meeting: Meeting) -> tuple[Any, ...]:
    """(code of each collective's kind, the kinds, bytes, duration, transfer, wait, whether those two are known) of one seat."""
    work, found = seat.work, meeting.matches
    rows = np.flatnonzero(work.comm_of >= 0)
    kinds = [(c.name, c.axis, len(c.ranks)) for c in work.comm]
    size = work.comm_bytes
    length = work.end - work.start
    moves, wait, sure = length.copy(), np.zeros(len(work), np.int64), np.zeros(len(work), bool)
    mine = np.flatnonzero((found.seat == index) & meeting.sound)
    at = found.row[mine]
    moves[at], wait[at], sure[at] = meeting.moves[mine], meeting.wait[mine], meeting.error[mine] <= SURE * meeting.moves[mine]
    of: Ints = work.comm_of[rows]
    return of, kinds, size[of], length[rows], moves[rows], wait[rows], sure[rows]


def _spread(values: np.ndarray[Any, Any]) -> dict[str, float]:
    low, middle, high = np.percentile(values, (10, 50, 90)).tolist()
    return {"median": middle, "p10": low, "p90": high}
