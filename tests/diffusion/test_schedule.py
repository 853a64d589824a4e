"""Training timesteps against formulas; sampling times."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.diffusion.schedule import logit_normal, sampling_times, shift, timesteps
from headway.spec.parts import ObjectiveSpec

U = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000  # midpoints: quadrature over the distribution
shifts = st.floats(0.05, 20)


def phi(z: float) -> float:
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


def test_uniform_is_the_draw_itself() -> None:
    u = U.float()
    assert torch.equal(timesteps(ObjectiveSpec(schedule="uniform"), u), u)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (-0.5, 0.7), (1.2, 1.5)])
def test_logit_normal_has_the_cdf_and_moments_of_its_definition(mean: float, std: float) -> None:
    t = logit_normal(U, mean, std)
    for at in (0.05, 0.3, 0.5, 0.9):  # P(t < a) = Phi((logit a - mean) / std)
        assert abs((t < at).double().mean() - phi((math.log(at / (1 - at)) - mean) / std)) < 2e-5
    logit = torch.log(t / (1 - t))
    assert abs(logit.mean() - mean) < 1e-9 and abs(logit.std() - std) < 1e-3
    if mean == 0:
        assert abs(t.mean() - 0.5) < 1e-9  # symmetric


@given(shifts, st.floats(0, 1))
def test_shift_is_a_rising_map_of_the_unit_interval_with_an_inverse(s: float, t: float) -> None:
    a = torch.tensor([0.0, t, 1.0], dtype=torch.float64)
    moved = shift(a, s)
    assert moved[0] == 0 and abs(moved[2] - 1) < 1e-12 and 0 <= moved[1] <= 1 + 1e-12
    torch.testing.assert_close(shift(moved, 1 / s), a)
    assert (moved[1] >= t - 1e-12) if s >= 1 else (moved[1] <= t + 1e-12)


@given(shifts)
def test_shift_scales_the_noise_to_signal_ratio(s: float) -> None:
    t = torch.tensor([0.1, 0.5, 0.8], dtype=torch.float64)
    moved = shift(t, s)
    torch.testing.assert_close(moved / (1 - moved), s * t / (1 - t))


@given(shifts)
def test_shift_of_logit_normal_moves_its_mean_by_log_s(s: float) -> None:
    u = U[::1000]
    torch.testing.assert_close(shift(logit_normal(u, 0.3, 0.8), s), logit_normal(u, 0.3 + math.log(s), 0.8))


def test_training_times_follow_every_field() -> None:
    u = U[::100].float()
    spec = ObjectiveSpec(logit_mean=0.2, logit_std=0.5, shift=3.0)
    torch.testing.assert_close(timesteps(spec, u), shift(logit_normal(u.double(), 0.2, 0.5), 3.0).float())
    t = timesteps(ObjectiveSpec(schedule="uniform", shift=3.0), u)
    assert t.dtype == torch.float32
    torch.testing.assert_close(t, shift(u, 3.0))


@given(st.integers(1, 100), shifts)
def test_sampling_times_fall_from_one_to_zero(num: int, s: float) -> None:
    ts = sampling_times(num, s)
    assert len(ts) == num + 1 and ts[0] == 1 and ts[-1] == 0
    assert (ts[1:] < ts[:-1]).all()


def test_sampling_times_are_even_without_a_shift() -> None:
    assert sampling_times(4).tolist() == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert sampling_times(2, 3.0).tolist() == [1.0, 0.75, 0.0]
