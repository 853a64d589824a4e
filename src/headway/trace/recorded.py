"""What a profiler failed to record: work that was launched and is not in the trace, graphs that were replayed with few of their kernels.

Idle time is what no recorded work covers, so lost work turns into idle time that never was. Where much is lost, idle time is withheld.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.health import Health
from headway.trace.host import step_rows
from headway.trace.sweep import Ints, covered, union
from headway.trace.table import DEVICE_WORK, Kind, Table

MOST_LOST: Final = 0.01  # share of launches without work, from which idle time is withheld
FEW: Final = 0.5  # of the kernels of its siblings, below which a replay is under-recorded
_DARK_SHARE, _DARK_NS = 0.5, 200_000  # of the time that a host waits for a replay: not covered by any recorded work
_LAUNCH: Final = re.compile(r"^(cuda|hip|cu|xpu|ur)\w*Launch\w*Kernel|^(cuda|cu)LaunchCooperative", re.IGNORECASE)
_GRAPH: Final = re.compile(r"^(cuda|hip|cu)GraphLaunch")
_WAITS: Final = re.compile(r"^(cuda|hip|cu)\w*(Stream|Device|Event|Ctx)Synchronize")


def of_launches(table: Table) -> list[Health]:
    """Launches whose kernel is missing: before the first that has one, after the last, and between."""
    calls = _named(table, _LAUNCH)
    calls = calls[table.correlation[calls] > 0]
    calls = calls[~_captured(table, calls)]
    work = table.rows(*DEVICE_WORK)
    seen = np.isin(table.correlation[calls], table.correlation[work])
    if seen.all() or not seen.any():  # all: nothing is lost; none: ids are missing, which is said of the work
        return []
    known = np.flatnonzero(seen)
    place = np.arange(len(calls))
    before, after = place < known[0], place > known[-1]
    late = "first launches without their kernels: the device was recorded later than the host"
    early = "last launches without their kernels: the recording of the device ended before them"
    lost = (
        ("dropped_first_kernels", before, "the first step", late),
        ("truncated_last_step", after, "the last step", early),
        ("lost_kernels", ~seen & ~before & ~after, "the steps", "launches without their kernels: work that ran is not recorded"),
    )
    much = (~seen).sum() > MOST_LOST * len(calls)
    return [
        Health(
            what=what,
            count=int(rows.sum()),
            affects=f"compute and idle time of {where}",
            text=f"{text} ({rows.sum() / len(calls):.1%} of {len(calls):,})",
            withholds=("idle",) if much else (),
        )
        for what, rows, where, text in lost
        if rows.any()
    ]


def of_graphs(table: Table) -> list[Health]:
    """Graphs launched as a whole: how many, and how many of them were recorded with few of their kernels or none."""
    graphs = _named(table, _GRAPH)
    if not len(graphs):
        return []
    text = "graphs are launched as a whole: their kernels share one launch"
    out = [Health(what="graph_launches", count=len(graphs), affects="launches of single kernels", text=text)]
    work = table.rows(*DEVICE_WORK)
    count = _kernels_of(table, graphs, work)
    poor = (count == 0) | (count < FEW * _siblings(table, graphs, count)) | _dark(table, graphs, work)
    if poor.any():
        text = (
            f"{int(poor.sum())} of {len(graphs)} graph replays were recorded with few of their kernels or none: "
            "the device worked while the trace shows it idle"
        )
        out.append(
            Health(what="graph_under_recorded", count=int(poor.sum()), affects="compute and idle time", text=text, withholds=("idle",))
        )
    return out


def _named(table: Table, pattern: re.Pattern[str]) -> Ints:
    rows = table.rows(Kind.RUNTIME)
    return rows[table.named(pattern.match)[rows]]


def _captured(table: Table, calls: Ints) -> NDArray[np.bool_]:
    """Whether each call was made while its thread captured a graph: it is recorded in the graph, and runs nothing."""
    begins, ends = (_named(table, re.compile(rf"^(cuda|hip)Stream{word}Capture")) for word in ("Begin", "End"))
    inside = np.zeros(len(calls), bool)
    for track in set(table.track[begins].tolist()):
        opened, closed = (np.sort(table.start[rows[table.track[rows] == track]]) for rows in (begins, ends))
        mine = table.track[calls] == track
        time = table.start[calls[mine]]
        inside[mine] = np.searchsorted(opened, time) > np.searchsorted(closed, time)
    return inside


def _kernels_of(table: Table, graphs: Ints, work: Ints) -> Ints:
    """Number of spans of the device that carry the id of each graph launch."""
    ids = np.sort(table.correlation[work])
    wanted = table.correlation[graphs]
    found = np.searchsorted(ids, wanted, side="right") - np.searchsorted(ids, wanted, side="left")
    return np.where(wanted > 0, found, 0)


def _siblings(table: Table, graphs: Ints, count: Ints) -> NDArray[np.float64]:
    """What a replay usually has: the median of the replays at the same place of their steps, if all steps have as many; else nothing."""
    ends = table.end[step_rows(table)]
    step = np.searchsorted(ends, table.start[graphs], side="right")
    per_step = np.bincount(step)
    per_step = per_step[per_step > 0]
    if len(per_step) < 3 or (per_step != per_step[0]).any():
        return np.zeros(len(graphs))
    return np.tile(np.median(count.reshape(len(per_step), -1), axis=0), len(per_step))


def _dark(table: Table, graphs: Ints, work: Ints) -> NDArray[np.bool_]:
    """Whether the host, having launched a graph, waited for the device while next to nothing is recorded on it."""
    waits = _named(table, _WAITS)
    if not len(waits):
        return np.zeros(len(graphs), bool)
    index = np.searchsorted(table.start[waits], table.end[graphs])
    following = np.append(table.start[graphs][1:], np.iinfo(np.int64).max)
    wait = waits[np.minimum(index, len(waits) - 1)]
    waited = (index < len(waits)) & (table.start[wait] < following)
    begin, end = table.start[wait], table.end[wait]
    busy = covered(union(table.start[work], table.end[work]), np.concatenate((begin, end)))
    dark = end - begin - (busy[len(graphs) :] - busy[: len(graphs)])
    return waited & (dark > _DARK_NS) & (dark > _DARK_SHARE * (end - table.start[graphs]))
