"""Paired A/B measurement: which of two things is slower, on a machine that is never quiet.

A and B run in turn, close in time, so that what drifts (clocks, heat, neighbours) meets both alike and cancels in the ratio of a pair.
Which of the two goes first alternates, so that an effect of being first or second cancels too:

    pair      0     1     2     3
    alternate A B | B A | A B | B A

Nothing measured is dropped. Compare CPU time where the machine is shared; wall time where waiting counts.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headway.stats.intervals import Floats, Interval, geometric_mean_interval, median_interval, ratio_of_means

Clock = Callable[[], int]  # now, in nanoseconds
Order = Literal["alternate", "random"]


def cpu_ns() -> int:
    """CPU time of this process, all its threads, user and system."""
    return time.process_time_ns()


def wall_ns() -> int:
    """Wall time."""
    return time.perf_counter_ns()


def children_cpu_ns() -> int:
    """CPU time of all descendants that have ended and been waited for, to the microsecond."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * 1e9)


@dataclass(frozen=True, kw_only=True)
class Paired:
    """What `run_paired` measured: times of A and B [n] in nanoseconds, pair by pair; b_first [n]: whether B ran first."""

    a_ns: NDArray[np.int64]
    b_ns: NDArray[np.int64]
    b_first: NDArray[np.bool_]

    @property
    def ratios(self) -> Floats:
        """B / A of each pair."""
        return np.asarray(self.b_ns / self.a_ns, dtype=np.float64)

    def mean(self, *, confidence: float = 0.95) -> Interval:
        """Geometric mean of the ratios B / A with its t interval: the figure to report."""
        return geometric_mean_interval(self.ratios, confidence=confidence)

    def median(self, *, confidence: float = 0.95) -> Interval:
        """Median of the ratios B / A by order statistics: when single runs are far off."""
        return median_interval(self.ratios, confidence=confidence)

    def total(self, *, confidence: float = 0.95, seed: int = 0) -> Interval:
        """Ratio of the total times of B and A, by a bootstrap of the pairs."""
        return ratio_of_means(self.a_ns, self.b_ns, seed=seed, confidence=confidence)

    def second_over_first(self, *, confidence: float = 0.95) -> Interval:
        """How much slower the second run of a pair is than the first, whichever it is: near 1, or the pairs disturb each other."""
        swapped = np.where(self.b_first, self.a_ns / self.b_ns, self.b_ns / self.a_ns)
        return geometric_mean_interval(swapped, confidence=confidence)


def run_paired(
    a: Callable[[], object],
    b: Callable[[], object],
    *,
    repeats: int,
    warmup: int = 1,
    clock: Clock = cpu_ns,
    order: Order = "alternate",
    seed: int = 0,
) -> Paired:
    """Times `a()` and `b()` in `repeats` pairs after `warmup` pairs that are not kept.

    Raises ValueError if a run takes no time by `clock` (make each run do more work); what a() or b() raise goes through.
    """
    if repeats < 2:
        raise ValueError(f"an interval needs at least 2 pairs, got repeats = {repeats}")
    first = b_goes_first(repeats, order=order, seed=seed)
    for _ in range(warmup):
        a()
        b()
    times = np.empty((repeats, 2), dtype=np.int64)
    for row, swap in zip(times, first, strict=True):
        for which in (1, 0) if swap else (0, 1):
            row[which] = _timed((a, b)[which], clock)
    if not (times > 0).all():
        pair, which = np.argwhere(times <= 0)[0]
        raise ValueError(f"run {'AB'[which]} of pair {pair} took no time by the clock: make each run do more work")
    return Paired(a_ns=times[:, 0], b_ns=times[:, 1], b_first=first)


def b_goes_first(repeats: int, *, order: Order = "alternate", seed: int = 0) -> NDArray[np.bool_]:
    """Whether B goes first, for each pair. Of every two pairs one starts with A and one with B.

    alternate: ABBA ABBA ...; random: which of the two pairs comes first is drawn by (seed, number of the block), against rhythms
    of the machine that happen to have the same period.
    """
    blocks = np.arange(repeats) // 2
    odd = np.arange(repeats) % 2 == 1
    if order == "alternate":
        return np.asarray(odd, dtype=np.bool_)
    flips = np.array([blake2b(f"{seed}:{k}".encode(), digest_size=1).digest()[0] & 1 for k in range(-(-repeats // 2))], dtype=np.bool_)
    return np.asarray(odd ^ flips[blocks], dtype=np.bool_)


def _timed(run: Callable[[], object], clock: Clock) -> int:
    start = clock()
    run()
    return clock() - start
