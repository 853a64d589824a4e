"""Tests of one question: do the differences of pairs lie around zero? All are two-sided and take differences [n].

Which one: `sign_flip` when the differences may be taken as symmetric under "no effect" (a paired A/B is: names can be swapped);
`wilcoxon` when single differences are far off; `paired_t` when they are near normal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from headway.stats.intervals import Floats, as_samples
from headway.stats.student import t_tail

_EXACT_FLIPS = 16  # 2^16 sign patterns are enumerated
_EXACT_RANKS = 200


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """Probability `p` of a statistic at least this far from zero if there is no effect."""

    __test__ = False  # not a test case

    p: float
    statistic: float
    n: int
    method: str


def paired_t(differences: ArrayLike) -> TestResult:
    """Student's t test of mean difference 0, n >= 2."""
    d = as_samples(differences, at_least=2)
    error = float(d.std(ddof=1)) / math.sqrt(d.size)
    mean = float(d.mean())
    if error == 0.0:
        t = math.copysign(math.inf, mean) if mean else 0.0
        return TestResult(p=0.0 if mean else 1.0, statistic=t, n=d.size, method="t")
    t = mean / error
    return TestResult(p=2 * t_tail(abs(t), d.size - 1), statistic=t, n=d.size, method="t")


def sign_flip(differences: ArrayLike, *, seed: int = 0, resamples: int = 20_000) -> TestResult:
    """Fisher's randomisation test of mean difference 0: each sign is as likely as its opposite.

    All 2^n sign patterns for n <= 16, else `resamples` random ones, where p = (hits + 1) / (resamples + 1) is never zero.
    """
    d = as_samples(differences)
    seen = abs(float(d.sum()))
    limit = seen - 1e-12 * float(np.abs(d).sum())  # sums that are equal but for rounding count as equal
    if d.size <= _EXACT_FLIPS:
        bits = (np.arange(1 << d.size)[:, None] >> np.arange(d.size)) & 1
        sums = np.abs((1 - 2 * bits) @ d)
        return TestResult(p=float((sums >= limit).mean()), statistic=float(d.mean()), n=d.size, method="sign flips, all")
    rng = np.random.Generator(np.random.Philox(seed))
    hits, rows = 0, max(1, (1 << 22) // d.size)
    for start in range(0, resamples, rows):
        signs = 1 - 2 * rng.integers(0, 2, size=(min(rows, resamples - start), d.size))
        hits += int((np.abs(signs @ d) >= limit).sum())
    return TestResult(p=(hits + 1) / (resamples + 1), statistic=float(d.mean()), n=d.size, method="sign flips, sampled")


def wilcoxon(differences: ArrayLike) -> TestResult:
    """Wilcoxon's signed-rank test (1945); ties share their mean rank, zeros are ranked and then give no sign (Pratt 1959).

    Exact for n <= 200, ties included, by the distribution of the rank sum; else by its normal limit.
    """
    d = as_samples(differences)
    ranks = _ranks(np.abs(d))[d != 0]
    plus = float(ranks[d[d != 0] > 0].sum())
    centre = float(ranks.sum()) / 2
    away = abs(plus - centre)
    if ranks.size == 0:
        return TestResult(p=1.0, statistic=0.0, n=d.size, method="wilcoxon, exact")
    if d.size <= _EXACT_RANKS:
        return TestResult(p=_exact_rank_p(ranks, away), statistic=plus, n=d.size, method="wilcoxon, exact")
    z = away / math.sqrt(float((ranks**2).sum()) / 4)
    return TestResult(p=2 * NormalDist().cdf(-z), statistic=plus, n=d.size, method="wilcoxon, normal")


def holm(p: ArrayLike) -> list[float]:
    """P values [n] of n questions, corrected so that the chance of any false answer below a level is that level (Holm 1979).

    The k-th smallest (from 0) becomes the largest of (n - i) p_i over i <= k, at most 1.
    """
    values = np.atleast_1d(np.asarray(p, np.float64))
    if values.size == 0:
        return []
    as_samples(values)
    order = np.argsort(values, kind="stable")
    out = np.empty(values.size)
    out[order] = np.minimum(np.maximum.accumulate((values.size - np.arange(values.size)) * values[order]), 1.0)
    found: list[float] = out.tolist()
    return found


def _ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[group], dtype=np.float64)


def _exact_rank_p(ranks: Floats, away: float) -> float:
    """P(|sum of randomly chosen ranks - its mean| >= away); doubled ranks are whole numbers, ties or not."""
    doubled = np.rint(2 * ranks).astype(np.int64)
    total = int(doubled.sum())
    chance = np.zeros(total + 1)
    chance[0] = 1.0
    for rank in doubled:  # chance of each doubled sum after one more rank is or is not chosen
        shifted = np.concatenate([np.zeros(rank), chance[: total + 1 - rank]])
        chance = 0.5 * (chance + shifted)
    far = np.abs(np.arange(total + 1) - total / 2) >= 2 * away - 1e-9
    return min(1.0, float(chance[far].sum()))
