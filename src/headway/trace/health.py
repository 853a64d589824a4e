"""What makes a number of a trace doubtful, said before the numbers; durations that cannot be are refused.

A stream runs one thing at a time. A span that covers two or more later spans of its stream, or that is longer than everything else in
the file, is a counter that overflowed: its end is unknown, so it counts up to the next span of its stream and no further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headway.spec.breakdown import Health
from headway.trace.host import step_rows
from headway.trace.sweep import Ints
from headway.trace.table import DEVICE_WORK, HOST, Kind, Table
from headway.trace.work import Work

SLOWED = 1.25  # profiled steps over the median step of the run, from which it is said
_COVERS = 2  # later spans of its stream that an impossible span covers


def refuse_impossible(table: Table) -> Table:
    """`table` with impossible device spans cut short, and a line of health for them."""
    rows = table.rows(*DEVICE_WORK)
    end = table.end.copy()
    wrong = 0
    host = table.rows(*HOST)
    for mine in _streams(table, rows):
        start, stop = table.start[mine], table.end[mine]
        later = np.searchsorted(start, stop, side="left") - np.arange(len(mine)) - 1
        bad = later >= _COVERS
        bad[:-1] &= stop[:-1] > start[1:]
        if len(host):
            first, last = table.start[host].min(), table.end[host].max()
            bad |= stop - start > 2 * (max(last, start.max()) - min(first, start.min())) + 1_000_000
        following = np.append(start[1:], start[-1:])
        cut = bad & (following < stop)
        end[mine[cut]] = following[cut]
        wrong += int(cut.sum())
    if not wrong:
        return table
    text = "durations that cannot be (they run over later work of the same stream) are refused; such work counts up to the next span"
    note = Health(what="impossible_duration", count=wrong, affects="compute and idle of its step", text=text)
    return replace(table, end=end, health=(*table.health, note))


def _streams(table: Table, rows: Ints) -> list[Ints]:
    if not len(rows):
        return []
    key = table.device[rows] * (1 + int(table.stream[rows].max())) + table.stream[rows]
    order = np.argsort(key, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(key[order])) + 1)


def of_table(table: Table) -> list[Health]:
    """What is doubtful about a whole file."""
    out = list(table.health)
    device = table.rows(*DEVICE_WORK)
    if not len(step_rows(table)):
        text = "no step marks (ProfilerStep#N): the whole trace is one window, step 0; call profiler.step() in the loop"
        out.append(Health(what="no_step_marks", count=1, affects="steps", text=text))
    if not len(table.rows(*HOST)):
        text = "no host rows: idle time has no cause"
        out.append(Health(what="no_host_rows", count=1, affects="idle causes, phases", text=text))
    if not len(device) and len(table.rows(Kind.RUNTIME)):
        text = "calls to an accelerator but no work of it recorded; operators of the host are shown as if they were the device"
        out.append(Health(what="no_device_rows", count=1, affects="buckets", text=text))
    graphs = int(table.named(lambda n: n in ("cudaGraphLaunch", "hipGraphLaunch"))[table.rows(Kind.RUNTIME)].sum())
    if graphs:
        text = "graphs are launched as a whole: their kernels share one launch, and a profiler may not record all of them"
        out.append(Health(what="graph_launches", count=graphs, affects="launches, idle time", text=text))
    overlap = sum(_overlaps(table, mine) for mine in _streams(table, device))
    if overlap:
        text = "work overlaps earlier work of its own stream; time is counted once"
        out.append(Health(what="same_stream_overlap", count=overlap, affects="durations of single kernels", text=text))
    return out


def _overlaps(table: Table, mine: Ints) -> int:
    mine = mine[table.end[mine] > table.start[mine]]
    return int((table.start[mine][1:] < np.maximum.accumulate(table.end[mine])[:-1]).sum()) if len(mine) > 1 else 0


def of_work(work: Work) -> list[Health]:
    """What is doubtful about the launches of one device."""
    out = []
    unlinked = int((~work.linked).sum())
    if unlinked:
        text = f"spans of {work.device} without a known launch, of {len(work):,}; they count in the window they start in"
        out.append(Health(what="unlinked", count=unlinked, affects="windows, idle causes, phases", text=text))
    early = int((work.linked & (work.start < work.launched)).sum())
    if early:
        text = f"spans of {work.device} start before their launch call: host and device clocks differ"
        out.append(Health(what="before_launch", count=early, affects="idle causes", text=text))
    return out


def of_steps(summary: Mapping[str, Any]) -> list[Health]:
    """What is doubtful about the profiled steps of a run: a profiler that slows them down."""
    whole, profiled = summary.get("step_ns"), summary.get("profiled_step_ns")
    if not whole or not profiled or summary["num_profiled"] == summary["num_steps"] or profiled["median"] < SLOWED * whole["median"]:
        return []
    ratio = profiled["median"] / whole["median"]
    text = f"profiled steps took {ratio:.1f} times as long as the run's median step: trust their shares more than their milliseconds"
    return [Health(what="slowed_by_profiler", count=1, affects="milliseconds of buckets and findings", text=text)]
