"""Robust lines: the plain least squares where nothing is far off, unmoved by a fifth of wild samples, intervals that hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headway.stats.line import robust_lines


def test_equals_least_squares_on_normal_noise() -> None:
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 4000)
    y = 3 + 2 * x + rng.standard_normal(x.size)
    want = stats.linregress(x, y)
    value, half = robust_lines(x, y[:, None], [0.0, 1.0])
    assert value[:, 0] == pytest.approx([want.intercept, want.intercept + want.slope], abs=0.02)
    plain = stats.t.ppf(0.975, x.size - 2) * want.intercept_stderr
    assert half[0, 0] == pytest.approx(plain, rel=0.06)  # 95 % efficient


@pytest.mark.parametrize("n", (12, 20, 100))
def test_intervals_hold_the_truth(n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.uniform(0, 1, n)
    noise = rng.standard_normal((n, 2000))
    value, half = robust_lines(x, 1 - 4 * x[:, None] + noise, [0.0, 0.5, 1.0])
    held = (np.abs(value - np.array([[1.0], [-1.0], [-3.0]])) <= half).mean(axis=1)
    assert (held > (0.915 if n == 12 else 0.93)).all() and (held < 0.985).all()


def test_a_fifth_of_the_samples_wild() -> None:
    rng = np.random.default_rng(1)
    x = np.linspace(0, 1, 100)
    y = 5 * x[:, None] + rng.standard_normal((100, 300))
    clean, _ = robust_lines(x, y, [0.0, 1.0])
    y[rng.choice(100, 20, replace=False)] += 1e6
    value, half = robust_lines(x, y, [0.0, 1.0])
    assert np.abs(value - clean).max() < 1.5
    assert (np.abs(value - np.array([[0.0], [5.0]])) <= half).mean() > 0.92


def test_exact_lines_and_refusals() -> None:
    x = np.arange(10.0)
    value, half = robust_lines(x, 7 + 3 * x[:, None], [0.0, 9.0])
    assert value[:, 0] == pytest.approx([7, 34]) and half.max() < 1e-6
    with pytest.raises(ValueError, match="different places"):
        robust_lines([1.0] * 5, np.zeros((5, 1)), [0.0])
    with pytest.raises(ValueError, match="at least 4"):
        robust_lines([1.0, 2.0], np.zeros((2, 1)), [0.0])
