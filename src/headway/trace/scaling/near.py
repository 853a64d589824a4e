"""Points whose batches per device are equal, or nearly so: the clusters that weak ladders are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from headway.spec.scaling import Point

NEAR: Final = 1.25  # batches per device within this factor are taken as equal, and their times set right in proportion


def per_device(p: Point) -> float:
    """Batch of one device; 0 where no batch is known."""
    return (p.batch or 0.0) / p.size


def near(points: Sequence[Point]) -> list[list[Point]]:
    """Clusters of two sizes or more whose batches per device lie within NEAR, each point in one at most.

    First those with most sizes, the narrowest range of these first; what lies between two clusters is searched by itself. The time is
    that of sorting, for each number of sizes that a cluster can have.
    """
    ordered = sorted(points, key=lambda p: (per_device(p), p.size))
    batches = [per_device(p) for p in ordered]
    sizes = [p.size for p in ordered]
    used = bytearray(len(ordered))
    out, parts = [], [(0, len(ordered))]
    while parts:
        start, end = parts.pop()
        taken = sorted(_disjoint(_windows(batches, sizes, start, end), batches, used))
        out += [ordered[low:high] for low, high in taken]
        if taken:
            parts += zip([start, *(high for _, high in taken)], [*(low for low, _ in taken), end], strict=True)
    return sorted(out, key=lambda c: (-len({p.size for p in c}), per_device(c[0])))


def _windows(batches: Sequence[float], sizes: Sequence[int], start: int, end: int) -> list[tuple[int, int]]:
    """From each batch on the shortest [low, high) with as many sizes as any range within NEAR has; none if that is one."""
    most = max((num for _, _, num in _slide(batches, sizes, start, end, 0)), default=0)
    return [(low, high) for low, high, num in _slide(batches, sizes, start, end, most) if num == most] if most > 1 else []


def _slide(batches: Sequence[float], sizes: Sequence[int], start: int, end: int, enough: int) -> list[tuple[int, int, int]]:
    """(low, high, number of sizes) of the range within NEAR from each batch on, no longer than `enough` sizes take (0: all of it)."""
    out = []
    inside: Counter[int] = Counter()
    high = low = start
    while low < end:
        while high < end and batches[high] <= NEAR * batches[low] and not (enough and len(inside) >= enough):
            high = _put(inside, batches, sizes, high, end, 1)
        out.append((low, high, len(inside)))
        low = _put(inside, batches, sizes, low, end, -1)
    return out


def _put(inside: Counter[int], batches: Sequence[float], sizes: Sequence[int], at: int, end: int, num: int) -> int:
    """Count all points of one batch in (1) or out (-1); where the next batch begins."""
    batch = batches[at]
    while at < end and batches[at] == batch:
        inside[sizes[at]] += num
        if not inside[sizes[at]]:
            del inside[sizes[at]]
        at += 1
    return at


def _disjoint(windows: Sequence[tuple[int, int]], batches: Sequence[float], used: bytearray) -> list[tuple[int, int]]:
    """The narrowest windows that do not overlap, marked in `used`. One that holds another ends where that does, so its ends tell all."""
    taken: list[tuple[int, int]] = []
    for low, high in sorted(windows, key=lambda w: (batches[w[1] - 1] / batches[w[0]], w[0])):
        if not used[low] and not used[high - 1]:
            used[low:high] = b"\1" * (high - low)
            taken.append((low, high))
    return taken
