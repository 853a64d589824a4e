"""What a step takes on n devices, and what it would take on more.

    step(n, b) = work b + fixed + log log2 n + ring n + skew sqrt(2 ln n)        b = samples of a device

A ring all-reduce of n ranks takes 2 (n - 1) latencies and 2 (n - 1) / n times the bytes, a tree 2 log2 n latencies (Thakur, Rabenseifner
and Gropp 2005); the slowest of n equal ranks whose times scatter by s is later than the mean by about s sqrt(2 ln n) (Cramer 1946,
28.6). Few sizes cannot tell these apart: candidates with at most one of them are averaged (`stats.averaged`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from headway.spec.scaling import HeldOut, Point, Prediction
from headway.stats.averaged import Averaged, average

LEAST_SIZES: Final = 3
NOISE: Final = 0.02  # relative scatter that sizes of one configuration show beside any law: routes, placement, shapes
GROWTH: Final = ("log", "ring", "skew")


def terms(devices: int, global_batch: float) -> dict[str, float]:
    """The terms of a step."""
    n = float(devices)
    return {"work": global_batch / n, "fixed": 1.0, "log": math.log2(n), "ring": n, "skew": math.sqrt(2 * math.log(n))}


def candidates(points: Sequence[Point]) -> list[tuple[str, ...]]:
    """Sets of terms that these sizes can tell something of. With one batch a device, fixed time and work are one."""
    if len({round(p.global_batch / p.devices, 9) for p in points}) == 1:
        return [("work",), *(("work", g) for g in GROWTH)]
    return [("work", "fixed"), *(("work", "fixed", g) for g in GROWTH), ("work", "log"), ("work", "skew")]


def fit(points: Sequence[Point]) -> Averaged | None:
    """The law of these sizes; None for fewer than three."""
    if len({p.devices for p in points}) < LEAST_SIZES:
        return None
    return average([terms(p.devices, p.global_batch) for p in points], [p.step for p in points], candidates(points), prior_noise=NOISE)


def predict(law: Averaged, devices: int, global_batch: float) -> tuple[float, tuple[float, float]]:
    """(step, interval that holds a measurement) at a size."""
    found = law.predict(terms(devices, global_batch))
    return found.estimate, (max(0.0, found.low), found.high)


def doublings(law: Averaged, points: Sequence[Point], weak: bool, num: int = 2) -> tuple[Prediction, ...]:
    """The next sizes: twice and four times the largest, with as many samples a device (weak) or in all (strong)."""
    first, last = points[0], points[-1]
    out = []
    for k in range(1, num + 1):
        devices = last.devices << k
        batch = last.global_batch * (1 << k) if weak else last.global_batch
        step, interval = predict(law, devices, batch)
        rate = batch / step / devices
        out.append(
            Prediction(devices=devices, global_batch=batch, step=step, interval=interval, efficiency=rate / (first.rate / first.devices))
        )
    return tuple(out)


def held_out(points: Sequence[Point]) -> tuple[HeldOut, ...]:
    """The largest size against what the smaller ones predict for it; nothing if those are too few."""
    most = max(p.devices for p in points)
    law = fit([p for p in points if p.devices < most])
    if law is None:
        return ()
    out = []
    for p in (p for p in points if p.devices == most):
        step, interval = predict(law, p.devices, p.global_batch)
        out.append(
            HeldOut(
                devices=most, global_batch=p.global_batch, step=p.step, predicted=step, interval=interval, error=step / p.step - 1
            )
        )  # fmt: skip
    return tuple(out)
