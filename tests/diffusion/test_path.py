"""The path between data and noise."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.diffusion import path

unit = st.floats(0, 1)


@given(st.lists(unit, min_size=1, max_size=4), st.lists(st.integers(1, 3), max_size=3))
def test_velocity_leads_back_to_both_ends(ts: list[float], shape: list[int]) -> None:
    t = torch.tensor(ts, dtype=torch.float64)
    x0, eps = torch.randn(len(ts), *shape, dtype=torch.float64), torch.randn(len(ts), *shape, dtype=torch.float64)
    x_t, v = path.interpolate(x0, eps, t), path.velocity(x0, eps)
    assert x_t.shape == x0.shape
    torch.testing.assert_close(path.to_x0(x_t, v, t), x0)
    torch.testing.assert_close(path.to_eps(x_t, v, t), eps)


def test_the_ends_are_exact() -> None:
    x0, eps = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    assert torch.equal(path.interpolate(x0, eps, torch.zeros(2)), x0)
    assert torch.equal(path.interpolate(x0, eps, torch.ones(2)), eps)


@given(unit)
def test_velocity_is_the_slope_of_the_path(t: float) -> None:
    x0, eps = torch.randn(1, 5, dtype=torch.float64), torch.randn(1, 5, dtype=torch.float64)
    a, b = (path.interpolate(x0, eps, torch.tensor([s], dtype=torch.float64)) for s in (t, t + 0.5))
    torch.testing.assert_close((b - a) / 0.5, path.velocity(x0, eps))
