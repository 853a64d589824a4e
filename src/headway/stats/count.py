"""Counted overhead: where a cost is too small to see in a paired run, count how often it is paid and measure it once.

A span that costs 2 us, opened 12 times in a step of 50 ms, is 0.05 % of the step. No A/B on a shared machine can see that, but the
count is exact, and the cost of one span can be measured to a few per cent by opening a million.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headway.stats.intervals import Interval, mean_interval
from headway.stats.paired import Clock, cpu_ns


def cost_ns(operation: Callable[[], object], *, calls: int = 10_000, repeats: int = 20, clock: Clock = cpu_ns) -> Interval:
    """Nanoseconds of one `operation()`, less the cost of calling an empty function, over `repeats` batches of `calls`.

    Batches of the operation and of the empty function take turns, and each difference is one sample of the mean's t interval.
    """
    differences = np.empty(repeats)
    for i in range(-1, repeats):  # the first batch is a warm-up
        empty = _batch(_nothing, calls, clock)
        full = _batch(operation, calls, clock)
        differences[i] = (full - empty) / calls
    return mean_interval(differences)


def share_of_step(times_per_step: float, cost: Interval, step: Interval) -> Interval:
    """times_per_step x cost / step as a share of the step; `cost` and `step` in one unit of time.

    The ends combine the ends (cost.low / step.high, cost.high / step.low), so both intervals hold with at least
    confidence 1 - (1 - c1) - (1 - c2) (Bonferroni), which is the confidence of the result.
    """
    if times_per_step < 0:
        raise ValueError(f"times per step must not be negative, got {times_per_step}")
    if not step.low > 0:
        raise ValueError(f"the step's interval must lie above 0, got {step}")
    return Interval(
        estimate=times_per_step * cost.estimate / step.estimate,
        low=times_per_step * max(0.0, cost.low) / step.high,
        high=times_per_step * max(0.0, cost.high) / step.low,
        confidence=cost.confidence + step.confidence - 1,
        n=min(cost.n, step.n),
        method="counted",
    )


def _nothing() -> None:
    return None


def _batch(operation: Callable[[], object], calls: int, clock: Clock) -> int:
    start = clock()
    for _ in range(calls):
        operation()
    return clock() - start
