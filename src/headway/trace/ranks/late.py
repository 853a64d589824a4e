"""What a late rank was doing while the others waited for it: its buckets, phases and modules between their arrival and its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.spec.event import PHASES
from headway.trace.host import Host
from headway.trace.pieces import Pieces, buckets, cut
from headway.trace.ranks.match import Seat
from headway.trace.ranks.wait import Meeting
from headway.trace.sweep import Ints, covered, union

OUTSIDE = "outside"  # before the first or after the last window of the late rank


def late(seats: Sequence[Seat], hosts: Sequence[Host], meeting: Meeting) -> list[dict[str, Any]]:
    """A row for each rank that made others wait, largest first.

    `wait_ns`: of all collectives, also under compute of who waits; each charged once, to the rank that arrived last. `buckets` and `phases`
    (each sums to it) and `modules`: of the late rank meanwhile. `waiting`: by who waited. `exposed_ns`: of that, time of devices in which
    nothing else ran.
    """
    found = meeting.matches
    held = np.flatnonzero(meeting.wait > 0)
    if not len(held):
        return []
    last = meeting.last[held]
    seat, end, wait = found.seat[last], found.start[last], meeting.wait[held]
    rank = np.array([s.rank for s in seats], np.int64)
    waiting = rank[found.seat[held]]
    rows = {int(r): _row(int(r)) for r in np.unique(rank[seat]).tolist()}
    for s, here in enumerate(seats):
        pieces = cut(here.work, here.windows, hosts[s], meeting.arrivals[s])
        names, bucket = buckets(here.work, hosts[s], meeting.arrivals[s], pieces)
        exposed = np.array([n.endswith(".wait") for n in names], bool)[bucket]
        by = meeting.arrivals[s].rank[pieces.owner[exposed]]
        for r in np.unique(by).tolist():
            rows[r]["exposed_ns"] += int(pieces.length[exposed][by == r].sum())
        mine = seat == s
        if not mine.any():
            continue
        row = rows[here.rank]
        row["wait_ns"] += int(wait[mine].sum())
        _add(row["waiting"], {str(r): int(wait[mine & (waiting == r)].sum()) for r in np.unique(waiting[mine]).tolist()})
        for name, parts in _doing(pieces, names, bucket, hosts[s], end[mine], wait[mine]).items():
            _add(row[name], parts)
    total = int(wait.sum())
    out = sorted(rows.values(), key=lambda r: (-r["wait_ns"], r["rank"]))
    return [{**r, "share": r["wait_ns"] / total, **{k: _largest(r[k]) for k in ("buckets", "phases", "modules", "waiting")}} for r in out]


def _row(rank: int) -> dict[str, Any]:
    return {"rank": rank, "wait_ns": 0, "exposed_ns": 0, "buckets": {}, "phases": {}, "modules": {}, "waiting": {}}


def _doing(pieces: Pieces, names: Sequence[str], bucket: Ints, host: Host, end: Ints, wait: Ints) -> dict[str, dict[str, int]]:
    """Nanoseconds of one device in the windows [end - wait, end), by bucket, phase and module."""
    module = host.module(pieces.track, pieces.when)
    parts: dict[str, tuple[Sequence[str], Ints]] = {"buckets": (names, bucket), "phases": (PHASES, host.phase(pieces.track, pieces.when))}
    if host.modules:
        parts["modules"] = ((*host.modules, "other"), np.where(module >= 0, module, len(host.modules)))
    total = int(wait.sum())
    out = {}
    for kind, (labels, code) in parts.items():
        found = {labels[c]: ns for c in np.unique(code).tolist() if (ns := _within(pieces, code == c, end - wait, end))}
        rest = total - sum(found.values())
        out[kind] = found | ({OUTSIDE: rest} if rest else {})
    return out


def _within(pieces: Pieces, chosen: NDArray[np.bool_], begin: Ints, end: Ints) -> int:
    """Nanoseconds of the chosen pieces in all windows [begin, end)."""
    spans = union(pieces.start[chosen], pieces.start[chosen] + pieces.length[chosen])
    return int((covered(spans, end) - covered(spans, begin)).sum())


def _add(to: dict[str, int], parts: dict[str, int]) -> None:
    for name, ns in parts.items():
        to[name] = to.get(name, 0) + ns


def _largest(parts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(parts.items(), key=lambda kv: (-kv[1], kv[0])))
