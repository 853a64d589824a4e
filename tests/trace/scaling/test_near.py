from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from headway.spec.scaling import Point
from headway.trace.scaling.ladder import ladders
from headway.trace.scaling.near import NEAR, near, per_device
from tests.trace.scaling.test_ladder import point


def searched(points: Sequence[Point]) -> list[list[str]]:
    """The plain way: of all ranges the one with most sizes, of these the narrowest, the first; then what is left of it and right of it."""
    batches = sorted({per_device(p) for p in points})
    ranges = [(low, high) for low in batches for high in batches if low <= high <= NEAR * low]
    inside = {r: [p for p in points if r[0] <= per_device(p) <= r[1]] for r in ranges}
    best = min(ranges, key=lambda r: (-len({p.size for p in inside[r]}), r[1] / r[0], r[0]), default=None)
    if best is None or len({p.size for p in inside[best]}) < 2:
        return []
    left, right = [p for p in points if per_device(p) < best[0]], [p for p in points if per_device(p) > best[1]]
    return [sorted(p.source for p in inside[best]), *searched(left), *searched(right)]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 60)), max_size=30))
def test_clusters_are_those_that_a_search_of_all_finds(drawn: list[tuple[int, int]]) -> None:
    points = [replace(point(size, per * size / 8.0), source=str(i)) for i, (size, per) in enumerate(drawn)]
    assert sorted(searched(points)) == sorted(sorted(p.source for p in c) for c in near(points))


def test_equal_batches_are_not_mixed_with_nearly_equal_ones() -> None:
    clusters = near([point(n, float(per * n)) for n in (8, 16, 32) for per in (16, 18, 20)])
    assert [[per_device(p) for p in c] for c in clusters] == [[16.0] * 3, [18.0] * 3, [20.0] * 3]


def test_time_grows_with_the_rows_and_not_with_their_square() -> None:
    def seconds(num: int) -> float:
        one = [point(1 << (i % 8), float((1 << (i % 8)) * (1 + i // 8)), 1.0 + i % 3) for i in range(num)]
        many = [point(8 << (i % 2), 32 << (i % 2), 1.0, tp=str(i // 2)) for i in range(num)]
        start = perf_counter()
        near(one)
        ladders(many)
        return perf_counter() - start

    few = max(seconds(2_000), seconds(2_000))
    assert seconds(32_000) < 60 * few, "16 times the rows: their square would be 256 times the time"
