"""Nodes and candidate edges of one device, in its own numbers: the host, launches, streams, order between streams, collectives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.event import PHASES
from headway.trace.classify import LEVEL
from headway.trace.ranks.match import Seat
from headway.trace.replay.script import NUM_CAUSES, SLACK_NS, Script
from headway.trace.replay.spent import Spent
from headway.trace.sweep import EMPTY, Ints, Steps, distinct
from headway.trace.work import NUM_CLASSES, Work

NONE: Final = -1  # no node; the meeting m is the node NONE - 1 - m
NEAR_NS: Final = 20_000  # work that begins so soon after work of another stream has ended is taken to have waited for it
_BACK: Final = 16


Ints32 = NDArray[np.int32]
Codes = NDArray[np.int8]


class Role(IntEnum):
    """What a node is, as far as overlap goes. Weights may be gathered before the compute that is issued before them has ended, and nothing
    but the optimizer needs a reduced gradient; any other collective stands between its producer and its user.
    """

    OTHER = 0
    UPDATE = 1  # the optimizer's work
    COMM = 2
    GATHER = 3
    GRADIENT = 4


class Kind(IntEnum):
    """What an edge is."""

    HOST = 0  # the host, from one of its nodes to the next
    LAUNCH = 1
    STREAM = 2
    ORDER = 3  # another stream
    AWAIT = 4  # the host waits for the device
    ARRIVE = 5  # a rank arrives at a collective
    MOVE = 6  # all have arrived


@dataclass(frozen=True, kw_only=True)
class Loose:
    """One device: its nodes, the order of their time, and edges whose weights are not fitted yet.

    Thousands of devices lie side by side: numbers of nodes and rows are int32, codes int8, times int64.
    """

    row: Ints32
    own: Ints
    measured: Ints
    blocked: Codes
    role: Codes
    order: Ints32
    arrives: Ints32  # the meeting that a node arrives at, -1 none
    needs: Ints32  # the meeting that a node needs
    node: Ints32
    source: Ints32
    kind: Codes
    weight: Ints
    cost: Spent
    last: Ints  # node of the end of each row of work
    step: Ints  # step that each row of work was launched in, -1 none
    hosts: Ints


class _Many:
    """Edges being collected."""

    def __init__(self) -> None:
        self.parts: list[tuple[Ints32, Ints32, Codes, Ints]] = []
        self.costs: list[Spent] = []

    def add(self, kind: Kind, node: Ints, source: Ints, weight: Ints | int = 0, cost: Ints | None = None) -> None:
        n = len(node)
        full = np.broadcast_to(np.asarray(weight, np.int64), n)
        self.parts.append((node.astype(np.int32), source.astype(np.int32), np.full(n, int(kind), np.int8), full))
        self.costs.append(Spent(EMPTY, EMPTY, EMPTY) if cost is None else Spent.of_rows(cost))

    def done(self) -> tuple[Ints32, Ints32, Codes, Ints, Spent]:
        node, source, kind, weight = (np.concatenate(x) for x in zip(*self.parts, strict=True))
        return node, source, kind, weight, Spent.joined(self.costs, [len(p[0]) for p in self.parts])


def loose(seat: Seat, script: Script, meets: Ints, arrived: Ints) -> Loose:
    """The nodes and candidate edges of one device; node 0 is the begin of the first step."""
    work, windows = seat.work, seat.windows
    n, origin = len(work), int(windows.edges[0])
    matched = np.flatnonzero(meets >= 0)
    when = arrived[matched]
    hosts = len(script.block_start) + len(windows.ends)
    begin, end, probe = _host_nodes(script, windows.ends)
    # nodes: origin, ends of work, begins of matched collectives, host
    ends, begins, host = 1 + np.arange(n), 1 + n + np.arange(len(matched)), 1 + n + len(matched) + np.arange(hosts)
    row = np.concatenate(([-1], np.arange(n), matched, np.full(hosts, -1, np.int64)))
    on = script.block_on[np.maximum(probe, 0)] if len(script.block_on) else np.zeros(hosts, np.int64)
    waits = probe >= 0
    held = np.where(waits, np.maximum(begin, work.end[on] if n else 0), end)
    own = np.concatenate(([origin], work.end - work.start, np.zeros(len(matched), np.int64), np.maximum(end - held, 0)))
    own[ends[matched]] = np.maximum(work.end[matched] - np.maximum(when, work.start[matched]), 0)
    measured = np.concatenate(([origin], work.end, work.start[matched], end))
    blocked = np.full(len(row), -1, np.int8)
    if len(script.block_on):
        blocked[host[waits]] = script.block_cause[probe[waits]]
    roles = _roles(work, script)
    role = np.concatenate(([Role.OTHER], roles, roles[matched], np.full(hosts, Role.OTHER))).astype(np.int8)
    entry = ends.copy()
    entry[matched] = begins
    many = _Many()
    chain = _chain(many, script, work, origin, ends, host, begin, end)
    if len(script.block_on):
        many.add(Kind.AWAIT, host[waits], ends[on[waits]])
    _launches(many, script, work, origin, entry, chain)
    _streams(many, script, work, entry, ends)
    _ordered(many, script, work, entry, ends)
    many.add(Kind.STREAM, ends[matched], begins)
    many.add(Kind.MOVE, ends[matched], NONE - 1 - meets[matched], when)
    many.add(Kind.ARRIVE, NONE - 1 - meets[matched], begins, -when)
    node, source, kind, weight, cost = many.done()
    # what ends at one moment: work in order of its begin, begins of collectives, the host, which may have waited for any of them
    time = np.concatenate(([origin], work.end, work.start[matched], np.maximum(end, held)))
    time[ends[matched]] = np.maximum(work.end[matched], work.start[matched] + 1)
    since = np.concatenate(([origin], work.start, work.start[matched], begin))
    later = np.concatenate(([0], np.zeros(n, np.int64), np.ones(len(matched), np.int64), np.full(hosts, 2)))
    order = np.lexsort((np.arange(len(row)), since, later, time))
    order = np.concatenate(([0], order[order != 0]))
    arrives, needs = np.full(len(row), -1, np.int32), np.full(len(row), -1, np.int32)
    arrives[begins], needs[ends[matched]] = meets[matched], meets[matched]
    return Loose(
        row=row.astype(np.int32), own=own, measured=measured, blocked=blocked, role=role, order=order.astype(np.int32),
        arrives=arrives, needs=needs,
        node=node, source=source, kind=kind, weight=weight, cost=cost,
        last=ends, step=np.where(work.linked, windows.of_launch(work, origin), -1) if n else meets,
        hosts=np.concatenate(([0], host[~waits])),
    )  # fmt: skip


_MODEL_AXES: Final = ("tp", "pp", "cp", "ep", "tensor", "pipe", "context", "expert", "sequence", "ulysses", "ring")
_AFTER_FORWARD: Final = [PHASES.index(p) for p in ("backward", "reduce", "clip", "optimizer", "other")]


def _roles(work: Work, script: Script) -> Ints:
    """The role of each row of work, from the kind and axis of a collective and the phase in which it was launched."""
    updates = (script.phase == PHASES.index("optimizer")) | (work.level == LEVEL["optimizer"])
    role = np.where((work.comm_of < 0) & updates, Role.UPDATE, Role.OTHER).astype(np.int64)
    data = np.array([not any(a in c.axis for a in _MODEL_AXES) for c in work.comm], bool)
    gathers = np.array([c.name in ("all_gather", "broadcast") for c in work.comm], bool)
    reduces = np.array([c.name in ("all_reduce", "reduce_scatter", "reduce") for c in work.comm], bool)
    mine = np.flatnonzero(work.comm_of >= 0)
    if len(mine):
        comm = work.comm_of[mine]
        late = np.isin(script.phase[mine], _AFTER_FORWARD)
        kind = np.where(data[comm] & gathers[comm], Role.GATHER, np.where(data[comm] & reduces[comm] & late, Role.GRADIENT, Role.COMM))
        role[mine] = kind
    return role


def _host_nodes(script: Script, marks: Ints) -> tuple[Ints, Ints, Ints]:
    """(begin, end, block or -1) of the host's nodes in order of their ends: blocks, and the ends of its steps."""
    begin, end = np.concatenate((script.block_start, marks)), np.concatenate((script.block_end, marks))
    block = np.concatenate((np.arange(len(script.block_start)), np.full(len(marks), -1, np.int64)))
    order = np.lexsort((block < 0, end))
    return begin[order], end[order], block[order]


@dataclass(frozen=True)
class _Chain:
    """The host's nodes in order of their ends, the origin first; and what the host had spent by cause at any moment."""

    node: Ints
    end: Ints
    cause: Steps

    def before(self, time: Ints) -> Ints:
        """Index of the last of the host's nodes that had ended at each time (the origin before all)."""
        return np.maximum(np.searchsorted(self.end, time, side="right") - 1, 0)

    def spent(self, time: Ints) -> Ints:
        """[times, causes]: nanoseconds by cause from the first edge on."""
        edges, values = self.cause.edges, self.cause.values
        length = np.diff(edges, append=edges[-1:])
        total = np.zeros((len(edges) + 1, NUM_CAUSES), np.int64)
        np.add.at(total, (np.arange(len(edges)) + 1, values), length)
        total = np.cumsum(total, axis=0)
        index = np.maximum(np.searchsorted(edges, time, side="right") - 1, 0)
        out = total[index]
        out[np.arange(len(time)), values[index]] += np.maximum(time - edges[index], 0)
        return out


def _chain(many: _Many, script: Script, work: Work, origin: int, ends: Ints, host: Ints, begin: Ints, end: Ints) -> _Chain:
    """The host from node to node. Operators of a CPU are nodes of it."""
    busy = np.flatnonzero(script.on_host & (work.start >= origin))
    node = np.concatenate((ends[busy], host))
    begins, stops = np.concatenate((work.start[busy], begin)), np.concatenate((work.end[busy], end))
    inside = stops >= origin
    node, begins, stops = node[inside], begins[inside], stops[inside]
    order = np.lexsort((begins, stops))
    node, begins, stops = np.append(0, node[order]), np.append(origin, begins[order]), np.append(origin, stops[order])
    chain = _Chain(node, stops, script.cause)
    cost = np.maximum(chain.spent(np.maximum(begins[1:], stops[:-1])) - chain.spent(stops[:-1]), 0)
    many.add(Kind.HOST, node[1:], node[:-1], 0, cost)
    return chain


def _launches(many: _Many, script: Script, work: Work, origin: int, entry: Ints, chain: _Chain) -> None:
    """From the host to what it launches, for the least time that a launch took; work from before the first step stays where it was."""
    ours = np.flatnonzero(work.linked & ~script.on_host & (work.launched >= origin))
    took = (work.start - work.launched)[ours]
    least = int(np.quantile(took[took >= 0], 0.01)) if (took >= 0).any() else 0
    before = chain.before(work.launched[ours])
    cost = np.maximum(chain.spent(work.launched[ours]) - chain.spent(chain.end[before]), 0)
    many.add(Kind.LAUNCH, entry[ours], chain.node[before], least if work.device != "cpu" else 0, cost)
    rest = np.flatnonzero(~(work.linked & (work.launched >= origin)) | (script.on_host & (work.start < origin)))
    early = work.start[rest] < origin
    many.add(Kind.HOST, entry[rest], np.zeros(len(rest), np.int64), np.where(early, work.start[rest] - origin, 0))


def _streams(many: _Many, script: Script, work: Work, entry: Ints, ends: Ints) -> None:
    """From each row to the next of its stream; and past collectives, from one row of compute to the next."""
    for rows in (np.flatnonzero(~script.on_host), np.flatnonzero(~script.on_host & (work.comm_of < 0))):
        order = rows[np.lexsort((work.start[rows], script.stream[rows]))]
        same = script.stream[order[1:]] == script.stream[order[:-1]]
        many.add(Kind.STREAM, entry[order[1:][same]], ends[order[:-1][same]])


def _ordered(many: _Many, script: Script, work: Work, entry: Ints, ends: Ints) -> None:
    """Between streams: what a call orders, else what was seen.

    After a call that makes a stream wait, the next work that its thread launches depends on the last work of every other stream that was
    launched before the call and had ended when it began. In a trace without such calls a collective depends on the compute launched
    before it. Work that began just after work of another stream had ended waited for it.
    """
    device = np.flatnonzero(~script.on_host)
    if not len(device):
        return
    by_launch = device[np.argsort(work.launched[device], kind="stable")]
    if len(script.order_time):
        for track in distinct(script.order_track).tolist():
            mine = by_launch[work.track[by_launch] == track]
            calls = script.order_time[script.order_track == track]
            at = np.searchsorted(work.launched[mine], calls, side="left")
            first, calls = mine[at[at < len(mine)]], calls[at < len(mine)]
            for stream in distinct(script.stream[device]).tolist():
                other = by_launch[(script.stream[by_launch] == stream)]
                apart = script.stream[first] != stream
                _last_ended(many, work, entry, ends, first[apart], calls[apart], other)
    else:
        comm = device[work.comm_of[device] >= 0]
        _last_ended(many, work, entry, ends, comm, work.launched[comm], by_launch[work.level[by_launch] < NUM_CLASSES])
    by_end = device[np.argsort(work.end[device], kind="stable")]
    at = np.searchsorted(work.end[by_end], work.start[device], side="right") - 1
    for _ in range(_BACK):
        same = (at >= 0) & (script.stream[by_end[np.maximum(at, 0)]] == script.stream[device])
        if not same.any():
            break
        at = at - same
    near = by_end[np.maximum(at, 0)]
    seen = (at >= 0) & (work.start[device] - work.end[near] <= NEAR_NS) & (script.stream[near] != script.stream[device])
    seen &= work.end[near] > work.launched[device]  # else it had not even been launched when the other ended
    many.add(Kind.ORDER, entry[device[seen]], ends[near[seen]])


def _last_ended(many: _Many, work: Work, entry: Ints, ends: Ints, rows: Ints, before: Ints, other: Ints) -> None:
    """From the last of `other` (in order of launch) that was launched before each time and had ended when each row began."""
    if not len(other) or not len(rows):
        return
    at = np.searchsorted(work.launched[other], before, side="left") - 1
    for _ in range(_BACK):
        late = (at >= 0) & (work.end[other[np.maximum(at, 0)]] > work.start[rows] + SLACK_NS)
        if not late.any():
            break
        at = at - late
    good = (at >= 0) & (work.end[other[np.maximum(at, 0)]] <= work.start[rows] + SLACK_NS)
    many.add(Kind.ORDER, entry[rows[good]], ends[other[at[good]]])
