"""How noisy a series is, and how much it is worth when its samples follow each other in time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from headway.stats.intervals import Floats, Interval, as_samples, tail_of
from headway.stats.student import t_critical

_NORMAL = 1.4826022185056018  # 1 / Phi^-1(3/4): the MAD of a normal distribution is sigma / 1.4826


def mad(samples: ArrayLike) -> float:
    """Median absolute deviation from the median, scaled to estimate a normal sigma. Half of the samples may be far off."""
    x = as_samples(samples)
    return _NORMAL * float(np.median(np.abs(x - np.median(x))))


def autocovariance(samples: ArrayLike) -> Floats:
    """Autocovariance at lags 0 to n - 1 of samples [n], each divided by n (biased, so that the series is positive definite)."""
    x = as_samples(samples)
    x = x - x.mean()
    size = 1 << (2 * x.size - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(x, size)) ** 2
    return np.asarray(np.fft.irfft(spectrum, size)[: x.size] / x.size, dtype=np.float64)


def effective_size(samples: ArrayLike) -> float:
    """Number of independent samples with the same error of the mean: n / (1 + 2 sum of autocorrelations), in [1, n].

    The sum stops by Geyer's initial monotone sequence (Geyer 1992): sums of neighbouring lags are positive and falling for a
    reversible chain, so what follows the first negative one is noise.
    """
    x = as_samples(samples, at_least=2)
    cov = autocovariance(x)
    if cov[0] <= 0:
        return float(x.size)
    pairs = cov[: x.size // 2 * 2].reshape(-1, 2).sum(axis=1) / cov[0]
    end = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else pairs.size
    time = 2 * float(np.minimum.accumulate(pairs[:end]).sum()) - 1
    return float(np.clip(x.size / max(time, 1e-12), 1.0, x.size))


def mean_interval_in_time(samples: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Mean of a stationary series [n] whose samples may be correlated: the t interval with the effective size for n.

    Honest when the series is many times longer than its memory (effective size >= 10); below that it is too narrow.
    """
    x = as_samples(samples, at_least=2)
    size = effective_size(x)
    dof = max(size - 1, 1.0)
    spread = float(x.std(ddof=1)) if size == x.size else math.sqrt(float(autocovariance(x)[0]) * size / max(size - 1, 1e-12))
    half = t_critical(tail_of(confidence), dof) * spread / math.sqrt(size) if spread else 0.0
    mean = float(x.mean())
    return Interval(estimate=mean, low=mean - half, high=mean + half, confidence=confidence, n=x.size, method="t, effective size")
