"""What each host thread was doing at any moment: its phase, its module, its compiled graph, and why its device would be idle.

Each of them is a step function of time per thread, made once from the rows that say something; the rest is lookups.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headway.spec.event import COMM_PREFIX, PHASES
from headway.trace import marks
from headway.trace.modules import graphs, modules
from headway.trace.sweep import NEVER, Ints, Steps, distinct, paint
from headway.trace.table import DEVICE_WORK, HOST, Kind, Table
from headway.trace.tracks import by_track, looked_up

CAUSE_OF_PHASE = np.array([marks.CAUSE_CODE.get(p, -1) if p in marks.FROM_PHASE else -1 for p in PHASES], np.int64)
OUTER_PHASES = [marks.PHASE_CODE[p] for p in ("encode", "checkpoint", "evaluate", "ema")]  # whatever is called within belongs to them
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
    graphs: tuple[str, ...] = ()  # names of graph codes; empty if nothing was compiled
    graph_of: dict[int, Steps] = field(default_factory=dict)

    def phase(self, track: Ints, time: Ints) -> Ints:
        """Phase code at each (track, time): the thread's own, else that of the training thread, else other."""
        own = looked_up(self.phase_of, track, time)
        main = self.phase_of.get(self.training, NEVER).at(time)
        return np.where(own >= 0, own, np.where(main >= 0, main, marks.OTHER_PHASE))

    def module(self, track: Ints, time: Ints) -> Ints:
        """Module code at each (track, time); -1 for none."""
        return looked_up(self.module_of, track, time)

    def graph(self, track: Ints, time: Ints) -> Ints:
        """Code of the compiled graph at each (track, time); -1 for none."""
        return looked_up(self.graph_of, track, time)

    def cause(self, track: Ints, time: Ints) -> Ints:
        """Why a device that waits for each (track, time) is idle."""
        if self.training < 0:
            return np.full(len(time), UNKNOWN, np.int64)
        forced = CAUSE_OF_PHASE[self.phase(track, time)]
        own = looked_up(self.cause_of, track, time)
        return np.where(forced >= 0, forced, np.where(own >= 0, own, LAUNCH))

    def edges(self) -> Ints:
        """Every moment at which one of the step functions changes."""
        parts = [s.edges for table in (self.phase_of, self.module_of, self.cause_of, self.graph_of) for s in table.values()]
        return distinct(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def hosts(table: Table) -> Host:
    """The step functions of every host thread of `table`."""
    rows = table.rows(*HOST)
    if not len(rows):
        return Host(training=-1, modules=())
    training = training_track(table)
    names, module_of = modules(table)
    graph_names, graph_of = graphs(table)
    return Host(
        training=training,
        modules=names,
        phase_of=_phases(table, training),
        module_of=module_of,
        graphs=graph_names,
        graph_of=graph_of,
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
        return by_track(table, np.flatnonzero(on_host & (own >= 0)), own)
    code = table.coded(marks.foreign_phase)
    recorded = (table.kind == Kind.OPERATOR) & (table.sequence >= 0) & (table.forward <= 0) & (code < 0)
    whole = np.isin(code, OUTER_PHASES)
    marked = by_track(table, np.flatnonzero(on_host & (code >= 0)), code)
    outer = by_track(table, np.flatnonzero(on_host & whole), code)
    marked = {t: _over(outer.get(t, NEVER), steps) for t, steps in marked.items()}
    under = by_track(table, np.flatnonzero(recorded), np.full(len(table), marks.PHASE_CODE["forward"], np.int64))
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


def comm_axes(table: Table) -> tuple[tuple[str, ...], dict[int, Steps]]:
    """Names of axes from marks of ours (headway::comm::AXIS), and which one is open on each thread."""
    names = tuple(sorted({marks.axis(n) for n in table.names if n.startswith(COMM_PREFIX)}))
    code = table.coded(lambda n: names.index(marks.axis(n)) if n.startswith(COMM_PREFIX) else -1)
    return names, by_track(table, np.flatnonzero(table.of(*HOST) & (code >= 0)), code)
