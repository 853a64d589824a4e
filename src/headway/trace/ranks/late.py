"""Late ranks: what each was doing while others waited for it, and what made it late.

What it was doing lies between their arrival and its own. What made it late lies before: since two ranks last met, at the collective before
of the same group, the late one took longer by just the wait. By bucket,

    sum over buckets of (time of the late rank - time of the waiting rank, from the end of the last meeting to arrival) = wait

so the differences say where the wait came from. One that is itself a wait (`comm.*.wait`) says that it was held up by a third.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.spec.event import PHASES
from headway.trace.host import Host
from headway.trace.pieces import Pieces, cut, modules_of
from headway.trace.ranks.match import Matches, Seat
from headway.trace.ranks.wait import Meeting
from headway.trace.sweep import Ints, covered, union

MOST = 20_000  # waits whose origin is looked for
MODULES = 12  # named in a row: those with most
OUTSIDE = "outside"  # before the first or after the last window of the late rank


def late(seats: Sequence[Seat], hosts: Sequence[Host], meeting: Meeting) -> list[dict[str, Any]]:
    """A row for each rank that made others wait, largest first.

    `wait_ns`: of all collectives, also under compute of who waits; each charged once, to the rank that arrived last. `exposed_ns`: of that,
    time of devices in which nothing else ran. `waiting`: by who waited. `buckets`, `phases` (each sums to it), `modules` (the largest): of
    the late rank meanwhile. `excess`: what made it late, of the `excess_ns` of waits (the longest) of ranks that had met before.
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
    since = _since(meeting, held)
    for s, here in enumerate(seats):
        pieces = cut(here.work, here.windows, hosts[s], meeting.arrivals[s])
        exposed = np.array([n.endswith(".wait") for n in pieces.names], bool)[pieces.bucket]
        by = meeting.arrivals[s].rank[pieces.owner[exposed]]
        for r in np.unique(by).tolist():
            rows[r]["exposed_ns"] += int(pieces.length[exposed][by == r].sum())
        for sign, of in ((1, since.late), (-1, since.entry)):
            _excess(rows, pieces, sign, found, of, since, rank, s)
        mine = seat == s
        if not mine.any():
            continue
        row = rows[here.rank]
        row["wait_ns"] += int(wait[mine].sum())
        _add(row["waiting"], {str(r): int(wait[mine & (waiting == r)].sum()) for r in np.unique(waiting[mine]).tolist()})
        for name, parts in _doing(pieces, hosts[s], end[mine], wait[mine]).items():
            _add(row[name], parts)
    for of, ns in zip(rank[found.seat[since.late]].tolist(), meeting.wait[since.entry].tolist(), strict=True):
        rows[of]["excess_ns"] += ns
    total = int(wait.sum())
    out = sorted(rows.values(), key=lambda r: (-r["wait_ns"], r["rank"]))
    for row in out:
        row["share"] = row["wait_ns"] / total
        row |= {name: _largest(row[name]) for name in ("excess", "buckets", "phases", "waiting")}
        row["modules"] = dict(list(_largest(row["modules"]).items())[:MODULES])
    return out


def told(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row in words: how much is waited for the rank, and what made it late."""
    out = [f"rank {row['rank']} arrives last for {row['share']:.0%} of the waiting ({row['exposed_ns'] / 1e6:.2f} ms of it not hidden)"]
    if row["excess_ns"]:
        most, ns = next(iter(row["excess"].items()))
        out.append(f"since the ranks last met, {most} took it {ns / 1e6:.2f} ms longer, of {row['excess_ns'] / 1e6:.2f} ms of waits")
    elif row["buckets"]:
        most, ns = next(iter(row["buckets"].items()))
        out.append(f"meanwhile it spent {ns / 1e6:.2f} ms in {most}")
    return tuple(out)


def _row(rank: int) -> dict[str, Any]:
    numbers = dict.fromkeys(("wait_ns", "exposed_ns", "excess_ns"), 0)
    return {"rank": rank, **numbers, "excess": {}, "buckets": {}, "phases": {}, "modules": {}, "waiting": {}}


@dataclass(frozen=True)
class _Since:
    """Waits of ranks that had met before: the entry that waited, the late one, and when the meeting before ended for each."""

    entry: Ints
    late: Ints
    entry_from: Ints
    late_from: Ints


def _since(meeting: Meeting, held: Ints) -> _Since:
    """The longest waits, with the meeting before of the same group."""
    found = meeting.matches
    one = found.of_entry
    club = found.club[one]
    order = np.lexsort((found.start, club, found.seat))
    before = np.full(len(order), -1, np.int64)
    same = (found.seat[order][1:] == found.seat[order][:-1]) & (club[order][1:] == club[order][:-1])
    before[order[1:]] = np.where(same, order[:-1], -1)
    entry = held[np.argsort(-meeting.wait[held], kind="stable")[:MOST]]
    other = meeting.last[entry]
    known = (before[entry] >= 0) & (before[other] >= 0) & (one[before[entry]] == one[before[other]])
    entry, other = entry[known], other[known]
    return _Since(entry, other, found.end[before[entry]], found.end[before[other]])


def _excess(
    rows: dict[int, dict[str, Any]], pieces: Pieces, sign: int, found: Matches, of: Ints, since: _Since, rank: Ints, seat: int
) -> None:
    """Adds to (or takes from) the excess of each late rank what one seat did, by bucket, from the last meeting to its arrival."""
    mine = np.flatnonzero(found.seat[of] == seat)
    if not len(mine):
        return
    begin, end = (since.late_from if sign > 0 else since.entry_from)[mine], found.start[of[mine]]
    late = rank[found.seat[since.late[mine]]]
    for r in np.unique(late).tolist():
        at = late == r
        codes = np.unique(pieces.bucket).tolist()
        parts = {pieces.names[c]: sign * _within(pieces, pieces.bucket == c, begin[at], end[at]) for c in codes}
        _add(rows[r]["excess"], {n: ns for n, ns in parts.items() if ns})


def _doing(pieces: Pieces, host: Host, end: Ints, wait: Ints) -> dict[str, dict[str, int]]:
    """Nanoseconds of one device in the windows [end - wait, end), by bucket, phase and module."""
    phase = host.phase(pieces.track, pieces.when)
    parts: dict[str, tuple[Sequence[str], Ints]] = {"buckets": (pieces.names, pieces.bucket), "phases": (PHASES, phase)}
    if host.modules:
        parts["modules"] = modules_of(pieces, host)
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
