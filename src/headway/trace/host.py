"""What each host thread was doing at any moment: its phase, its module, and why its device would be idle.

Each of the three is a step function of time per thread, made once from the rows that say something; the rest is lookups.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headway.spec.event import COMM_PREFIX, PHASES
from headway.trace import marks
from headway.trace.sweep import NEVER, Ints, Steps, distinct, innermost, paint
from headway.trace.table import DEVICE_WORK, HOST, Kind, Table

CAUSE_OF_PHASE = np.array([marks.CAUSE_CODE.get(p, -1) if p in marks.FROM_PHASE else -1 for p in PHASES], np.int64)
LAUNCH, UNKNOWN = marks.CAUSE_CODE["launch"], marks.CAUSE_CODE["unknown"]
_CAUSE_ORDER = ("sync", "allocator", "compile", "gc", "collective")  # several at once on a thread: the first of these


@dataclass(frozen=True, kw_only=True)
class Host:
    """The host threads of one trace. `training` is the track that runs the steps; -1 if the trace has no host rows."""

    training: int
    modules: tuple[str, ...]  # names of module codes; empty if the trace knows no modules
    phase_of: dict[int, Steps] = field(default_factory=dict)
    module_of: dict[int, Steps] = field(default_factory=dict)
    cause_of: dict[int, Steps] = field(default_factory=dict)

    def phase(self, track: Ints, time: Ints) -> Ints:
        """Phase code at each (track, time): the thread's own, else that of the training thread, else other."""
        own = _at(self.phase_of, track, time)
        main = self.phase_of.get(self.training, NEVER).at(time)
        return np.where(own >= 0, own, np.where(main >= 0, main, marks.OTHER_PHASE))

    def module(self, track: Ints, time: Ints) -> Ints:
        """Module code at each (track, time); -1 for none."""
        return _at(self.module_of, track, time)

    def cause(self, track: Ints, time: Ints) -> Ints:
        """Why a device that waits for each (track, time) is idle."""
        if self.training < 0:
            return np.full(len(time), UNKNOWN, np.int64)
        forced = CAUSE_OF_PHASE[self.phase(track, time)]
        own = _at(self.cause_of, track, time)
        return np.where(forced >= 0, forced, np.where(own >= 0, own, LAUNCH))

    def edges(self) -> Ints:
        """Every moment at which one of the step functions changes."""
        parts = [s.edges for table in (self.phase_of, self.module_of, self.cause_of) for s in table.values()]
        return distinct(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def _at(table: dict[int, Steps], track: Ints, time: Ints) -> Ints:
    out = np.full(len(time), -1, np.int64)
    for key, steps in table.items():
        rows = track == key
        if rows.any():
            out[rows] = steps.at(time[rows])
    return out


def hosts(table: Table) -> Host:
    """The step functions of every host thread of `table`."""
    rows = table.rows(*HOST)
    if not len(rows):
        return Host(training=-1, modules=())
    training = training_track(table)
    names, module_of = _modules(table)
    return Host(
        training=training,
        modules=names,
        phase_of=_phases(table, training),
        module_of=module_of,
        cause_of=_causes(table, training),
    )


def training_track(table: Table) -> int:
    """The thread with the step marks; without any, the one with most rows of operators and calls; -1 without host rows."""
    host = table.rows(*HOST)
    marked = step_rows(table)
    rows = marked if len(marked) else table.rows(Kind.OPERATOR, Kind.RUNTIME)
    rows = rows if len(rows) else host
    return int(np.bincount(table.track[rows]).argmax()) if len(rows) else -1


def step_rows(table: Table) -> Ints:
    """Rows of step marks on the host, in order of start, of the thread that has most of them."""
    rows = np.flatnonzero((table.kind == Kind.MARK) & (table.coded(marks.step) >= 0))
    if len(rows):
        rows = rows[table.track[rows] == np.bincount(table.track[rows]).argmax()]
    return rows


def _phases(table: Table, training: int) -> dict[int, Steps]:
    """Marks of ours where the trace has any, else what others write; under those, operators that autograd recorded are forward."""
    own = table.coded(marks.own_phase)
    on_host = table.of(*HOST)
    if (on_host & (own >= 0)).any():
        return _by_track(table, np.flatnonzero(on_host & (own >= 0)), own)
    code = table.coded(marks.foreign_phase)
    recorded = (table.kind == Kind.OPERATOR) & (table.sequence >= 0) & (table.forward <= 0) & (code < 0)
    marked = _by_track(table, np.flatnonzero(on_host & (code >= 0)), code)
    under = _by_track(table, np.flatnonzero(recorded), np.full(len(table), marks.PHASE_CODE["forward"], np.int64))
    both = {t: _over(marked.get(t, NEVER), under.get(t, NEVER)) for t in marked.keys() | under.keys()}
    return {t: _bridged(steps, both.get(training, NEVER)) for t, steps in sorted(both.items())}


def _over(top: Steps, bottom: Steps) -> Steps:
    """`top` where it has a value, else `bottom`."""
    edges = distinct(np.concatenate((top.edges, bottom.edges)))
    upper = top.at(edges)
    return Steps(edges, np.where(upper >= 0, upper, bottom.at(edges)))


def _bridged(steps: Steps, main: Steps) -> Steps:
    """Plain Python between two forward operators is forward (and so for backward), unless the training thread changes phase there."""
    edges, values = steps.edges, steps.values.copy()
    gap = np.flatnonzero(values[1:-1] < 0) + 1
    before, after = values[gap - 1], values[gap + 1]
    inner = np.searchsorted(main.edges, edges[gap + 1], side="left") - np.searchsorted(main.edges, edges[gap], side="right")
    bridge = np.isin(before, (marks.PHASE_CODE["forward"], marks.PHASE_CODE["backward"])) & (before == after) & (inner <= 0)
    values[gap[bridge]] = before[bridge]
    return Steps(edges, values)


def _modules(table: Table) -> tuple[tuple[str, ...], dict[int, Steps]]:
    """Module marks; and nodes of the backward pass under the module whose forward operator has their sequence number."""
    paths = [marks.module(n) for n in table.names]
    names = tuple(sorted({p for p in paths if p}))
    if not names:
        return (), {}
    code_of = {p: i for i, p in enumerate(names)}
    code = np.array([code_of.get(p, -1) for p in paths], np.int64)[table.name]
    host = table.of(*HOST)
    forward = _by_track(table, np.flatnonzero(host & (code >= 0)), code)
    nodes = np.flatnonzero(host & table.named(marks.is_backward) & (table.sequence >= 0) & (code < 0))
    if len(nodes):
        code[nodes] = _forward_module(table, nodes, forward)
        return names, _by_track(table, np.flatnonzero(host & (code >= 0)), code)
    return names, forward


def _forward_module(table: Table, nodes: Ints, forward: dict[int, Steps]) -> Ints:
    """Module of the last forward operator that carries the sequence number of each backward node; -1 if there is none."""
    made = np.flatnonzero((table.kind == Kind.OPERATOR) & (table.sequence >= 0) & (table.forward <= 0))
    made = made[~table.named(marks.is_backward)[made]]
    if not len(made):
        return np.full(len(nodes), -1, np.int64)
    made = made[np.argsort(table.sequence[made], kind="stable")]  # rows are in order of start, so the last of a number is last
    index = np.searchsorted(table.sequence[made], table.sequence[nodes], side="right") - 1
    row = made[np.maximum(index, 0)]
    found = (index >= 0) & (table.sequence[row] == table.sequence[nodes])
    return np.where(found, _at(forward, table.track[row], table.start[row]), -1)


def _causes(table: Table, training: int) -> dict[int, Steps]:
    """Rows that block a thread, by thread; a wait drawn on a device with no host row counts for every thread that launches."""
    code = table.coded(marks.cause)
    if len(table.rows(*DEVICE_WORK)):
        code = np.where(table.named(lambda n: marks.READS_DEVICE.match(n)), marks.CAUSE_CODE["sync"], code)
    order = {marks.CAUSE_CODE[name]: i for i, name in enumerate(_CAUSE_ORDER)}
    level = np.array([order.get(i, len(order)) for i in range(len(marks.CAUSE_CODE))], np.int64)[code]
    rows = np.flatnonzero(table.of(*HOST) & (code >= 0))
    waits = table.rows(Kind.SYNC)
    if len(waits):
        waits = waits[(code[waits] >= 0) & ~np.isin(table.correlation[waits], table.correlation[table.rows(Kind.RUNTIME)])]
    threads = set(distinct(table.track[rows]).tolist())
    if len(waits):
        threads |= {training} | set(distinct(table.track[table.rows(Kind.RUNTIME)]).tolist())
    out = {}
    for thread in sorted(threads):
        mine = np.concatenate((rows[table.track[rows] == thread], waits))
        owner = paint(table.start[mine], table.end[mine], level[mine])
        out[thread] = Steps(owner.edges, np.where(owner.values >= 0, code[mine[np.maximum(owner.values, 0)]], -1))
    return out


def _by_track(table: Table, rows: Ints, code: Ints) -> dict[int, Steps]:
    """For each track, the code of its innermost row among `rows`."""
    tracks = table.track[rows]
    return {int(t): innermost(table.start[mine], table.end[mine], code[mine]) for t in distinct(tracks) for mine in (rows[tracks == t],)}


def comm_axes(table: Table) -> tuple[tuple[str, ...], dict[int, Steps]]:
    """Names of axes from marks of ours (headway::comm::AXIS), and which one is open on each thread."""
    names = tuple(sorted({marks.axis(n) for n in table.names if n.startswith(COMM_PREFIX)}))
    code = table.coded(lambda n: names.index(marks.axis(n)) if n.startswith(COMM_PREFIX) else -1)
    return names, _by_track(table, np.flatnonzero(table.of(*HOST) & (code >= 0)), code)
