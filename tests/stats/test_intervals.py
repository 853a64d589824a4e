from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from headway.stats.intervals import (
    Interval,
    bootstrap,
    geometric_mean_interval,
    mean_interval,
    median_interval,
    ratio_of_means,
    ratio_of_medians,
    wilson,
)

numbers = st.floats(-1e6, 1e6)
samples = st.lists(numbers, min_size=2, max_size=40)


def coverage(make: Callable[[np.random.Generator], Interval], truth: float, trials: int = 2000) -> float:
    """Share of `trials` experiments whose interval contains the truth."""
    rng = np.random.default_rng(7)
    return float(np.mean([make(rng).contains(truth) for _ in range(trials)]))


def within_error(share: float, confidence: float, trials: int) -> bool:
    """Whether a coverage differs from the confidence by no more than 3.5 standard errors."""
    return abs(share - confidence) <= 3.5 * math.sqrt(confidence * (1 - confidence) / trials)


@pytest.mark.parametrize("n", [2, 5, 30])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_mean_interval_covers_at_its_rate(n: int, confidence: float) -> None:
    share = coverage(lambda rng: mean_interval(rng.normal(3, 2, n), confidence=confidence), 3.0)
    assert within_error(share, confidence, 2000)


@pytest.mark.parametrize("n", [6, 15, 40])
def test_median_interval_covers_at_least_its_rate_for_any_distribution(n: int) -> None:
    truth = math.log(2)  # of the exponential distribution
    share = coverage(lambda rng: median_interval(rng.exponential(1, n)), truth)
    assert share >= 0.95 - 3.5 * math.sqrt(0.05 * 0.95 / 2000)
    # It is the tightest pair of order statistics that does: exact coverage of the next inner pair is below 95 %.
    x = np.arange(1, n + 1, dtype=float)
    k = int(median_interval(x).low)
    assert 1 - 2 * stats.binom.cdf(k - 1, n, 0.5) >= 0.95 > 1 - 2 * stats.binom.cdf(k, n, 0.5)


def test_wilson_covers_near_its_rate() -> None:
    for p, n in [(0.5, 20), (0.9, 200), (0.1, 50)]:
        chance = stats.binom.pmf(np.arange(n + 1), n, p)
        share = sum(c for k, c in enumerate(chance) if wilson(k, n).contains(p))
        assert 0.92 <= share <= 0.985  # exact coverage, known to swing around 95 % with p


def test_bootstrap_covers_near_its_rate_for_many_samples() -> None:
    def make(rng: np.random.Generator) -> Interval:
        return bootstrap(rng.exponential(1, 100), lambda x: x.mean(axis=1), seed=int(rng.integers(1 << 30)), resamples=800)

    assert 0.91 <= coverage(make, 1.0, trials=500) <= 0.98


def test_ratios_cover_and_keep_pairs() -> None:
    """Pair noise of 30 % is common to both; only paired resampling sees that the ratio is known to 1 %."""

    def pair(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        shared_noise = rng.lognormal(0, 0.3, 60)
        return shared_noise, 1.1 * shared_noise * rng.lognormal(0, 0.02, 60)

    a, b = pair(np.random.default_rng(0))
    for function in (ratio_of_means, ratio_of_medians):
        interval = function(a, b, seed=1)
        assert interval.low < interval.estimate < interval.high
        assert interval == function(a, b, seed=1)
        assert interval != function(a, b, seed=2)
    assert ratio_of_means(a, b, seed=1).half_width < 0.01
    share = coverage(lambda rng: ratio_of_means(*pair(rng), seed=3, resamples=400), 1.1, trials=300)
    assert share >= 0.90


@given(samples, st.floats(0.1, 10), numbers)
def test_mean_interval_moves_and_scales_with_its_samples(x: list[float], scale: float, shift: float) -> None:
    one, two = mean_interval(x), mean_interval(np.array(x) * scale + shift)
    size = abs(shift) + scale * max(map(abs, x)) + 1e-9
    assert two.estimate == pytest.approx(one.estimate * scale + shift, abs=1e-9 * size)
    assert two.half_width == pytest.approx(one.half_width * scale, abs=1e-6 * size)


@given(samples)
def test_more_confidence_is_wider(x: list[float]) -> None:
    for make in (mean_interval, median_interval):
        narrow, wide = make(x, confidence=0.8), make(x, confidence=0.99)
        assert wide.low <= narrow.low <= narrow.high <= wide.high


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_equals_scipy_and_stays_a_share(case: tuple[int, int], confidence: float) -> None:
    successes, n = case
    got, want = wilson(successes, n, confidence=confidence), stats.binomtest(successes, n).proportion_ci(confidence, "wilson")
    assert (got.low, got.high) == pytest.approx((want.low, want.high), abs=1e-12)
    assert 0 <= got.low <= got.estimate <= got.high <= 1


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=30))
def test_geometric_mean_of_inverses_is_the_inverse(x: list[float]) -> None:
    one, two = geometric_mean_interval(x), geometric_mean_interval([1 / v for v in x])
    assert (two.estimate, two.low, two.high) == pytest.approx((1 / one.estimate, 1 / one.high, 1 / one.low), rel=1e-9)


def test_equal_samples_leave_no_doubt() -> None:
    for interval in (mean_interval([2.0] * 9), median_interval([2.0] * 9), geometric_mean_interval([2.0] * 9)):
        assert (interval.low, interval.estimate, interval.high) == pytest.approx((2, 2, 2))


def test_too_few_samples_for_a_median_bound_nothing() -> None:
    interval = median_interval([1.0, 2.0, 3.0])
    assert (interval.low, interval.estimate, interval.high) == (-math.inf, 2.0, math.inf)


def test_bootstrap_of_many_rows_equals_one_chunk_in_distribution() -> None:
    x = np.random.default_rng(0).normal(size=3000)  # 4000 resamples of 3000 numbers: three chunks
    interval = bootstrap(x, lambda r: r.mean(axis=1), seed=0)
    assert interval.half_width == pytest.approx(mean_interval(x).half_width, rel=0.1)


def test_text_of_an_interval() -> None:
    assert str(wilson(181, 200)) == "0.905 [0.8564, 0.9383] (95%, n = 200)"


@pytest.mark.parametrize(
    "call",
    [
        lambda: mean_interval([1.0]),
        lambda: mean_interval([1.0, math.nan]),
        lambda: mean_interval([[1.0, 2.0]]),
        lambda: mean_interval([1.0, 2.0], confidence=1.0),
        lambda: median_interval([]),
        lambda: geometric_mean_interval([1.0, 0.0]),
        lambda: wilson(3, 2),
        lambda: wilson(0, 0),
        lambda: ratio_of_means([1.0, 2.0], [1.0, 2.0, 3.0], seed=0),
        lambda: mean_interval([1.0, 2.0]).scaled(-1),
    ],
)
def test_refuses_what_has_no_answer(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        call()
