"""Intervals on one time line: union, cover, depth, paint. Everything of the trace room stands on these.

An interval is [start, end) in integer nanoseconds; a set of intervals is two int64 arrays (start, end). "Disjoint" means sorted and
not overlapping. Intervals of zero or negative length cover nothing. Nothing here loops over events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Spans: TypeAlias = tuple[Ints, Ints]

EMPTY: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Steps:
    """A step function of time: `values[i]` on [edges[i], edges[i+1]), and -1 before the first edge.

    `edges` rise strictly; the last value holds for ever, so a function that ends ends with -1.
    """

    edges: Ints
    values: Ints

    def at(self, time: Ints) -> Ints:
        """Value at each `time`."""
        if not len(self.edges):
            return np.full(len(time), -1, np.int64)
        index = np.searchsorted(self.edges, time, side="right") - 1
        return np.where(index >= 0, self.values[np.maximum(index, 0)], -1)


NEVER = Steps(EMPTY, EMPTY)


def distinct(values: Ints) -> Ints:
    """The different values, in order. numpy.unique hashes first, which takes ten times as long on moments."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def classes(*codes: Ints) -> tuple[Ints, Ints]:
    """(the different rows of several columns of small numbers from -1 upwards, (num, columns) in order; class of each row).

    One number a row, c_0 + n_0 (c_1 + n_1 (...)), sorted as one column: numpy.unique of rows compares them as records, far slower.
    """
    key = np.zeros(len(codes[0]), np.int64)
    for column in codes:
        key = key * (int(column.max(initial=-1)) + 2) + column + 1
    order = np.argsort(key, kind="stable")
    first = np.ones(len(key), bool)
    first[1:] = key[order[1:]] != key[order[:-1]]
    of_row = np.empty(len(key), np.int64)
    of_row[order] = np.cumsum(first) - 1
    return np.stack([column[order[first]] for column in codes], axis=1), of_row


def union(start: Ints, end: Ints) -> Spans:
    """The disjoint set that covers what any of the intervals covers; those that touch become one."""
    keep = end > start
    start, end = start[keep], end[keep]
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    if not len(start):
        return EMPTY, EMPTY
    reach = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return start[first], reach[last]


def inside(spans: Spans, time: Ints) -> NDArray[np.bool_]:
    """Whether a disjoint set covers each `time`."""
    start, end = spans
    if not len(start):
        return np.zeros(len(time), bool)
    index = np.searchsorted(start, time, side="right") - 1
    return (index >= 0) & (time < end[np.maximum(index, 0)])


def measure(spans: Spans) -> int:
    """Nanoseconds that a disjoint set covers."""
    return int((spans[1] - spans[0]).sum())


def covered(spans: Spans, time: Ints) -> Ints:
    """Nanoseconds before each `time` that a disjoint set covers: sum_i clip(t - start_i, 0, end_i - start_i)."""
    start, end = spans
    if not len(start):
        return np.zeros(len(time), np.int64)
    before = np.concatenate(([0], np.cumsum(end - start)))
    index = np.searchsorted(start, time, side="right")  # intervals that have started
    last = np.maximum(index - 1, 0)
    return np.where(index > 0, before[last] + np.minimum(time, end[last]) - start[last], 0)


def depth(start: Ints, end: Ints) -> Ints:
    """Nesting depth of each interval of one thread: how many earlier ones (longer first) are open when it starts.

    For intervals of positive length: those that end at or before `start_i` all came before i, so depth = place - number closed.
    """
    order = np.lexsort((-end, start))
    closed = np.searchsorted(np.sort(end), start[order], side="right")
    out = np.empty(len(start), np.int64)
    out[order] = np.arange(len(start)) - closed
    return out


def paint(start: Ints, end: Ints, level: Ints) -> Steps:
    """Which interval owns each moment: the lowest level wins, within a level the one that started first; -1 is nobody.

    Within a level sorted by start, row i owns [max(start_i, reach_i), end_i), where reach_i is the furthest end before it: until
    then an earlier one still runs.
    """
    keep = np.flatnonzero(end > start)
    if not len(keep):
        return NEVER
    edges = distinct(np.concatenate((start[keep], end[keep])))
    owner = np.full(len(edges), -1, np.int64)
    for value in distinct(level[keep]):
        rows = keep[level[keep] == value]
        rows = rows[np.argsort(start[rows], kind="stable")]
        reach = np.maximum.accumulate(end[rows])
        begin = np.concatenate((start[rows[:1]], np.maximum(start[rows[1:]], reach[:-1])))
        own = begin < end[rows]
        rows, begin = rows[own], begin[own]
        index = np.searchsorted(begin, edges, side="right") - 1
        row = rows[np.maximum(index, 0)]
        free = (owner < 0) & (index >= 0) & (edges < end[row])
        owner[free] = row[free]
    change = np.concatenate(([True], owner[1:] != owner[:-1]))
    return Steps(edges[change], owner[change])


def innermost(start: Ints, end: Ints, value: Ints) -> Steps:
    """The `value` of the innermost open interval of one thread at each moment."""
    keep = end > start
    start, end, value = start[keep], end[keep], value[keep]
    if not len(start):
        return NEVER
    owner = paint(start, end, -depth(start, end))
    return Steps(owner.edges, np.where(owner.values >= 0, value[np.maximum(owner.values, 0)], -1))
