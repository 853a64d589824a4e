from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from headway.stats.intervals import mean_interval
from headway.stats.noise import autocovariance, effective_size, mad, mean_interval_in_time


def autoregressive(n: int, memory: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """x_k = memory x_(k-1) + noise, started in its stationary state: n (1 - memory) / (1 + memory) samples are independent."""
    x = np.empty(n)
    x[0] = rng.normal() / np.sqrt(1 - memory**2)
    noise = rng.normal(size=n)
    for k in range(1, n):
        x[k] = memory * x[k - 1] + noise[k]
    return x


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=50))
def test_mad_equals_scipy(x: list[float]) -> None:
    assert mad(x) == pytest.approx(stats.median_abs_deviation(x, scale="normal"), rel=1e-12, abs=1e-12)


def test_mad_ignores_a_minority() -> None:
    x = np.random.default_rng(0).normal(0, 2, 1001)
    spoiled = np.where(np.arange(1001) % 3 == 0, 1e9, x)
    assert mad(x) == pytest.approx(2, rel=0.1)
    assert mad(spoiled) < 6


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40))
def test_autocovariance_equals_its_definition(x: list[float]) -> None:
    d = np.array(x) - np.mean(x)
    want = [float(d[: len(d) - k] @ d[k:]) / len(d) for k in range(len(d))]
    assert autocovariance(x) == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_effective_size_of_a_known_process(memory: float) -> None:
    rng = np.random.default_rng(1)
    sizes = [effective_size(autoregressive(4000, memory, rng)) / 4000 for _ in range(20)]
    assert np.mean(sizes) == pytest.approx((1 - memory) / (1 + memory), rel=0.12)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=60))
def test_effective_size_is_between_one_and_all(x: list[float]) -> None:
    assert 1 <= effective_size(x) <= len(x)


def test_interval_in_time_covers_where_the_plain_one_does_not() -> None:
    rng = np.random.default_rng(2)
    series = [autoregressive(600, 0.8, rng) for _ in range(300)]
    in_time = np.mean([mean_interval_in_time(x).contains(0.0) for x in series])
    plain = np.mean([mean_interval(x).contains(0.0) for x in series])
    assert in_time >= 0.90
    assert plain < 0.65


def test_equal_samples_leave_no_doubt() -> None:
    got = mean_interval_in_time([3.0] * 10)
    assert (got.low, got.estimate, got.high) == (3.0, 3.0, 3.0)
