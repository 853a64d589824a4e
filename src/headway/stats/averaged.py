"""A measured quantity as a sum of terms that cannot be negative, where it is not known which terms there are.

y_i = sum over terms of c_j x_ij, c >= 0, errors relative to y. Each candidate set of terms is fitted by itself; predictions are their mean
by weights of the small-sample Akaike criterion, and intervals hold both the noise and the disagreement of candidates (Burnham and
Anderson 2002, equations 2.9 and 4.9). So a few points never choose one law of growth that they cannot tell from another.

What is known of the noise beforehand counts like `PRIOR_N` more points that scatter by `prior_noise` (a scaled inverse chi-squared prior):
without it, five points say too little of their own noise to tell a law from scatter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headway.stats.intervals import Floats, Interval, tail_of
from headway.stats.student import t_critical

PRIOR_N: Final = 4


@dataclass(frozen=True)
class Candidate:
    """One set of terms, fitted: coefficients by term (those at 0 left out), its weight, and (X'X)^-1 times the variance of noise."""

    terms: Mapping[str, float]
    weight: float
    covariance: NDArray[np.float64]  # of the coefficients, in the order of `terms`

    def at(self, x: Mapping[str, float]) -> tuple[float, float]:
        """(value, variance of it) where the terms are `x`."""
        row = np.array([x[name] for name in self.terms], np.float64)
        return float(sum(c * x[name] for name, c in self.terms.items())), float(row @ self.covariance @ row)


@dataclass(frozen=True)
class Averaged:
    """All candidates; `noise` is the relative deviation of a measurement, `dof` how well that is known."""

    candidates: tuple[Candidate, ...]
    noise: float
    dof: int
    n: int

    def predict(self, x: Mapping[str, float], *, confidence: float = 0.95, measurement: bool = True) -> Interval:
        """The value where the terms are `x`, with an interval for a measurement there (else for its mean)."""
        values, variances = zip(*(c.at(x) for c in self.candidates), strict=True)
        weights = [c.weight for c in self.candidates]
        mean = sum(w * v for w, v in zip(weights, values, strict=True))
        extra = (self.noise * mean) ** 2 if measurement else 0.0
        error = sum(w * math.sqrt(var + extra + (v - mean) ** 2) for w, v, var in zip(weights, values, variances, strict=True))
        half = t_critical(tail_of(confidence), self.dof) * error
        return Interval(estimate=mean, low=mean - half, high=mean + half, confidence=confidence, n=self.n, method="averaged over terms")

    def shares(self, x: Mapping[str, float]) -> dict[str, float]:
        """What each term contributes where the terms are `x`; they sum to the value predicted."""
        out: dict[str, float] = {}
        for c in self.candidates:
            for name, value in c.terms.items():
                out[name] = out.get(name, 0.0) + c.weight * value * x[name]
        return out


def average(rows: Sequence[Mapping[str, float]], y: ArrayLike, sets: Sequence[Sequence[str]], *, prior_noise: float = 0.01) -> Averaged:
    """Fits y [n] > 0 by each of `sets` of terms; `rows` hold every term at each point. `prior_noise`: relative scatter to expect.

    A candidate that has as many terms as there are points is left out. Raises ValueError if none is left.
    """
    values = np.asarray(y, np.float64)
    n = len(values)
    fitted: dict[tuple[str, ...], tuple[Floats, Floats, float]] = {}
    for names in dict.fromkeys(tuple(s) for s in sets):
        if len(names) >= n:
            continue
        x = np.array([[row[name] for name in names] for row in rows], np.float64) / values[:, None]
        coefficients = non_negative(x, np.ones(n))
        used = np.flatnonzero(coefficients > 0)
        rest = float(((x @ coefficients - 1) ** 2).sum())
        fitted[tuple(names[i] for i in used)] = (coefficients[used], x[:, used], rest)  # a term at 0 is no term
    if not fitted:
        raise ValueError(f"{n} points are too few for any of {len(sets)} sets of terms")
    variances = {names: (rest + PRIOR_N * prior_noise**2) / (n + PRIOR_N) for names, (*_, rest) in fitted.items()}
    scores = np.array([_aicc(v, len(names), n + PRIOR_N) for names, v in variances.items()])
    weights = np.exp(-(scores - scores.min()) / 2)
    weights /= weights.sum()
    best = list(fitted)[int(np.argmin(scores))]
    dof = n - len(best) + PRIOR_N
    noise = math.sqrt(variances[best] * (n + PRIOR_N) / dof)
    found = [
        Candidate(dict(zip(names, map(float, c), strict=True)), float(w), np.asarray(noise**2 * np.linalg.pinv(x.T @ x), np.float64))
        for (names, (c, x, _)), w in zip(fitted.items(), weights, strict=True)
    ]
    return Averaged(tuple(found), noise, dof, n)


def non_negative(x: Floats, y: Floats) -> Floats:
    """The c >= 0 [terms] with the least |x c - y|^2, by trying every set of columns that may be free: for a few terms, exact."""
    terms = x.shape[1]
    best, least = np.zeros(terms), float((y**2).sum())
    for size in range(1, terms + 1):
        for columns in combinations(range(terms), size):
            part, *_ = np.linalg.lstsq(x[:, columns], y, rcond=None)
            if (part < 0).any():
                continue
            rest = float(((x[:, columns] @ part - y) ** 2).sum())
            if rest < least * (1 - 1e-12):
                best, least = np.zeros(terms), rest
                best[list(columns)] = part
    return best


def _aicc(variance: float, terms: int, n: int) -> float:
    """Akaike's criterion with the small-sample term (Hurvich and Tsai 1989)."""
    return n * math.log(variance) + 2 * terms + 2 * terms * (terms + 1) / (n - terms - 1)
