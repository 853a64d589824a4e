"""Samplers on fields whose flow is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headway.diffusion import schedule
from headway.diffusion.sampler import SAMPLERS, Sampler, sample_euler, sample_heun
from tests.diffusion import gaussian


def even(num: int) -> Tensor:
    return torch.linspace(1, 0, num + 1, dtype=torch.float64)


@pytest.mark.parametrize("sampler", SAMPLERS.values())
def test_a_constant_field_is_followed_exactly(sampler: Sampler) -> None:
    x = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    v = torch.randn_like(x)
    torch.testing.assert_close(sampler(lambda x, t: v, x, schedule.sampling_times(7, 2.5)), x - v, rtol=0, atol=1e-6)


@pytest.mark.parametrize("sampler", SAMPLERS.values())
def test_a_single_data_point_is_reached_in_one_step(sampler: Sampler) -> None:
    """All data at x0: v = (x - x0) / t is constant along each path. (Heun divides by t' = 0 at the end, so it stops before.)"""
    x0, noise = torch.full((2, 3), 0.3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    end = 1e-3
    got = sampler(lambda x, t: (x - x0) / t[:, None], noise, torch.tensor([1.0, end], dtype=torch.float64))
    torch.testing.assert_close(got, (1 - end) * x0 + end * noise)


@pytest.mark.parametrize(("sampler", "order"), [(sample_euler, 1), (sample_heun, 2)])
@pytest.mark.parametrize("case", ["linear", "gaussian", "time"])
def test_order_of_convergence(sampler: Sampler, order: int, case: str) -> None:
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    field, exact = {
        "linear": (lambda x, t: -x, x * math.e),  # x(0) = e x(1)
        "gaussian": (gaussian.optimal, gaussian.flow(x, torch.zeros(1, dtype=torch.float64))),
        "time": (lambda x, t: torch.cos(3 * t)[:, None].expand_as(x), x - math.sin(3) / 3),
    }[case]
    errors = [(sampler(field, x, even(n)) - exact).abs().max().item() for n in (64, 128)]
    assert abs(math.log2(errors[0] / errors[1]) - order) < 0.1
    assert errors[1] < 0.05


@pytest.mark.parametrize(("sampler", "num", "tolerance"), [(sample_euler, 200, 0.01), (sample_heun, 40, 0.002)])
def test_noise_becomes_data_of_the_right_mean_and_spread(sampler: Sampler, num: int, tolerance: float) -> None:
    u = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    x = sampler(gaussian.optimal, torch.special.ndtri(u)[:, None], schedule.sampling_times(num, 1.5))
    assert abs(x.mean() - gaussian.MEAN) < tolerance and abs(x.std() - gaussian.STD) < tolerance


@pytest.mark.parametrize("sampler", SAMPLERS.values())
def test_times_callback_and_evaluations(sampler: Sampler) -> None:
    seen: list[Tensor] = []
    steps: list[tuple[int, float]] = []

    def field(x: Tensor, t: Tensor) -> Tensor:
        assert t.shape == (len(x),)
        seen.append(t[0])
        return torch.ones_like(x)

    x = sampler(field, torch.zeros(2, 3), torch.tensor([1.0, 0.5, 0.0]), callback=lambda i, x: steps.append((i, x[0, 0].item())))
    assert steps == [(1, -0.5), (2, -1.0)] and x.dtype == torch.float32
    assert [t.item() for t in seen] == ([1.0, 0.5] if sampler is sample_euler else [1.0, 0.5, 0.5, 0.0])


def test_no_step_is_no_change() -> None:
    x = torch.randn(2, 3)
    assert torch.equal(sample_euler(lambda x, t: x, x, torch.tensor([1.0])), x)
