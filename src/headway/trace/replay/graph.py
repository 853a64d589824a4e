"""The graph of a run: what every kernel, collective and wait of the host had to wait for, so that the run can be simulated again.

    value of a node = max over its edges (value of the source + weight) + its own time

Nodes of a device are ends of work; a collective that is matched over ranks has a node for its begin on each rank and one (of value 0)
where all have arrived. Nodes of a host are moments at which it had waited for the device, ends of its steps and, on a CPU, ends of
operators. What a host does between its nodes is weight by cause, so that a cause can be taken out. The edge that was last in the trace
takes what remains: without a change, every node has the value that was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from headway.trace.ranks.match import Seat
from headway.trace.replay.edges import NONE, Codes, Ints32, Loose, Role, loose
from headway.trace.replay.script import Script
from headway.trace.replay.spent import Spent
from headway.trace.sweep import Ints

_MEETING: Final = -2  # row of a node where all ranks have arrived
BLOCK: Final = 1 << 18  # nodes whose edges are lists at a time


class Plan:
    """A block of nodes: its first node, where the edges of each end, counted from the block's first edge, and their sources."""

    def __init__(self, graph: Graph, stops: Ints, first: int, *, keep: bool) -> None:
        self.first = first
        self.low = int(stops[first - 1]) if first else 0
        self._stops, self._sources = stops[first : first + BLOCK], graph.source
        self.high = int(self._stops[-1])
        self._lists = self._made() if keep else None

    def lists(self) -> tuple[list[int], list[int]]:
        """(stops, sources)."""
        return self._lists or self._made()

    def _made(self) -> tuple[list[int], list[int]]:
        return (self._stops - self.low).tolist(), self._sources[self.low : self.high].tolist()


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Nodes in an order in which every source comes before what waits for it, and edges sorted by node.

    Of nodes: `seat` (-1 where all ranks have arrived), `row` of its work (-1: host, -2: all ranks have arrived), `own` time, `measured`
    value, `blocked` (cause of a host node that waited for the device, else -1), `role`. Of edges: `node`, `source`, `kind`, `weight`,
    `cost` by cause. Of seats: `last`, nodes of the ends of each row of work; `steps`, the step that each row was launched in (-1 none);
    `hosts`, nodes of the begin and of the host's end of each step.
    """

    seat: Ints32
    row: Ints32
    own: Ints
    measured: Ints
    blocked: Codes
    role: Codes
    node: Ints32
    source: Ints32
    kind: Codes
    weight: Ints
    cost: Spent
    last: tuple[Ints, ...]
    steps: tuple[Ints, ...]
    hosts: tuple[Ints, ...]

    def __len__(self) -> int:
        return len(self.seat)

    @cached_property
    def plan(self) -> tuple[Plan, ...]:
        """The nodes in blocks of at most BLOCK.

        What every simulation walks. The lists of a small graph are kept; those of a large one are made anew for each walk, since they
        would take ten times the memory of its arrays.
        """
        stops = np.searchsorted(self.node, np.arange(len(self)), side="right")
        blocks = range(0, len(self), BLOCK)
        return tuple(Plan(self, stops, first, keep=len(blocks) == 1) for first in blocks)


def graph(seats: Sequence[Seat], scripts: Sequence[Script], meets: Sequence[Ints], arrived: Sequence[Ints]) -> Graph:
    """The graph of all seats. `meets`: for each row of work of a seat, the number of the meeting of all its ranks, -1 for none;
    `arrived`: when the last rank arrived there, by the seat's own clock.
    """
    parts = [loose(s, script, meet, time) for s, script, meet, time in zip(seats, scripts, meets, arrived, strict=True)]
    sizes = [len(p.row) for p in parts]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    num_meets = 1 + max((int(m.max()) for m in meets if len(m)), default=-1)
    total = int(offsets[-1]) + num_meets
    seat = np.repeat(np.arange(-1, len(parts), dtype=np.int32), [0, *sizes])
    seat = np.append(seat, np.full(num_meets, -1, np.int32))
    nodes: Mapping[str, Any] = {
        name: np.concatenate([*(column := [getattr(p, name) for p in parts]), np.full(num_meets, fill, column[0].dtype)])
        for name, fill in (("row", _MEETING), ("own", 0), ("measured", 0), ("blocked", -1), ("role", Role.COMM))
    }
    node, source, kind, weight = (np.concatenate([getattr(p, n) for p in parts]) for n in ("node", "source", "kind", "weight"))
    cost = Spent.joined([p.cost for p in parts], [len(p.node) for p in parts])
    shift = np.repeat(offsets[:-1].astype(np.int32), [len(p.node) for p in parts])
    node, source = (np.where(x >= 0, x + shift, np.int32(offsets[-1] + NONE - 1) - x) for x in (node, source))  # below NONE: meetings
    place = _order(parts, offsets, num_meets, total)
    node, source = place[node], place[source]
    keep = np.flatnonzero(source < node)
    keep = keep[np.argsort(node[keep], kind="stable")]
    moved = np.full(len(node), -1, np.int64)
    moved[keep] = np.arange(len(keep))
    node, source, kind, weight, cost = node[keep], source[keep], kind[keep], weight[keep], cost.moved(moved)
    at = np.argsort(place, kind="stable")
    nodes = {name: x[at] for name, x in nodes.items()}
    own, measured = nodes["own"], nodes["measured"]
    alone = np.setdiff1d(np.arange(total, dtype=np.int32), node)
    own[alone] = measured[alone]  # nothing is known to hold it: it stays where it was
    return Graph(
        seat=seat[at], **nodes, node=node, source=source, kind=kind,
        weight=_fitted(node, source, weight, cost, measured, own), cost=cost,
        last=tuple(place[o + p.last] for o, p in zip(offsets[:-1], parts, strict=True)),
        steps=tuple(p.step for p in parts),
        hosts=tuple(place[o + p.hosts] for o, p in zip(offsets[:-1], parts, strict=True)),
    )  # fmt: skip


def _order(parts: Sequence[Loose], offsets: Ints, num_meets: int, total: int) -> Ints32:
    """The place of each node. A device's nodes keep the order of their time; one that needs a meeting comes after it.

    Where clocks contradict each other, the node comes anyway, and loses the edge from its meeting.
    """
    place = np.full(total, -1, np.int32)
    left = np.zeros(num_meets, np.int64)
    for p in parts:
        np.add.at(left, p.arrives[p.arrives >= 0], 1)
    at = [0] * len(parts)
    stops = [np.flatnonzero(p.needs[p.order] >= 0) for p in parts]
    arrives = [np.flatnonzero(p.arrives[p.order] >= 0) for p in parts]
    place_of = 0

    def emit(k: int, until: int) -> None:
        nonlocal place_of
        p, begin = parts[k], at[k]
        lo, hi = np.searchsorted(arrives[k], (begin, until))
        for i in [*arrives[k][lo:hi].tolist(), -1]:
            chunk = p.order[at[k] : until if i < 0 else i + 1]
            place[offsets[k] + chunk] = place_of + np.arange(len(chunk))
            place_of += len(chunk)
            at[k] += len(chunk)
            if i >= 0:
                meet = int(p.arrives[p.order[i]])
                left[meet] -= 1
                if left[meet] == 0:
                    place[offsets[-1] + meet] = place_of
                    place_of += 1

    while any(at[k] < len(p.order) for k, p in enumerate(parts)):
        moved = False
        for k, p in enumerate(parts):
            while at[k] < len(p.order):
                ahead = stops[k][np.searchsorted(stops[k], at[k]) :]
                held = next((i for i in ahead.tolist() if place[offsets[-1] + p.needs[p.order[i]]] < 0), len(p.order))
                if held == at[k]:
                    break
                moved = True
                emit(k, held)
        if not moved:
            k = min((k for k, p in enumerate(parts) if at[k] < len(p.order)), key=lambda k: int(parts[k].measured[parts[k].order[at[k]]]))
            emit(k, at[k] + 1)
    unmet = np.flatnonzero(place < 0)
    place[unmet] = place_of + np.arange(len(unmet))
    return place


def _fitted(node: Ints32, source: Ints32, weight: Ints, cost: Spent, measured: Ints, own: Ints) -> Ints:
    """Weights with which every node has the value that was measured.

    An edge that would come later is shortened; of the edges that come first, the last takes what is missing.
    """
    reach = measured[source] + weight + cost.per_edge(len(node))
    wanted = (measured - own)[node]
    fitted: Ints = weight - np.maximum(reach - wanted, 0)
    reach = np.minimum(reach, wanted)
    best = np.full(len(measured), np.iinfo(np.int64).min)
    np.maximum.at(best, node, reach)
    binds = np.flatnonzero(reach == best[node])
    _, first = np.unique(node[binds], return_index=True)
    binds = binds[first]
    fitted[binds] += (wanted - reach)[binds]
    return fitted
