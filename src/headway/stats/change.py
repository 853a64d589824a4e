"""Where a series leaves its level: spikes (single samples far above it) and shifts (a new level that stays).

Shifts by binary segmentation (Scott and Knott 1974) on the CUSUM of clipped samples: under no change max_k |S_k| / (sigma sqrt n), S_k the
sum of the first k deviations from the mean, has Kolmogorov's distribution in the limit. sigma is the long-run deviation, from differences
of neighbouring block means, so that samples that follow each other in time do not look like a change (their memory must be short against
the square root of the length).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from headway.stats.intervals import Floats, as_samples
from headway.stats.noise import mad

SHORTEST = 8  # samples of a level
_ROWS = 1 << 16  # windows whose median is taken at once


@dataclass(frozen=True, kw_only=True)
class Shift:
    """From sample `at` on the level is `after`; it was `before` (medians). `p`: chance of such a change in a series without one."""

    at: int
    before: float
    after: float
    p: float


def local_median(samples: ArrayLike, window: int = 51) -> Floats:
    """Median of the `window` samples around each (fewer at the ends: the window is moved inwards)."""
    x = as_samples(samples)
    window = min(window, x.size)
    views = sliding_window_view(x, window)
    medians = np.concatenate([np.median(views[i : i + _ROWS], axis=1) for i in range(0, len(views), _ROWS)])
    centre = np.clip(np.arange(x.size) - window // 2, 0, len(views) - 1)
    return np.asarray(medians[centre], np.float64)


def spikes(samples: ArrayLike, *, least: float = 0.5, sigmas: float = 6.0, window: int = 51) -> NDArray[np.int64]:
    """Indices of samples that lie above their local median by the share `least` of it and by `sigmas` robust deviations."""
    x = as_samples(samples)
    if x.size < 5:
        return np.zeros(0, np.int64)
    middle = local_median(x, window)
    above = x - middle
    return np.flatnonzero((above > least * middle) & (above > sigmas * mad(above)))


def shifts(samples: ArrayLike, *, least: float = 0.05, p_max: float = 1e-4, shortest: int = SHORTEST) -> list[Shift]:
    """Lasting changes of level of at least the share `least`, in order. Levels are at least `shortest` samples long."""
    x = as_samples(samples)
    cuts: list[tuple[int, float]] = []
    if x.size >= 2 * shortest:
        middle = local_median(x, min(51, 2 * shortest + 1))
        half = 4 * mad(x - middle)
        _split(np.clip(x, middle - half, middle + half), 0, cuts, least, p_max, shortest)
    edges = [0, *sorted(at for at, _ in cuts), x.size]
    p_of = dict(cuts)
    level = [float(np.median(x[a:b])) for a, b in pairwise(edges)]
    found = [Shift(at=at, before=level[i], after=level[i + 1], p=p_of[at]) for i, at in enumerate(edges[1:-1])]
    return [s for s in found if abs(s.after - s.before) >= least * abs(s.before)]


def _split(x: Floats, offset: int, out: list[tuple[int, float]], least: float, p_max: float, shortest: int) -> None:
    """Appends the change points of `x` (which begins at `offset` of the whole) and their p."""
    pending = [(0, x.size)]
    while pending:
        a, b = pending.pop()
        if b - a < 2 * shortest:
            continue
        part = x[a:b]
        sums = np.abs(np.cumsum(part - part.mean())[shortest - 1 : part.size - shortest])
        place = np.arange(shortest, shortest + sums.size)
        k = int((sums / np.sqrt(place * (part.size - place))).argmax()) + shortest  # where two means differ most clearly
        p = kolmogorov_tail(float(sums.max()) / (_long_run(part) * math.sqrt(part.size))) if sums.max() > 0 else 1.0
        before, after = float(np.median(part[:k])), float(np.median(part[k:]))
        if p > p_max or abs(after - before) < least * abs(before) / 2:  # half: the rest may lie beyond another change of this part
            continue
        out.append((offset + a + k, p))
        pending += [(a, a + k), (a + k, b)]


def _long_run(x: Floats) -> float:
    """Long-run deviation of a series: sqrt(m / 2) x robust deviation of the differences of neighbouring means of m samples, m near sqrt n.

    The larger of that and m = 1; one change of level moves one difference, which the MAD does not see.
    """
    found = []
    for m in (1, max(1, math.isqrt(x.size) // 2)):
        means = x[: x.size // m * m].reshape(-1, m).mean(axis=1)
        if means.size > 3:
            found.append(math.sqrt(m / 2) * mad(np.diff(means)))
    return max([*found, 1e-12 * (abs(float(x.mean())) + 1e-300)])


def kolmogorov_tail(s: float) -> float:
    """P(sup |Brownian bridge| > s) = 2 sum_j (-1)^(j+1) exp(-2 j^2 s^2) (Kolmogorov 1933)."""
    if s < 0.2:
        return 1.0
    terms = [math.exp(-2 * j * j * s * s) * (1 if j % 2 else -1) for j in range(1, 101)]
    return min(1.0, max(0.0, 2 * sum(terms)))
