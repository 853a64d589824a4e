"""Step functions of time, one a track: what was innermost on each thread, and what it was at given moments."""

from __future__ import annotations

import numpy as np

from headway.trace.sweep import NEVER, Ints, Steps, distinct, innermost
from headway.trace.table import Table


def by_track(table: Table, rows: Ints, code: Ints) -> dict[int, Steps]:
    """For each track, the code of its innermost row among `rows`."""
    tracks = table.track[rows]
    return {int(t): innermost(table.start[mine], table.end[mine], code[mine]) for t in distinct(tracks) for mine in (rows[tracks == t],)}


def looked_up(steps_of: dict[int, Steps], track: Ints, time: Ints) -> Ints:
    """The value at each (track, time); -1 where a track has none."""
    out = np.full(len(time), -1, np.int64)
    for key in distinct(track).tolist():
        rows = track == key
        out[rows] = steps_of.get(key, NEVER).at(time[rows])
    return out
