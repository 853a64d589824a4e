"""Intervals: an estimate, and how far the truth may be from it.

Every function takes independent samples. For samples that follow each other in time see `noise.mean_interval_in_time`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headway.stats.student import t_critical

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]  # [resamples, n, ...] -> [resamples]: reduces the samples of each row
_CHUNK = 1 << 22  # numbers resampled at a time: 32 MB


@dataclass(frozen=True, kw_only=True)
class Interval:
    """`low` <= truth <= `high` in a share `confidence` of all experiments like this one, with `n` samples."""

    estimate: float
    low: float
    high: float
    confidence: float
    n: int
    method: str

    @property
    def half_width(self) -> float:
        """Half of high - low."""
        return (self.high - self.low) / 2

    def contains(self, value: float) -> bool:
        """Whether `value` is inside, ends included."""
        return self.low <= value <= self.high

    def scaled(self, factor: float) -> Interval:
        """The interval of `factor` times the quantity, factor >= 0 (a change of units)."""
        if not factor >= 0:
            raise ValueError(f"an interval is scaled by a factor of at least 0, got {factor}")
        return Interval(
            estimate=self.estimate * factor,
            low=self.low * factor,
            high=self.high * factor,
            confidence=self.confidence,
            n=self.n,
            method=self.method,
        )

    def __str__(self) -> str:
        return f"{self.estimate:.4g} [{self.low:.4g}, {self.high:.4g}] ({self.confidence:.0%}, n = {self.n})"


def mean_interval(samples: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Mean of samples [n], n >= 2: mean +- t s / sqrt(n), exact for normal samples."""
    x = as_samples(samples, at_least=2)
    mean, error = float(x.mean()), float(x.std(ddof=1)) / math.sqrt(x.size)
    half = t_critical(tail_of(confidence), x.size - 1) * error
    return Interval(estimate=mean, low=mean - half, high=mean + half, confidence=confidence, n=x.size, method="t")


def wilson(successes: int, n: int, *, confidence: float = 0.95) -> Interval:
    """A share from counts: Wilson's score interval (Wilson 1927), good also for few samples and shares near 0 or 1."""
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"successes must be in [0, n] and n at least 1, got {successes} of {n}")
    z = -NormalDist().inv_cdf(tail_of(confidence))
    share, z2 = successes / n, z * z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(estimate=share, low=low, high=high, confidence=confidence, n=n, method="wilson")


def median_interval(samples: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Median of samples [n] between two order statistics: no assumption on the distribution, coverage at least `confidence`.

    x_(k) <= median <= x_(n+1-k) fails with probability 2 P(Binomial(n, 1/2) < k); k is the largest that keeps it within
    1 - confidence. Too few samples (n < 6 at 95 %) can bound nothing: the interval is then the whole line.
    """
    x = np.sort(as_samples(samples))
    n = x.size
    ks = np.arange(1, n + 1)
    log_pmf = np.concatenate([[0.0], np.cumsum(np.log((n - ks + 1) / ks))]) - n * math.log(2)
    below = np.cumsum(np.exp(log_pmf))  # P(B <= k)
    k = int(np.searchsorted(below, tail_of(confidence), side="right"))  # P(B < k) <= tail
    low, high = (float(x[k - 1]), float(x[n - k])) if k >= 1 else (-math.inf, math.inf)
    return Interval(estimate=float(np.median(x)), low=low, high=high, confidence=confidence, n=n, method="order statistics")


def geometric_mean_interval(samples: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Geometric mean of positive samples [n]: the t interval of their logarithms. The mean for ratios: that of 1/x is its inverse."""
    x = as_samples(samples, at_least=2)
    if not (x > 0).all():
        raise ValueError("a geometric mean needs samples above 0")
    logs = mean_interval(np.log(x), confidence=confidence)
    return Interval(
        estimate=math.exp(logs.estimate),
        low=math.exp(logs.low),
        high=math.exp(logs.high),
        confidence=confidence,
        n=x.size,
        method="t of logarithms",
    )


def bootstrap(samples: ArrayLike, statistic: Statistic, *, seed: int, confidence: float = 0.95, resamples: int = 4000) -> Interval:
    """Percentile bootstrap of `statistic` over samples [n, ...] (Efron 1979); rows are resampled together, so pairs stay pairs.

    `statistic` maps [resamples, n, ...] to [resamples], e.g. `lambda x: x.mean(axis=1)`. It covers less than it says for few samples
    (n < 30): where a t interval fits, take that.
    """
    x = as_samples(samples, at_least=2, rows=True)
    rng = np.random.Generator(np.random.Philox(seed))
    rows = max(1, _CHUNK // max(1, x.size))
    parts = [statistic(x[rng.integers(0, len(x), size=(min(rows, resamples - start), len(x)))]) for start in range(0, resamples, rows)]
    tail = tail_of(confidence)
    low, high = np.quantile(np.concatenate(parts), [tail, 1 - tail])
    return Interval(
        estimate=float(statistic(x[None])[0]), low=float(low), high=float(high), confidence=confidence, n=len(x), method="bootstrap"
    )


def ratio_of_means(a: ArrayLike, b: ArrayLike, *, seed: int, confidence: float = 0.95, resamples: int = 4000) -> Interval:
    """mean(b) / mean(a) of paired samples [n]; pairs are resampled together. The ratio of total times."""
    return bootstrap(
        as_pairs(a, b), lambda x: x[..., 1].mean(axis=1) / x[..., 0].mean(axis=1), seed=seed, confidence=confidence, resamples=resamples
    )


def ratio_of_medians(a: ArrayLike, b: ArrayLike, *, seed: int, confidence: float = 0.95, resamples: int = 4000) -> Interval:
    """median(b) / median(a) of paired samples [n]; pairs are resampled together. Spikes of a busy machine do not move it."""

    def ratio(x: Floats) -> Floats:
        return np.asarray(np.median(x[..., 1], axis=1) / np.median(x[..., 0], axis=1), dtype=np.float64)

    return bootstrap(as_pairs(a, b), ratio, seed=seed, confidence=confidence, resamples=resamples)


def tail_of(confidence: float) -> float:
    """Probability of one of the two tails. Raises ValueError unless 0 < confidence < 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is a probability in (0, 1), got {confidence}")
    return (1 - confidence) / 2


def as_samples(samples: ArrayLike, *, at_least: int = 1, rows: bool = False) -> Floats:
    """`samples` as float64 [n] ([n, ...] with `rows`). Raises ValueError if there are too few or one is not finite."""
    x = np.asarray(samples, dtype=np.float64)
    if x.ndim != 1 and not (rows and x.ndim > 1):
        raise ValueError(f"samples are a list of numbers, got an array of {x.ndim} dims")
    if len(x) < at_least:
        raise ValueError(f"at least {at_least} samples are needed, got {len(x)}")
    if not np.isfinite(x).all():
        raise ValueError(f"{int((~np.isfinite(x)).sum())} of {x.size} samples are not finite")
    return x


def as_pairs(a: ArrayLike, b: ArrayLike) -> Floats:
    """Two equally long lists as [n, 2]. Raises ValueError if their lengths differ."""
    x, y = as_samples(a), as_samples(b)
    if x.size != y.size:
        raise ValueError(f"pairs need equally many samples, got {x.size} and {y.size}")
    return np.stack([x, y], axis=1)
