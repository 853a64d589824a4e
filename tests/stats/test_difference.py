from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from headway.stats.difference import Moments, apportion, mean_difference, moments, samples_needed


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=15), st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=15))
def test_welch_is_that_of_scipy(a: list[float], b: list[float]) -> None:
    if np.std(a) < 1e-6 or np.std(b) < 1e-6:
        return
    found = mean_difference(moments(a), moments(b), confidence=0.95)
    assert found is not None
    expected = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert found.low == pytest.approx(expected.low, rel=1e-6, abs=1e-6) and found.high == pytest.approx(expected.high, rel=1e-6, abs=1e-6)


def test_one_sample_takes_the_spread_of_the_other_side() -> None:
    many, one = moments([10.0, 11.0, 12.0, 11.0]), moments([20.0])
    found = mean_difference(many, one)
    assert found is not None and found.estimate == 9.0 and not found.contains(0)
    assert mean_difference(one, one) is None


def test_the_interval_of_the_difference_covers_it() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(1000):
        a, b = rng.normal(10, 1, 6), rng.normal(12, 3, 9)
        found = mean_difference(moments(a), moments(b), confidence=0.95)
        assert found is not None
        hits += found.contains(2)
    assert 930 <= hits <= 970


def test_the_samples_needed_are_enough_and_not_too_many() -> None:
    a, b = Moments(mean=100, deviation=3, n=5), Moments(mean=101, deviation=4, n=5)
    n = samples_needed(a, b)
    assert n is not None

    def tells(count: int) -> bool:
        found = mean_difference(Moments(mean=100, deviation=12.5**0.5, n=count), Moments(mean=101, deviation=12.5**0.5, n=count))
        return found is not None and not found.contains(0)

    assert tells(n) and not tells(n - 1)
    assert samples_needed(a, Moments(mean=100, deviation=4, n=5)) is None


@given(st.lists(st.integers(-(10**15), 10**15), max_size=12), st.integers(1, 1000))
def test_parts_add_up_to_their_rounded_total(sums: list[int], num: int) -> None:
    parts = apportion(sums, num)
    assert abs(sum(parts) * num - sum(sums)) * 2 <= num
    assert all(abs(p * num - s) < num for p, s in zip(parts, sums, strict=True))


def test_apportion_refuses_no_parts_of_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        apportion([1], 0)
