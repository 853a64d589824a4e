"""The law of step time over the number of devices n: a sum of terms that never get a negative share.

    weak    (batch per device fixed)   t(n) = compute                + sum c_j g_j(n)
    strong  (global batch fixed)       t(n) = compute / n + serial   + sum c_j g_j(n)

    bandwidth  (n - 1) / n      what a ring all-reduce, all-gather or reduce-scatter moves through one device
    tree       log2 n           rounds of a tree; levels of a network
    ring       n - 1            rounds of a ring: latency, and any other cost that each further device adds
    skew       sqrt(2 ln n)     how far the slowest of n is above the mean, for normal times (the leading term of their expected maximum)

Few sizes bear few terms. Every subset of terms that the number of sizes allows is fitted by least squares of relative errors; a subset
with a negative share is left out, as its non-negative least squares are those of a smaller subset, which is a candidate itself. The rest
are weighed by Akaike's criterion with a known variance, RSS / s^2 + 2 k (Burnham and Anderson 2002, 2.2 and 2.9): s^2 is what the best
subset leaves, taken together with four samples of the noise that step times have, so that a perfect fit of three points is no proof.
The law is the weighted mean of all of them.

Intervals: the points are drawn again around the law with the noise that was found (which is itself known with few degrees of freedom
only), one model is drawn by its weight each time, and what it says at a size, with noise, is one sample (parametric bootstrap; Efron and
Tibshirani 1993).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["weak", "strong"]
Array = NDArray[np.float64]

GROWING: Final = ("bandwidth", "tree", "ring", "skew")
LEAST_SIZES: Final = 3
NOISE: Final = 0.01  # of a step time, where nothing tells it
_PRIOR: Final = 4.0  # samples that the noise counts for
_RESAMPLES: Final = 2000
_LEAST_RESAMPLES: Final = 200  # of ladders with thousands of sizes, whose law is known well
_DRAWN: Final = 4_000_000  # numbers at most, from where on fewer are drawn


def term(name: str, n: Array) -> Array:
    """g(n) of a term."""
    if name == "compute_share":
        return 1 / n
    if name == "bandwidth":
        return (n - 1) / n
    if name == "tree":
        return np.asarray(np.log2(n), np.float64)
    if name == "ring":
        return n - 1
    if name == "skew":
        return np.asarray(np.sqrt(2 * np.log(n)), np.float64)
    return np.ones_like(n)  # compute of a weak ladder, serial


def names_of(kind: Kind) -> tuple[str, ...]:
    """All terms of a law, the one that every model has first."""
    return ("compute", *GROWING) if kind == "weak" else ("compute", "serial", *GROWING)


def features(kind: Kind, n: Sequence[float] | Array) -> Array:
    """[sizes, terms]."""
    at = np.asarray(n, np.float64)
    return np.stack([term("compute_share" if kind == "strong" and name == "compute" else name, at) for name in names_of(kind)], axis=1)


@dataclass(frozen=True)
class Law:
    """Coefficients (in the unit of time) of every term, and samples of them for intervals."""

    kind: Kind
    sizes: tuple[float, ...]
    coefficients: Array  # [terms]
    noise: float  # relative, of one point
    residual: float  # root mean square of the points' relative distances
    support: Mapping[str, float]  # term -> weight of the models that have it
    samples: Array  # [resamples, terms]
    draws: Array  # [resamples]: the noise of a new point, in units of `noise`

    def at(self, n: Sequence[float]) -> Array:
        """t(n)."""
        found: Array = features(self.kind, n) @ self.coefficients
        return found

    def parts(self, n: float) -> dict[str, float]:
        """Term -> its time at n."""
        return dict(zip(names_of(self.kind), (features(self.kind, [n])[0] * self.coefficients).tolist(), strict=True))

    def interval(self, n: float, *, confidence: float = 0.95, noisy: bool = True) -> tuple[float, float]:
        """Where a new measurement at n lies (`noisy`), or the law itself."""
        said = self.samples @ features(self.kind, [n])[0]
        said = said * _factor(self.noise * self.draws) if noisy else said
        tail = (1 - confidence) / 2
        low, high = np.quantile(said, [tail, 1 - tail])
        return float(low), float(high)


def fit(kind: Kind, n: Sequence[float], time: Sequence[float], *, noise: float = NOISE, seed: int = 0) -> Law | None:
    """The law of `time` at sizes `n`, all different; None for fewer than three. `noise`: relative error of a point, if known."""
    at, y = np.asarray(n, np.float64), np.asarray(time, np.float64)
    if len(at) < LEAST_SIZES:
        return None
    x = features(kind, at)
    models = _models(kind, len(at))
    coefficients, rss = _solve(x / y[:, None], np.ones((len(at), 1)), models)
    weight = _weights(rss, models, len(at), noise)[:, 0]
    mean = weight @ coefficients[:, :, 0]
    fitted = x @ mean
    away = (y - fitted) / fitted
    size = float(weight @ np.array([len(m) for m in models]))
    dof = max(len(at) - size, 0.0) + _PRIOR
    spread = math.sqrt((float((away**2).sum()) + _PRIOR * noise**2) / dof)
    samples, draws = _resample(x, fitted, spread, dof, models, noise, seed)
    names = names_of(kind)
    return Law(
        kind=kind,
        sizes=tuple(at.tolist()),
        coefficients=mean,
        noise=spread,
        residual=float(np.sqrt((away**2).mean())),
        support={name: float(sum(w for w, m in zip(weight, models, strict=True) if i in m)) for i, name in enumerate(names)},
        samples=samples,
        draws=draws,
    )


def _models(kind: Kind, num: int) -> list[tuple[int, ...]]:
    """Subsets of terms, by place: the first is in each. Three sizes bear two terms, more of them three."""
    most = 2 if num < 4 else 3
    rest = range(1, len(names_of(kind)))
    return [(0, *some) for k in range(most) for some in combinations(rest, k)]


def _solve(x: Array, y: Array, models: Sequence[tuple[int, ...]]) -> tuple[Array, Array]:
    """(coefficients [models, terms, draws], sums of squares [models, draws]) of y [sizes, draws]; infinite where one is negative."""
    coefficients = np.zeros((len(models), x.shape[1], y.shape[1]))
    rss = np.empty((len(models), y.shape[1]))
    for i, model in enumerate(models):
        part = x[:, model]
        scale = np.abs(part).max(axis=0)
        found = (np.linalg.pinv(part / scale) @ y) / scale[:, None]
        coefficients[i, list(model)] = found
        rss[i] = np.where((found >= 0).all(axis=0), ((y - part @ found) ** 2).sum(axis=0), np.inf)
    return coefficients, rss


def _weights(rss: Array, models: Sequence[tuple[int, ...]], num: int, noise: float) -> Array:
    """Akaike weights [models, draws] of residual sums of squares [models, draws]: exp(-(RSS / s^2 + 2 k) / 2), to a sum of 1."""
    k = np.array([len(model) for model in models], np.float64)[:, None]
    variance = (rss.min(axis=0) + _PRIOR * noise**2) / (max(num - float(k.max()), 0.0) + _PRIOR)
    score = rss / variance + 2 * k
    relative = np.exp(-0.5 * (score - score.min(axis=0)))
    return np.asarray(relative / relative.sum(axis=0), np.float64)


def _resample(
    x: Array, fitted: Array, spread: float, dof: float, models: Sequence[tuple[int, ...]], noise: float, seed: int
) -> tuple[Array, Array]:
    """(coefficients [resamples, terms], draws of Student's t [resamples]) of points drawn anew; `spread` is known with `dof`."""
    rng = np.random.Generator(np.random.Philox(seed))
    num = max(min(_RESAMPLES, _DRAWN // len(fitted)), _LEAST_RESAMPLES)
    wider = np.sqrt(dof / rng.chisquare(dof, num))
    y = _factor(spread * wider * rng.standard_normal((len(fitted), num)))
    coefficients, rss = _solve(x / fitted[:, None], y, models)
    chances = np.cumsum(_weights(rss, models, len(fitted), noise), axis=0)
    chosen = (rng.random(num) > chances[:-1]).sum(axis=0)
    return coefficients[chosen, :, np.arange(num)], wider * rng.standard_normal(num)


def _factor(noise: Array) -> Array:
    """What relative noise makes of a time, which stays above 0: e^noise, within what a float can hold."""
    return np.asarray(np.exp(np.clip(noise, -20.0, 20.0)), np.float64)
