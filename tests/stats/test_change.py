"""Spikes and shifts: planted ones are found where they are; a series without any gives none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import kolmogorov

from headway.stats.change import kolmogorov_tail, local_median, shifts, spikes


def series(seed: int, n: int, *, sigma: float = 0.03, memory: float = 0.0) -> np.ndarray:
    """Step times around 1 with skewed noise, AR(1) with `memory`."""
    rng = np.random.default_rng(seed)
    noise = rng.gamma(4, 0.5, n) - 2
    for i in range(1, n if memory else 0):
        noise[i] += memory * noise[i - 1]
    return 1 + sigma * noise


@pytest.mark.parametrize("s", [0.1, 0.3, 0.8, 1.36, 2.5])
def test_the_tail_is_kolmogorovs(s: float) -> None:
    assert kolmogorov_tail(s) == pytest.approx(kolmogorov(s), abs=1e-9)


def test_local_medians_follow_the_level() -> None:
    x = np.r_[np.ones(100), np.full(100, 3.0)]
    middle = local_median(x, 11)
    assert middle[94] == 1 and middle[105] == 3 and middle[0] == 1 and middle[-1] == 3
    assert local_median([5.0], 51).tolist() == [5.0]


@pytest.mark.parametrize(("n", "memory"), [(30, 0.0), (30, 0.5), (200, 0.0), (200, 0.5), (200, 0.8), (3000, 0.0), (3000, 0.8)])
def test_no_change_gives_none(n: int, memory: float) -> None:
    false = sum(bool(shifts(series(seed, n, memory=memory))) for seed in range(40))
    assert false <= 2


@pytest.mark.parametrize(("n", "at", "gain"), [(60, 40, 1.3), (400, 100, 1.2), (5000, 4900, 1.15), (300, 150, 0.8)])
def test_a_shift_is_found_at_its_place(n: int, at: int, gain: float) -> None:
    hits = 0
    for seed in range(20):
        x = series(seed, n)
        x[at:] *= gain
        found = shifts(x)
        if len(found) == 1 and abs(found[0].at - at) <= 3:
            hits += 1
            assert found[0].after / found[0].before == pytest.approx(gain, rel=0.05)
    assert hits >= 19


def test_several_shifts_and_spikes_between() -> None:
    x = series(1, 900)
    x[200:] *= 1.3
    x[500:] /= 1.3
    x[700:] *= 1.6
    x[50::97] *= 4
    found = shifts(x)
    assert [abs(s.at - at) <= 3 for s, at in zip(found, (200, 500, 700), strict=True)] == [True] * 3
    assert set(range(50, 900, 97)) <= set(spikes(x).tolist())


def test_spikes_are_not_noise() -> None:
    assert sum(len(spikes(series(seed, 1000))) for seed in range(20)) == 0
    x = series(0, 500)
    x[[40, 41, 333]] *= 2
    assert spikes(x).tolist() == [40, 41, 333]


@pytest.mark.parametrize("n", [1, 2, 4, 5, 15, 16])
def test_short_series(n: int) -> None:
    assert shifts(np.ones(n)) == [] and len(spikes(np.ones(n))) == 0


def test_constant_levels_without_noise() -> None:
    (found,) = shifts(np.r_[np.ones(50), np.full(50, 2.0)])
    assert (found.at, found.before, found.after) == (50, 1.0, 2.0)
