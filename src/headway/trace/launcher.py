"""Which host operator launched each row of device work: the innermost one that was open on its thread at that moment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.trace.sweep import Ints, classes, depth, distinct
from headway.trace.table import Kind, Table
from headway.trace.work import Work


@dataclass(frozen=True)
class Launchers:
    """Per row of work a code into `names`; -1: unknown."""

    code: Ints
    names: tuple[str, ...]


def launchers(table: Table, work: Work) -> Launchers:
    """The operator of each row of `work`; on a CPU the row is the operator itself."""
    if work.device == "cpu":
        return Launchers(np.where(work.comm_of < 0, work.name, -1), work.names)
    owner = np.full(len(work), -1, np.int64)
    rows = table.rows(Kind.OPERATOR)
    for track in distinct(work.track[work.linked]).tolist():
        mine = rows[table.track[rows] == track]
        at = np.flatnonzero(work.linked & (work.track == track))
        owner[at] = _open(table, mine[table.end[mine] > table.start[mine]], work.launched[at])
    known = owner >= 0
    codes, code = classes(table.name[owner[known]])
    out = np.full(len(work), -1, np.int64)
    out[known] = code
    return Launchers(out, tuple(table.names[i] for i in codes[:, 0].tolist()))


def _open(table: Table, rows: Ints, time: Ints) -> Ints:
    """The innermost of `rows` (of one thread) that is open at each time; -1 if none is.

    The last to start is the innermost unless it has ended; then the one around it is looked at, a level of nesting at a time.
    """
    if not len(rows):
        return np.full(len(time), -1, np.int64)
    start, end = table.start[rows], table.end[rows]
    order = np.lexsort((-end, start))  # the outer of two that start together first
    rows, start, end = rows[order], start[order], end[order]
    level = depth(start, end)
    at = np.searchsorted(start, time, side="right") - 1
    over = (at >= 0) & (end[np.maximum(at, 0)] <= time)
    for d in range(int(level.max()), 0, -1):
        here = np.flatnonzero(over & (level[np.maximum(at, 0)] == d))
        if not len(here):
            continue
        around = np.flatnonzero(level == d - 1)
        at[here] = around[np.searchsorted(around, at[here]) - 1]
        over[here] = end[at[here]] <= time[here]
    return np.where((at >= 0) & ~over, rows[np.maximum(at, 0)], -1)
