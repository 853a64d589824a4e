"""Terms that cannot be negative, averaged over what they might be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.stats.averaged import average, non_negative


def rows(sizes: list[int]) -> list[dict[str, float]]:
    return [{"one": 1.0, "n": float(n), "log": float(np.log2(n))} for n in sizes]


@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(1, 3))
def test_non_negative_least_squares_is_optimal(seed: int, n: int, terms: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, terms)), rng.standard_normal(n)
    c = non_negative(x, y)
    slope = x.T @ (x @ c - y)  # Karush-Kuhn-Tucker: no gradient where it is free, none that helps where it is bound
    assert (c >= 0).all() and np.allclose(slope[c > 0], 0, atol=1e-8) and (slope[c == 0] >= -1e-8).all()


def test_an_exact_law_is_found() -> None:
    x = rows([2, 4, 8, 16, 32])
    y = [3 * r["one"] + 0.5 * r["n"] for r in x]
    found = average(x, y, [("one",), ("one", "n"), ("one", "log")], prior_noise=0.002)
    at = rows([64])[0]
    held = found.predict(at)
    assert held.estimate == pytest.approx(35, rel=1e-3) and held.contains(35)
    assert sum(found.shares(at).values()) == pytest.approx(held.estimate)
    assert max(found.candidates, key=lambda c: c.weight).terms == pytest.approx({"one": 3, "n": 0.5})


def test_few_points_do_not_choose_between_laws_that_they_cannot_tell() -> None:
    x = rows([8, 16, 32])
    found = average(x, [1.0, 1.03, 1.05], [("one",), ("one", "n"), ("one", "log")], prior_noise=0.02)
    assert sorted(round(c.weight, 2) for c in found.candidates)[0] > 0.05
    assert found.predict(rows([256])[0]).half_width > found.predict(rows([32])[0]).half_width


def test_intervals_hold_what_they_say() -> None:
    rng = np.random.default_rng(0)
    x, at = rows([2, 4, 8, 16, 32, 64]), rows([128])[0]
    inside = 0
    for _ in range(400):
        noise = 0.02 * rng.standard_normal(7)
        y = [(2 + 0.3 * r["log"]) * (1 + e) for r, e in zip([*x, at], noise, strict=True)]
        inside += average(x, y[:-1], [("one", "log")], prior_noise=0.02).predict(at).contains(y[-1])
    assert 0.93 <= inside / 400 <= 0.99


def test_too_few_points() -> None:
    with pytest.raises(ValueError, match="too few"):
        average(rows([2]), [1.0], [("one",)])
