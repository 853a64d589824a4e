"""What makes a number of a trace doubtful, said before the numbers; durations that cannot be are refused.

A stream runs one thing at a time. A span that covers two or more later spans of its stream, that is longer than everything else in the
file, or that runs into the next one after many times the median of its name, is a counter that overflowed: its end is unknown, so it
counts up to the next span of its stream and no further. Ends of device spans make no bound but by a median: a wrong one cannot raise it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import IDLE_CAUSES, Health
from headway.trace.host import step_rows
from headway.trace.recorded import of_graphs, of_launches
from headway.trace.sweep import Ints, measure, union
from headway.trace.table import DEVICE_WORK, HOST, Kind, Table
from headway.trace.work import Work

SLOWED = 1.25  # profiled steps over the median step of the run, from which it is said
_COVERS = 2  # later spans of its stream that an impossible span covers
_TIMES, _LEAST_NS, _FEWEST = 50, 1_000_000, 3  # times the median of its name, if it is longer than this and the name has as many spans
_MOST_UNLINKED, _MOST_EARLY = 0.5, 0.1  # shares from which causes of idle time, read off launches, are withheld
_MOST_REFUSED = 0.01  # of a trace that refused parts of spans may cover before idle time is withheld


def refuse_impossible(table: Table) -> Table:
    """`table` with impossible device spans cut short, and a line of health for them."""
    rows = table.rows(*DEVICE_WORK)
    if not len(rows):
        return table
    first, last = _known(table, rows)
    extent = last - first
    longest = 2 * extent + 1_000_000 if len(table.rows(*HOST)) else int(np.iinfo(np.int64).max)
    length = table.end - table.start
    usual = _usual(table, rows)
    end = table.end.copy()
    wrong = 0
    unknown: list[Ints] = []  # begins and ends of what is refused
    for mine in _streams(table, rows[length[rows] > 0]):  # an empty span may stand at the begin of the one that followed it
        start, stop = table.start[mine], table.end[mine]
        later = np.searchsorted(start, stop, side="left") - np.arange(len(mine)) - 1
        overlaps = np.append(stop[:-1] > start[1:], False)
        odd = overlaps & (length[mine] > _LEAST_NS) & (length[mine] > _TIMES * usual[mine])
        bad = (length[mine] > longest) | (overlaps & (later >= _COVERS)) | odd
        following = np.append(start[1:], start[-1:])
        cut = bad & (following < stop)
        end[mine[cut]] = following[cut]
        wrong += int(cut.sum())
        unknown += [following[cut], stop[cut]]
    if not wrong:
        return table
    text = "durations that cannot be (they run over later work of the same stream) are refused; such work counts up to the next span"
    much = _measure(table, rows, unknown) > _MOST_REFUSED * extent
    withholds = ("idle",) if much else ()  # under a refused span nothing says whether its device worked
    note = Health(what="impossible_duration", count=wrong, affects="compute and idle of its step", text=text, withholds=withholds)
    return replace(table, end=end, health=(*table.health, note))


def _known(table: Table, rows: Ints) -> tuple[int, int]:
    """The first and the last moment of what is known without the ends of device spans."""
    host = table.rows(*HOST)
    moments = np.concatenate((table.start[host], table.end[host], table.start[rows]))
    return int(moments.min()), int(moments.max())


def _measure(table: Table, rows: Ints, refused: list[Ints]) -> int:
    """Nanoseconds that refused parts of spans cover, as far as the trace goes."""
    begin, end = (np.clip(np.concatenate(part), *_known(table, rows)) for part in (refused[::2], refused[1::2]))
    return measure(union(begin, end))


def _usual(table: Table, rows: Ints) -> NDArray[np.float64]:
    """For each row of the table, the median length of the device spans of its name; infinite where there are few."""
    out = np.full(len(table), np.inf)
    length, name = (table.end - table.start)[rows], table.name[rows]
    order = np.lexsort((length, name))
    first = np.flatnonzero(np.append(True, np.diff(name[order]) != 0))
    count = np.diff(np.append(first, len(order)))
    middle = length[order][first + (count - 1) // 2].astype(float)
    middle[count < _FEWEST] = np.inf
    out[rows[order]] = np.repeat(middle, count)
    return out


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
    out += of_launches(table)
    out += of_graphs(table)
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
    causes = tuple(f"idle.{c}" for c in IDLE_CAUSES)
    unlinked = int((~work.linked).sum())
    if unlinked:
        much = unlinked > _MOST_UNLINKED * len(work)
        text = f"spans of {work.device} without a known launch, of {len(work):,}; they count in the window they start in"
        note = Health(what="unlinked", count=unlinked, affects="windows, idle causes, phases", text=text, withholds=causes if much else ())
        out.append(note)
    early = int((work.linked & (work.start < work.launched)).sum())
    if early:
        much = early > _MOST_EARLY * max(int(work.linked.sum()), 1)
        text = f"spans of {work.device} start before their launch call: host and device clocks differ"
        note = Health(what="before_launch", count=early, affects="idle causes", text=text, withholds=("idle.launch",) if much else ())
        out.append(note)
    return out


def of_steps(summary: Mapping[str, Any]) -> list[Health]:
    """What is doubtful about the profiled steps of a run: a profiler that slows them down."""
    whole, profiled = summary.get("step_ns"), summary.get("profiled_step_ns")
    if not whole or not profiled or summary["num_profiled"] == summary["num_steps"] or profiled["median"] < SLOWED * whole["median"]:
        return []
    ratio = profiled["median"] / whole["median"]
    text = f"profiled steps took {ratio:.1f} times as long as the run's median step: trust their shares more than their milliseconds"
    return [Health(what="slowed_by_profiler", count=1, affects="milliseconds of buckets and findings", text=text)]
