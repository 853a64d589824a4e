"""The critical path: from the end of a step back over what each moment had to wait for, across ranks, to its begin.

Every nanosecond of the path belongs to one (rank, bucket): a kernel or a transfer that ran, or the host, by its cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headway.spec.breakdown import IDLE_CAUSES
from headway.trace.replay.edges import Kind
from headway.trace.replay.run import Replay
from headway.trace.replay.script import HIDDEN
from headway.trace.work import BUCKETS, COMM

MOST_LINKS: Final = 200


@dataclass(frozen=True)
class Link:
    """A stretch of the path on one rank: what held it, from when in its clock, how long, and the longest of its kernels."""

    rank: int
    bucket: str
    start_ns: int
    ns: int
    name: str


def critical_path(run: Replay) -> dict[str, Any]:
    """{"step", "rank", "wall_ns", "buckets": {name: ns}, "ranks": {rank: ns}, "chain": [...]} of the step of median time.

    The buckets sum to `wall_ns`, and so do the ranks. The rank is the one whose end of the step comes last against its begin. `chain` runs
    from the begin to the end; stretches of one bucket and rank that follow each other are one; of more than 200 the longest are kept.
    """
    seat, step = _median_step(run)
    edges = run.base.edges[seat]
    begin, end = int(edges[step]), int(edges[step + 1])
    links = _walk(run, seat, begin, end)
    buckets: dict[str, int] = {}
    ranks: dict[str, int] = {}
    for link in links:
        buckets[link.bucket] = buckets.get(link.bucket, 0) + link.ns
        ranks[str(link.rank)] = ranks.get(str(link.rank), 0) + link.ns
    merged = _merged(links)
    least = sorted((x.ns for x in merged), reverse=True)[MOST_LINKS - 1] if len(merged) > MOST_LINKS else 0
    return {
        "step": run.seats[seat].windows.steps[step],
        "rank": run.seats[seat].rank,
        "wall_ns": end - begin,
        "buckets": dict(sorted(buckets.items(), key=lambda kv: -kv[1])),
        "ranks": ranks,
        "chain": [
            {"rank": x.rank, "bucket": x.bucket, "start_ns": x.start_ns, "ns": x.ns, "name": x.name} for x in merged if x.ns >= least
        ],
    }


def _median_step(run: Replay) -> tuple[int, int]:
    """(seat, index of the step): the median step of the seat with the longest run, by which the others are held."""
    seat = max(range(len(run.seats)), key=lambda k: int(run.base.edges[k][-1] - run.base.edges[k][0]))
    walls = np.diff(run.base.edges[seat])
    return seat, int(np.argsort(walls, kind="stable")[len(walls) // 2])


def _walk(run: Replay, seat: int, begin: int, end: int) -> list[Link]:
    """The path back from `end` on a seat until the whole step is told, oldest first."""
    graph, out = run.graph, run.base
    node = _last(run, seat, begin, end)
    links: list[Link] = []
    left = end - begin
    stops = np.searchsorted(graph.node, np.arange(len(graph) + 1))
    ran = ~np.isin(graph.kind, (Kind.HOST, Kind.LAUNCH))  # on a device
    if node < 0 or out.value[node] < end:  # after all known work: the host
        late = left if node < 0 else min(left, end - int(out.value[node]))
        links.append(Link(run.seats[seat].rank, "idle.unknown", end - late, late, ""))
        left -= late
    clock = end
    while node >= 0 and left > 0:
        where = int(graph.seat[node])
        if where >= 0:
            seat, clock = where, int(out.value[node])
            took = min(left, int(out.own[node]))
            if took:
                links.append(_of_node(run, node, seat, clock, took))
            left -= took
            clock -= took
        first, stop = stops[node], stops[node + 1]
        if first == stop or left <= 0:
            break
        reach = out.value[graph.source[first:stop]] + out.weight[first:stop]
        last = first + np.flatnonzero(reach == reach.max())
        edge = int(last[ran[last].argmax()])  # of equals, what ran on a device
        if graph.kind[edge] not in (Kind.ARRIVE, Kind.MOVE):
            for link in _of_edge(run, edge, seat, clock, left):
                links.append(link)
                left -= link.ns
                clock -= link.ns
        node = int(graph.source[edge])
    if left > 0:
        links.append(Link(run.seats[seat].rank, "idle.unknown", clock - left, left, ""))
    return links[::-1]


def _last(run: Replay, seat: int, begin: int, end: int) -> int:
    """The node at which a step of a seat ends; -1 if nothing of it is known."""
    nodes = np.concatenate((run.graph.last[seat], run.graph.hosts[seat]))
    value = run.base.value[nodes]
    inside = (value > begin) & (value <= end)
    return int(nodes[inside][np.argmax(value[inside])]) if inside.any() else -1


def _of_node(run: Replay, node: int, seat: int, clock: int, took: int) -> Link:
    """The node's own time: its work, or a host that was let go late."""
    row = int(run.graph.row[node])
    if row < 0:
        return Link(run.seats[seat].rank, "idle.sync", clock - took, took, "")
    work = run.seats[seat].work
    return Link(run.seats[seat].rank, _bucket(run, seat, row), clock - took, took, work.names[work.name[row]])


def _bucket(run: Replay, seat: int, row: int) -> str:
    work = run.seats[seat].work
    bucket = BUCKETS[int(work.level[row])]
    if work.level[row] != COMM:
        return bucket
    comm = work.comm[work.comm_of[row]]
    return f"{bucket}.{comm.name}.{comm.axis}.{'transfer' if run.meets[seat][row] >= 0 else 'unsplit'}"


def _of_edge(run: Replay, edge: int, seat: int, clock: int, left: int) -> list[Link]:
    """An edge's time: what the host did, by cause; the rest is the way from the host to the device, or between two kernels."""
    graph = run.graph
    cost = graph.cost.at(edge)
    rest = int(run.base.weight[edge] - cost.sum())
    parts = [(f"idle.{IDLE_CAUSES[c]}" if c != HIDDEN else "idle.launch", int(cost[c])) for c in np.flatnonzero(cost > 0).tolist()]
    parts.append(("idle.launch", rest))
    out = []
    for bucket, ns in parts[::-1]:
        took = min(left, max(ns, 0))
        if took:
            out.append(Link(run.seats[seat].rank, bucket, clock - took, took, ""))
            clock, left = clock - took, left - took
    return out


def _merged(links: list[Link]) -> list[Link]:
    """Neighbours of one rank and bucket as one, with the name of the longest."""
    out: list[Link] = []
    longest = 0
    for link in links:
        if out and (out[-1].rank, out[-1].bucket) == (link.rank, link.bucket):
            name = link.name if link.ns > longest else out[-1].name
            longest = max(longest, link.ns)
            out[-1] = Link(link.rank, link.bucket, out[-1].start_ns, out[-1].ns + link.ns, name)
        else:
            out.append(link)
            longest = link.ns
    return out
