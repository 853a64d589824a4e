"""The difference of two means whose samples are not paired: two runs, each with a spread of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headway.stats.intervals import Interval, as_samples, tail_of
from headway.stats.noise import effective_size
from headway.stats.student import t_critical

MANY = 20  # samples from which their memory can be estimated


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Mean, deviation between samples, and number of independent samples (not whole where samples follow each other in time)."""

    mean: float
    deviation: float
    n: float

    def half_width(self, confidence: float) -> float | None:
        """Half of the t interval of the mean; None for one sample."""
        return t_critical(tail_of(confidence), self.n - 1) * self.deviation / math.sqrt(self.n) if self.n > 1 else None


def moments(samples: ArrayLike) -> Moments:
    """Those of a series [n]; from 20 samples on it counts for as many as its memory leaves (`noise.effective_size`)."""
    x = as_samples(samples)
    deviation = float(x.std(ddof=1)) if x.size > 1 else 0.0
    return Moments(mean=float(x.mean()), deviation=deviation, n=effective_size(x) if x.size >= MANY else float(x.size))


def mean_difference(a: Moments, b: Moments, *, confidence: float = 0.99) -> Interval | None:
    """mean(B) - mean(A) with Welch's interval (1947); None if neither side has a spread (one sample each).

    A side with one sample is given the spread of the other: d +- t_(n-1) s sqrt(1/n_a + 1/n_b).
    """
    sides = [s for s in (a, b) if s.n > 1]
    if not sides:
        return None
    variance = [s.deviation**2 / s.n for s in sides]
    if len(sides) == 2:
        total = sum(variance)
        weights = sum(v * v / (s.n - 1) for v, s in zip(variance, sides, strict=True))
        dof = total * total / weights if weights > 0 else a.n + b.n - 2  # Welch and Satterthwaite
    else:
        total, dof = sides[0].deviation ** 2 * (1 / a.n + 1 / b.n), sides[0].n - 1
    half = t_critical(tail_of(confidence), max(dof, 1.0)) * math.sqrt(total) if total > 0 else 0.0
    middle = b.mean - a.mean
    return Interval(estimate=middle, low=middle - half, high=middle + half, confidence=confidence, n=int(min(a.n, b.n)), method="Welch")


def samples_needed(a: Moments, b: Moments, *, confidence: float = 0.99, most: int = 1_000_000) -> int | None:
    """Samples of each side from which the interval of this difference, if it is the true one, leaves 0 out; None if no number up to `most`.

    The smallest n with t_(2n-2) sqrt((s_a^2 + s_b^2) / n) < |d|.
    """
    spread, gap = a.deviation**2 + b.deviation**2, abs(b.mean - a.mean)
    if gap == 0 or spread == 0:
        return None

    def tells(n: int) -> bool:
        return t_critical(tail_of(confidence), 2 * n - 2) * math.sqrt(spread / n) < gap

    if not tells(most):
        return None
    low, high = 1, most  # tells(high), not tells(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tells(middle) else (middle, high)
    return high


def apportion(parts: ArrayLike, num: int) -> list[int]:
    """Whole sums [k] divided by `num`, rounded so that they add up to their rounded total: the largest remainders are rounded up.

    Sums are integers and stay exact: no float holds them.
    """
    sums = [int(v) for v in np.asarray(parts, dtype=object).ravel()]
    if num < 1:
        raise ValueError(f"sums are divided by a number of at least 1, got {num}")
    out = [s // num for s in sums]
    missing = (2 * sum(sums) + num) // (2 * num) - sum(out)  # the total rounded half up
    for i in sorted(range(len(sums)), key=lambda i: (-(sums[i] % num), i))[:missing]:
        out[i] += 1
    return out
