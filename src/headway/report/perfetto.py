"""A trace that ui.perfetto.dev and chrome://tracing open: every device's steps, buckets, phases, modules and work as tracks.

It is written beside the program's own trace, with the same clock, so both can be opened together.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from headway.report import output
from headway.spec.event import PHASES
from headway.trace.sweep import Ints
from headway.trace.timeline import Timeline

TRACKS: Final = ("step", "bucket", "phase", "module", "work")
_PID: Final = 9_000_000  # far from the process ids of a program


def write_perfetto(path: str | os.PathLike[str], timelines: Sequence[Timeline]) -> int:
    """Write the trace (.json, or .json.gz) at once or not at all; returns the number of events. Raises RunError if it cannot be written."""
    opened = gzip.open if Path(path).suffix == ".gz" else open
    count = 0
    with output.replaced(path, "trace") as part, opened(part, "wt", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        for count, line in enumerate(events(timelines), 1):
            file.write(f"{',' if count > 1 else ''}{line}\n")
        file.write("]}\n")
    return count


def events(timelines: Sequence[Timeline]) -> Iterator[str]:
    """Events of the Chrome trace format, each as JSON; times are microseconds with three decimals, exact to the nanosecond."""
    for pid, t in enumerate(timelines, _PID):
        yield json.dumps({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": f"headway: rank {t.rank} {t.device}"}})
        for tid, track in enumerate(TRACKS):
            yield json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": track}})
        for k, number in enumerate(t.steps):
            yield _span(pid, 0, json.dumps(f"step {number}"), int(t.edges[k]), int(t.edges[k + 1]))
        for tid, code, names in ((1, t.bucket, t.names), (2, t.phase, PHASES), (3, t.module, t.modules), (4, t.label, t.labels)):
            quoted = [json.dumps(name or "?") for name in names]
            for start, end, value in _runs(t, code):
                if value >= 0:
                    yield _span(pid, tid, quoted[value], start, end)


def _runs(t: Timeline, code: Ints) -> Iterator[tuple[int, int, int]]:
    """(begin, end, code) of neighbouring pieces with one code, cut at the edges of steps."""
    if not len(code):
        return
    window = np.searchsorted(t.edges, t.start, side="right")
    begins = np.flatnonzero(np.append(True, (code[1:] != code[:-1]) | (window[1:] != window[:-1])))
    ends = t.end[np.append(begins[1:], len(code)) - 1]
    yield from zip(t.start[begins].tolist(), ends.tolist(), code[begins].tolist(), strict=True)


def _span(pid: int, tid: int, quoted: str, start: int, end: int) -> str:
    return f'{{"ph":"X","pid":{pid},"tid":{tid},"name":{quoted},"ts":{_micro(start)},"dur":{_micro(end - start)}}}'


def _micro(ns: int) -> str:
    """Nanoseconds as microseconds, without a float: 1234567 -> 1234.567."""
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:03d}"
