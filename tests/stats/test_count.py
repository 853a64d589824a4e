from __future__ import annotations

import pytest

from headway.stats.count import cost_ns, share_of_step
from headway.stats.intervals import Interval


def interval(estimate: float, low: float, high: float, confidence: float = 0.99) -> Interval:
    return Interval(estimate=estimate, low=low, high=high, confidence=confidence, n=20, method="t")


def test_share_combines_count_cost_and_step() -> None:
    got = share_of_step(12, interval(2_000, 1_900, 2_100), interval(50e6, 48e6, 52e6))
    assert got.estimate == pytest.approx(12 * 2_000 / 50e6)
    assert got.low == pytest.approx(12 * 1_900 / 52e6)
    assert got.high == pytest.approx(12 * 2_100 / 48e6)
    assert got.confidence == pytest.approx(0.98)


def test_a_cost_below_zero_is_noise_not_a_gain() -> None:
    got = share_of_step(5, interval(1, -2, 4), interval(100, 90, 110))
    assert got.low == 0.0
    assert got.high == pytest.approx(5 * 4 / 90)


def test_refuses_what_has_no_answer() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        share_of_step(-1, interval(1, 1, 1), interval(1, 1, 1))
    with pytest.raises(ValueError, match="must lie above 0"):
        share_of_step(1, interval(1, 1, 1), interval(1, -1, 3))


def test_cost_of_a_call_by_a_clock_that_counts() -> None:
    """Each operation moves the clock by 7: so the cost is 7, whatever the loop around it costs."""
    now = [0]

    def operation() -> None:
        now[0] += 7

    got = cost_ns(operation, calls=100, repeats=4, clock=lambda: now[0])
    assert (got.low, got.estimate, got.high) == (7, 7, 7)


def test_real_cost_is_of_the_right_size() -> None:
    small = cost_ns(lambda: sum(range(100)), calls=2_000, repeats=8)
    large = cost_ns(lambda: sum(range(1_000)), calls=2_000, repeats=8)
    assert 4 < large.estimate / small.estimate < 25
