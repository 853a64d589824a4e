"""Several measurements of one size as one point: every part of it is their mean, so that the parts add up as those of each do."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headway.spec.scaling import Point
from headway.stats.difference import apportion

_EACH: Final = 3  # sizes whose repeats get a note of their own; more share one


def as_of(p: Point, batch: float | None, factor: float) -> Point:
    """`p` as of another batch: its time and its buckets in proportion (`factor`), rounded so that buckets add up to their sum."""
    if factor == 1.0:
        return replace(p, batch=batch)
    names = sorted(p.buckets)
    over, under = factor.as_integer_ratio()
    buckets = dict(zip(names, apportion([p.buckets[n] * over for n in names], under), strict=True))
    return replace(p, batch=batch, time=p.time * factor, buckets=buckets)


def mean(points: Sequence[Point]) -> Point:
    """The arithmetic mean of measurements of one size; what only some of them tell is the mean of those.

    `error` is known where it is for all: that of the mean of their own, or how far the measurements lie apart, whichever is larger.
    """
    if len(points) == 1:
        return points[0]
    time = statistics.fmean(p.time for p in points)
    split = [p.buckets for p in points if p.buckets]
    names = sorted({name for b in split for name in b})
    error, num_steps = _error(points, time)
    shares = [p.mfu for p in points if p.mfu is not None]
    return replace(
        points[0],
        time=time,
        error=error,
        num_steps=num_steps,
        mfu=statistics.fmean(shares) if shares else None,
        buckets=dict(zip(names, apportion([sum(b.get(n, 0) for b in split) for n in names], len(split)), strict=True)) if names else {},
        micro_batch=" or ".join(dict.fromkeys(p.micro_batch for p in points if p.micro_batch)),
    )


def notes(sizes: Sequence[tuple[int, Sequence[float]]]) -> list[str]:
    """How many measurements each size has and how far their `times` lie apart; nothing of sizes that have one."""
    several = [(size, len(times), max(times) / min(times) - 1) for size, times in sizes if len(times) > 1]
    if len(several) <= _EACH:
        return [f"{size}: mean of {num} measurements that differ by {spread:.1%}" for size, num, spread in several]
    fewest, most = min(n for _, n, _ in several), max(n for _, n, _ in several)
    size, _, spread = max(several, key=lambda s: s[2])
    num = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return [f"{len(several)} sizes are means of {num} measurements each, which differ by up to {spread:.1%} (at {size})"]


def _error(points: Sequence[Point], time: float) -> tuple[float | None, int | None]:
    """(relative standard error of the mean, number of values that it stands on)."""
    errors = [p.error * p.time for p in points if p.error is not None]
    if len(errors) < len(points):
        return None, points[0].num_steps
    inside = math.hypot(*errors) / len(points)
    between = statistics.stdev(p.time for p in points) / math.sqrt(len(points))
    steps = sum(p.num_steps or 0 for p in points)
    return (between / time, len(points)) if between > inside else (inside / time, steps)
