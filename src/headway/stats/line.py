"""Straight lines through many series at once, where some samples are far off."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from headway.stats.intervals import Floats, as_samples
from headway.stats.student import t_critical

_FAR = 4.685  # of Tukey's bisquare, in deviations: 95 % efficient if noise is normal
_STEPS = 8


def robust_lines(x: ArrayLike, y: ArrayLike, at: ArrayLike, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """(value [m, series], half of its interval [m, series]) at places `at` [m] of lines through y [n, series] at x [n], n >= 4.

    Medians give a start (Theil 1950, on pairs half apart), Tukey's bisquare the weights of the least squares that follow, and the
    M-estimator's asymptotic variance the error (Huber 1981, 7.6), with Student's t of n - 2: 92 % for 95 % at n = 12,
    94 % from 20, less below. Raises ValueError if all x are equal.
    """
    x, places = as_samples(x, at_least=4), as_samples(at)
    values = np.asarray(y, np.float64)
    n, h = len(x), len(x) // 2
    order = np.argsort(x, kind="stable")
    x, values = x[order], values[order]
    spread = float(((x - x.mean()) ** 2).sum())
    if spread <= 0:
        raise ValueError("a line needs samples at different places")
    apart = x[-h:] - x[:h]
    slope = np.median(((values[-h:] - values[:h]) / np.where(apart > 0, apart, np.nan)[:, None])[apart > 0], axis=0)
    level = np.median(values - slope * x[:, None], axis=0)
    tiny = 1e-12 * (np.abs(values).max(axis=0) + 1e-300)
    for _ in range(_STEPS):
        away = _away(values, level, slope, x, tiny)
        w = np.clip(1 - away**2, 0, None) ** 2
        total = w.sum(axis=0)
        centre = (w * x[:, None]).sum(axis=0) / total
        off = x[:, None] - centre
        slope = (w * off * values).sum(axis=0) / np.maximum((w * off**2).sum(axis=0), 1e-300)
        level = (w * values).sum(axis=0) / total - slope * centre
    rest = values - level - slope * x[:, None]
    near = np.clip(1 - _away(values, level, slope, x, tiny) ** 2, 0, None)
    psi = near**2 * rest
    slopes = near * (5 * near - 4)  # psi' = (1 - u^2)(1 - 5 u^2)
    steep = np.maximum(slopes.mean(axis=0), 0.1)
    few = 1 + 2 / n * slopes.var(axis=0) / steep**2  # Huber's correction for two parameters from n samples
    variance = few**2 * (psi**2).sum(axis=0) / (n - 2) / steep**2
    band = np.sqrt(variance * (1 / n + (places[:, None] - x.mean()) ** 2 / spread))
    return level + slope * places[:, None], t_critical((1 - confidence) / 2, n - 2) * band


def _away(values: Floats, level: Floats, slope: Floats, x: Floats, tiny: Floats) -> Floats:
    """Residuals in units of where the bisquare ends."""
    rest = values - level - slope * x[:, None]
    scale = np.maximum(1.4826 * np.median(np.abs(rest), axis=0), tiny)
    return np.asarray(rest / (_FAR * scale), np.float64)
