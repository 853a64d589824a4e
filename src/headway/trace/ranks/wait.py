"""Several ranks of one run: when the last rank arrived at each collective, and who waited how long.

Until its last rank has arrived, the others wait; after that, data moves. Clocks are aligned first (`clock`). Where their error is larger
than every wait of a collective, none is claimed: it is unsplit until the last arrival is certain, and transfer from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import Health
from headway.trace.ranks.clock import SYNCHRONISE, Clocks, clocks
from headway.trace.ranks.match import NONE, Matches, Seat, match
from headway.trace.sweep import EMPTY, Ints

SLACK_NS = 2_000  # time stamps of one device are no better


@dataclass(frozen=True)
class Arrivals:
    """For each row of work of one device, in its clock: when the last rank arrived at its collective, and which rank that was.

    From `until` on data certainly moves: later than `time` where clocks are too uncertain to claim a wait. -1 where nothing is known.
    """

    time: Ints
    rank: Ints
    until: Ints


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """All ranks at their collectives. Arrays after `clocks` have one entry for each of `matches`."""

    arrivals: tuple[Arrivals, ...]  # of each seat
    matches: Matches = NONE
    clocks: Clocks | None = None
    wait: Ints = field(default_factory=lambda: EMPTY)  # before the last rank arrived; 0 where none is claimed
    moves: Ints = field(default_factory=lambda: EMPTY)  # after it
    error: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # of both
    last: Ints = field(default_factory=lambda: EMPTY)  # the entry of the rank that arrived last
    sound: NDArray[np.bool_] = field(
        default_factory=lambda: np.zeros(0, bool)
    )  # the ranks of its collective did meet, as far as clocks say
    health: tuple[Health, ...] = ()


def meet(seats: Sequence[Seat]) -> Meeting:
    """When the last rank arrived at each collective of each seat, and what is doubtful about it."""
    blank = tuple(Arrivals(*(np.full(len(s.work), -1, np.int64) for _ in range(3))) for s in seats)
    if not seats:
        return Meeting(arrivals=())
    found = match(seats)
    clock, doubts = clocks(seats, found)
    if not len(found):
        return Meeting(arrivals=blank, clocks=clock, health=(*doubts, *_health(found, 0, 0)))
    one = found.of_entry
    start = found.start - clock.ahead(found.seat, found.start)
    end = found.end - clock.ahead(found.seat, found.end)
    arrived = np.maximum.reduceat(start, found.first)
    latest = np.flatnonzero(start == arrived[one])
    last = latest[np.searchsorted(one[latest], np.arange(len(found)), side="right") - 1][one]
    error = clock.between(found.seat, found.seat[last])
    wait = np.minimum(arrived[one], end) - start
    claimed = np.logical_or.reduceat(wait > error, found.first)[one]
    joins = np.array([k.name in SYNCHRONISE for k in found.kinds], bool)[found.kind][one]
    early = end < arrived[one] - error - SLACK_NS  # it ended before the last began
    crossed = np.logical_or.reduceat(early & joins, found.first)[one]
    wait = np.where(claimed & ~(early & ~joins), wait, 0)  # who sends may be done before who receives has come
    most = np.maximum.reduceat(error, found.first)[one]  # who was last is not certain either
    sure = np.where(claimed, wait, np.minimum(np.ceil(arrived[one] - start + most), end - start)).astype(np.int64)
    sure = np.where(early & ~joins, 0, np.maximum(sure, 0))
    moves = np.maximum(found.end - np.maximum(found.start, found.start + arrived[one] - start), 0)
    moves = np.where(early & ~joins, found.end - found.start, moves)
    rank = np.array([s.rank for s in seats], np.int64)[found.seat[last]]
    for s, here in enumerate(blank):
        mine = np.flatnonzero((found.seat == s) & ~crossed)
        at = found.row[mine]
        here.time[at], here.rank[at], here.until[at] = found.start[mine] + wait[mine], rank[mine], found.start[mine] + sure[mine]
    withheld = int(np.logical_or.reduceat(~claimed & ~crossed & (error > 0), found.first).sum())
    return Meeting(
        arrivals=blank,
        matches=found,
        clocks=clock,
        wait=np.where(crossed, 0, wait),
        moves=moves,
        error=error,
        last=last,
        sound=~crossed,
        health=(*doubts, *_health(found, int(crossed[found.first].sum()), withheld)),
    )


def clock_fields(meeting: Meeting, seat: int) -> dict[str, Any]:
    """The fields of a RankBreakdown about the clock of one seat."""
    if meeting.clocks is None:
        return {}
    offset, drift, half, source = meeting.clocks.of(seat)
    return {
        "clock_offset_ns": offset if half is not None else None,
        "clock_interval_ns": round(half) if half is not None else None,
        "clock_drift_ppm": drift if half is not None else None,
        "clock_source": source,
    }


def _health(found: Matches, crossed: int, withheld: int) -> list[Health]:
    early = "collectives that end on a rank before another begins them (matched wrongly, or a clock jumps) are left unsplit"
    uneven = "ranks have different numbers of collectives in a step, and their order does not tell which belong together: left unsplit"
    rows = (
        ("crossed_collectives", crossed, early),
        ("doubled_collectives", found.doubled, "collectives found twice on one rank are left unsplit"),
        ("ambiguous_collectives", found.ambiguous, uneven),
        ("wait_withheld", withheld, "collectives whose waits are shorter than the error of the clocks: no wait is claimed"),
    )
    return [Health(what=what, count=count, affects="comm wait and transfer", text=text) for what, count, text in rows if count]
