"""A run made ready to be replayed: its graph, and what came out without a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.trace.floor.floors import Floors
from headway.trace.ranks.match import Seat
from headway.trace.ranks.wait import Meeting
from headway.trace.replay import excerpt
from headway.trace.replay.graph import Graph, graph
from headway.trace.replay.meet import meetings
from headway.trace.replay.script import Script
from headway.trace.replay.simulate import NOTHING, Change, Outcome, simulate
from headway.trace.sweep import Ints


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Devices; floors as shares of time (NaN unknown); when last ranks arrived; the graph; the run without a change."""

    seats: tuple[Seat, ...]
    share: tuple[NDArray[np.float64], ...]
    meets: tuple[Ints, ...]
    arrived: tuple[Ints, ...]
    graph: Graph
    base: Outcome
    steps: tuple[int, int] | None  # first and last step, where not all are replayed

    def gain(self, change: Change) -> float:
        """Nanoseconds of a step that `change` saves, at least 0."""
        return max(0.0, self.base.step_ns - simulate(self.graph, change).step_ns)


def replay(seats: Sequence[Seat], scripts: Sequence[Script], meeting: Meeting, floors: Sequence[Floors]) -> Replay | None:
    """The replay of a run; None if no device has work."""
    known = meetings(meeting, seats)
    rows = [(s, c, m, t, f.share) for s, c, (m, t), f in zip(seats, scripts, known, floors, strict=True)]
    rows = [r for r in rows if len(r[0].work)]
    if not rows:
        return None
    steps = excerpt.span([r[0] for r in rows])
    if steps is not None:
        found = [(excerpt.cut(s, c, steps), m, t, f) for s, c, m, t, f in rows]
        rows = [(x[0], x[1], m[x[2]], t[x[2]], f[x[2]]) for x, m, t, f in found if x is not None]
    used, acted, meets, arrived, share = zip(*rows, strict=True)
    made = graph(used, acted, meets, arrived)
    return Replay(seats=used, share=share, meets=meets, arrived=arrived, graph=made, base=simulate(made, NOTHING), steps=steps)
