"""A graph simulated again with a change: causes taken out, work made faster, collectives hidden, a rank that is not late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import IDLE_CAUSES
from headway.trace.replay.edges import Kind, Role
from headway.trace.replay.graph import Graph
from headway.trace.sweep import Ints

_NEVER: Final = -(1 << 62)


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is different. Several changes are joined by `&`.

    `without`: causes of idle hosts that take no time. `share`: per seat, the share of its time that each row of work keeps. `hidden`:
    weights are gathered ahead, and only the optimizer waits for gradients. `on_time`: seats that nobody waits for.
    """

    without: frozenset[str] = frozenset()
    share: tuple[NDArray[np.float64], ...] = ()
    hidden: bool = False
    on_time: frozenset[int] = frozenset()

    def __and__(self, other: Change) -> Change:
        share = tuple(np.minimum(a, b) for a, b in zip(self.share, other.share, strict=True)) if self.share and other.share else ()
        return Change(
            without=self.without | other.without,
            share=share or self.share or other.share,
            hidden=self.hidden or other.hidden,
            on_time=self.on_time | other.on_time,
        )


NOTHING: Final = Change()


@dataclass(frozen=True)
class Outcome:
    """What came out: the value of every node, edges as they weighed, times of nodes, and the ends of steps of each seat [steps + 1]."""

    value: Ints
    weight: Ints
    own: Ints
    edges: tuple[Ints, ...]

    @property
    def step_ns(self) -> float:
        """Mean over seats of the mean time of a step."""
        return float(np.mean([(e[-1] - e[0]) / (len(e) - 1) for e in self.edges]))


def simulate(graph: Graph, change: Change = NOTHING) -> Outcome:
    """The run with `change`. O(edges)."""
    out = np.array([*(c in change.without for c in IDLE_CAUSES), False])
    weight = graph.weight + graph.cost.per_edge(len(graph.weight), out)
    own = _own(graph, change, out)
    weight = np.where(_cut(graph, change, out), _NEVER, weight)
    value = _values(graph, weight, own)
    return Outcome(value, weight, own, tuple(_edges(graph, value, k) for k in range(len(graph.last))))


def _own(graph: Graph, change: Change, out: NDArray[np.bool_]) -> Ints:
    own = graph.own.copy()
    for last, share in zip(graph.last, change.share, strict=False):
        own[last] = np.rint(own[last] * share)
    own[(graph.blocked >= 0) & out[np.maximum(graph.blocked, 0)]] = 0
    return own


def _cut(graph: Graph, change: Change, out: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Edges that no longer hold."""
    blocked = graph.blocked[graph.node]
    cut: NDArray[np.bool_] = (graph.kind == Kind.AWAIT) & (blocked >= 0) & out[np.maximum(blocked, 0)]
    if change.hidden:
        between = np.isin(graph.kind, (Kind.STREAM, Kind.ORDER))
        source, node = graph.role[graph.source], graph.role[graph.node]
        cut |= between & (source == Role.GRADIENT) & (node == Role.OTHER)
        cut |= between & (source == Role.OTHER) & (node == Role.GATHER)
    if change.on_time:
        cut |= (graph.kind == Kind.ARRIVE) & np.isin(graph.seat[graph.source], list(change.on_time))
    return cut


def _values(graph: Graph, weight: Ints, own: Ints) -> Ints:
    """value[i] = max over edges (value[source] + weight) + own[i]: one pass, since sources come first."""
    value = own.tolist()
    for block in graph.plan:
        stops, source = block.lists()
        much = weight[block.low : block.high].tolist()
        at = 0
        for i, stop in enumerate(stops, block.first):
            if at == stop:
                continue
            best = value[source[at]] + much[at]
            at += 1
            while at < stop:
                other = value[source[at]] + much[at]
                if other > best:
                    best = other
                at += 1
            value[i] += best
    return np.array(value, np.int64)


def _edges(graph: Graph, value: Ints, seat: int) -> Ints:
    """Where the steps of a seat end: b_k = max(b_{k-1}, the host's end, the end of the last work launched in it)."""
    hosts, steps = graph.hosts[seat], graph.steps[seat]
    ends = value[hosts].copy()
    known = steps >= 0
    np.maximum.at(ends, steps[known] + 1, value[graph.last[seat][known]])
    return np.maximum.accumulate(ends)
