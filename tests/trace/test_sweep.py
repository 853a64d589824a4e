"""Intervals against a count of every nanosecond, which shares no code with them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headway.trace import sweep

LIMIT = 60
spans = st.lists(st.tuples(st.integers(0, LIMIT), st.integers(0, 25)).map(lambda p: (p[0], p[0] + p[1])), max_size=14)


def arrays(rows: list[tuple[int, int]]) -> sweep.Spans:
    return np.array([a for a, _ in rows], np.int64), np.array([b for _, b in rows], np.int64)


def ticks(rows: list[tuple[int, int]]) -> set[int]:
    return {t for a, b in rows for t in range(a, b)}


def held(found: sweep.Spans) -> set[int]:
    """The ticks of a disjoint set; fails if it is not sorted, or if two of its intervals touch."""
    start, end = found
    assert (end > start).all() and (start[1:] > end[:-1]).all()
    return ticks(list(zip(start.tolist(), end.tolist(), strict=True)))


@given(spans)
def test_union(a: list[tuple[int, int]]) -> None:
    union = sweep.union(*arrays(a))
    assert held(union) == ticks(a)
    assert sweep.measure(union) == len(ticks(a))


@given(spans, st.lists(st.integers(-5, 100), min_size=1, max_size=6))
def test_covered(a: list[tuple[int, int]], times: list[int]) -> None:
    time = np.array(times, np.int64)
    union = sweep.union(*arrays(a))
    assert sweep.covered(union, time).tolist() == [sum(x < t for x in ticks(a)) for t in times]
    assert sweep.inside(union, time).tolist() == [t in ticks(a) for t in times]


@given(spans, st.data())
def test_paint(a: list[tuple[int, int]], data: st.DataObject) -> None:
    """The owner of a tick: lowest level, then earliest start, then first in the list."""
    level = [data.draw(st.integers(0, 3)) for _ in a]
    start, end = arrays(a)
    owner = sweep.paint(start, end, np.array(level, np.int64))
    assert (np.diff(owner.edges) > 0).all()
    time = np.arange(-1, 100)
    for t, found in zip(time.tolist(), owner.at(time).tolist(), strict=True):
        open_rows = [(level[i], a[i][0], i) for i in range(len(a)) if a[i][0] <= t < a[i][1]]
        assert found == (min(open_rows)[2] if open_rows else -1)


nested = st.recursive(st.just([]), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=8)


@given(nested)
def test_innermost(tree: list[object]) -> None:
    """On properly nested intervals the innermost is the last that opened; depth is the number of parents."""
    rows: list[tuple[int, int, int]] = []  # start, end, depth
    clock = 0

    def walk(node: list[object], depth: int) -> None:
        nonlocal clock
        begin, place = clock, len(rows)
        rows.append((begin, 0, depth))
        clock += 1
        for child in node:
            walk(child, depth + 1)  # type: ignore[arg-type]
            clock += 1
        clock += 1
        rows[place] = (begin, clock, depth)

    walk(tree, 0)
    start, end = arrays([(a, b) for a, b, _ in rows])
    assert sweep.depth(start, end).tolist() == [d for _, _, d in rows]
    steps = sweep.innermost(start, end, np.arange(len(rows)))
    for t in range(clock + 1):
        open_rows = [i for i, (a, b, _) in enumerate(rows) if a <= t < b]
        assert steps.at(np.array([t]))[0] == (max(open_rows, key=lambda i: rows[i][2]) if open_rows else -1)


def test_nothing() -> None:
    none = sweep.EMPTY
    assert sweep.union(none, none)[0].size == 0
    assert sweep.covered((none, none), np.array([3])).tolist() == [0]
    assert sweep.paint(none, none, none).at(np.array([1])).tolist() == [-1]
    zero = np.array([5])
    assert sweep.paint(zero, zero, np.array([0])) is sweep.NEVER
