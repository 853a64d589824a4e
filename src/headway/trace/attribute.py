"""`StepBreakdown` of each step of one device: every nanosecond of a window in exactly one bucket, one phase and one module.

The pieces of `trace.pieces` are added up by bucket, phase and module.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import StepBreakdown
from headway.spec.event import PHASES
from headway.trace.host import Host
from headway.trace.pieces import Pieces, buckets, cut
from headway.trace.ranks.wait import Arrivals
from headway.trace.sweep import Ints, covered, union
from headway.trace.windows import Windows
from headway.trace.work import NUM_CLASSES, Work


def attribute(work: Work, windows: Windows, host: Host, arrivals: Arrivals) -> tuple[StepBreakdown, ...]:
    """The breakdown of every window of one device. Every partition is checked to sum to the wall time."""
    pieces = cut(work, windows, host, arrivals)
    names, bucket = buckets(work, host, arrivals, pieces)
    phase = host.phase(pieces.track, pieces.when)
    module = host.module(pieces.track, pieces.when)
    modules = (*host.modules, "other")
    num = len(windows.steps)
    by_bucket = _table(pieces, bucket, names, num)
    by_phase = _table(pieces, phase, PHASES, num)
    by_module = _table(pieces, np.where(module >= 0, module, len(host.modules)), modules, num) if host.modules else [{}] * num
    hidden_any, hidden = _hidden(work, pieces, num)
    rows = _collectives(work, windows)
    wall = np.diff(windows.edges)
    kernels = work.level < NUM_CLASSES
    place = windows.of_time(work.start)
    concurrency = _concurrency(work.start[kernels], work.end[kernels], windows.edges)
    out = []
    for k in range(num):
        here = place == k
        step = StepBreakdown(
            step=windows.steps[k],
            start_ns=int(windows.edges[k]),
            wall_ns=int(wall[k]),
            buckets=by_bucket[k],
            phases=by_phase[k],
            modules=by_module[k],
            hidden_comm_ns=hidden_any[k],
            hidden_comm_by_axis_ns=hidden[k],
            comm=rows[k],
            concurrency=float(concurrency[k]),
            num_kernels=int((here & kernels).sum()),
            unlinked=int((here & ~work.linked).sum()),
        )
        step.check()
        out.append(step)
    return tuple(out)


def _table(pieces: Pieces, code: Ints, names: list[str] | tuple[str, ...], num: int) -> list[dict[str, int]]:
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
    axis = np.array([work.comm[c].axis for c in work.comm_of[rows].tolist()])
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


# Bytes that cross each link for one byte of message in a group of n (NCCL tests, "bus bandwidth").
def _bus(name: str, n: int) -> float:
    share = (n - 1) / n
    return {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share, "all_to_all": share}.get(name, 1.0)


def _collectives(work: Work, windows: Windows) -> list[tuple[Mapping[str, object], ...]]:
    """Per window and (collective, axis): how many start in it, their bytes, their time and their bus bandwidth."""
    out: list[tuple[Mapping[str, object], ...]] = [() for _ in windows.steps]
    rows = np.flatnonzero(work.comm_of >= 0)
    if not len(rows):
        return out
    place = windows.of_time(work.start[rows])
    kinds = [(work.comm[c].name, work.comm[c].axis) for c in work.comm_of[rows].tolist()]
    for k in np.unique(place[place >= 0]).tolist():
        here = np.flatnonzero(place == k).tolist()
        lines = []
        for kind in sorted({kinds[i] for i in here}):
            mine = [i for i in here if kinds[i] == kind]
            comms = [work.comm[work.comm_of[rows[i]]] for i in mine]
            start, end = union(work.start[rows[mine]], work.end[rows[mine]])
            busy = int((end - start).sum())
            known = [c.bytes for c in comms if c.bytes is not None]
            size = sum(known) if len(known) == len(comms) else None
            members = len(comms[0].ranks)
            bus = _bus(kind[0], members) if members > 1 else None
            rate = size * bus / (busy / 1e9) if size is not None and bus is not None and busy else None
            lines.append({"collective": kind[0], "axis": kind[1], "count": len(mine), "bytes": size, "busy_ns": busy, "bus_bytes_s": rate})
        out[k] = tuple(lines)
    return out


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
