"""`StepBreakdown` of each step of one device: every nanosecond of a window in exactly one bucket, one phase,
one module and one compiled graph.

The pieces of `trace.pieces` are added up by each of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import StepBreakdown
from headway.spec.event import PHASES
from headway.trace.host import Host
from headway.trace.pieces import Pieces, modules_of
from headway.trace.ranks.bandwidth import of_windows
from headway.trace.sweep import Ints, covered, union
from headway.trace.windows import Windows
from headway.trace.work import NUM_CLASSES, Work


def attribute(work: Work, windows: Windows, host: Host, pieces: Pieces) -> tuple[StepBreakdown, ...]:
    """The breakdown of every window of one device. Every partition is checked to sum to the wall time."""
    phase = host.phase(pieces.track, pieces.when)
    modules, module = modules_of(pieces, host)
    num = len(windows.steps)
    by_bucket = _table(pieces, pieces.bucket, pieces.names, num)
    by_phase = _table(pieces, phase, PHASES, num)
    by_module = _table(pieces, module, modules, num) if host.modules else [{}] * num
    graph = host.graph(pieces.track, pieces.when)
    graphs = (*host.graphs, "none")
    by_graph = _table(pieces, np.where(graph >= 0, graph, len(host.graphs)), graphs, num) if host.graphs else [{}] * num
    hidden_any, hidden = _hidden(work, pieces, num)
    rows = of_windows(work, windows)
    wall = np.diff(windows.edges)
    kernels = work.level < NUM_CLASSES
    place = windows.of_time(work.start)
    num_kernels, unlinked = (np.bincount(place[(place >= 0) & chosen], minlength=num) for chosen in (kernels, ~work.linked))
    concurrency = _concurrency(work.start[kernels], work.end[kernels], windows.edges)
    out = []
    for k in range(num):
        step = StepBreakdown(
            step=windows.steps[k],
            start_ns=int(windows.edges[k]),
            wall_ns=int(wall[k]),
            buckets=by_bucket[k],
            phases=by_phase[k],
            modules=by_module[k],
            graphs=by_graph[k],
            hidden_comm_ns=hidden_any[k],
            hidden_comm_by_axis_ns=hidden[k],
            comm=rows[k],
            concurrency=float(concurrency[k]),
            num_kernels=int(num_kernels[k]),
            unlinked=int(unlinked[k]),
        )
        step.check()
        out.append(step)
    return tuple(out)


def _table(pieces: Pieces, code: Ints, names: tuple[str, ...], num: int) -> list[dict[str, int]]:
    """Nanoseconds by name for each window, in integers."""
    total = np.zeros((num, len(names)), np.int64)
    np.add.at(total, (pieces.window, code), pieces.length)
    return [{names[i]: int(row[i]) for i in np.flatnonzero(row)} or {names[-1]: 0} for row in total]


def _hidden(work: Work, pieces: Pieces, num: int) -> tuple[list[int], list[dict[str, int]]]:
    """Nanoseconds of each window in which any collective, and a collective of each axis, runs under compute."""
    out: list[dict[str, int]] = [{} for _ in range(num)]
    if not work.comm:
        return [0] * num, out
    computes = (pieces.owner >= 0) & (work.level[np.maximum(pieces.owner, 0)] < NUM_CLASSES)
    rows = np.flatnonzero(work.comm_of >= 0)
    axis = np.array([c.axis for c in work.comm])[work.comm_of[rows]]
    under = computes & (pieces.length > 0)
    first, last = pieces.start[under], pieces.start[under] + pieces.length[under]

    def below(mine: Ints) -> Ints:
        spans = union(work.start[mine], work.end[mine])
        total = np.zeros(num, np.int64)
        np.add.at(total, pieces.window[under], covered(spans, last) - covered(spans, first))
        return total

    for name in np.unique(axis).tolist():
        for k, ns in enumerate(below(rows[axis == name]).tolist()):
            if ns:
                out[k][name] = ns
    return below(rows).tolist(), out


def _concurrency(start: Ints, end: Ints, edges: Ints) -> NDArray[np.float64]:
    """Per window: summed time of compute kernels over the time in which at least one runs (0 if none does)."""
    origin = edges[0]
    at = edges - origin
    total = np.diff(_elapsed(np.sort(start - origin), at) - _elapsed(np.sort(end - origin), at))
    busy = np.diff(covered(union(start, end), edges))
    return np.divide(total, busy, out=np.zeros(len(busy)), where=busy > 0)


def _elapsed(moments: Ints, time: Ints) -> Ints:
    """sum_i max(0, t - moment_i) for each t; moments sorted."""
    before = np.concatenate(([0], np.cumsum(moments)))
    index = np.searchsorted(moments, time, side="right")
    return time * index - before[index]
