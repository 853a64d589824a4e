"""A data set whose optimal velocity is known: x0 ~ N(mean, std^2), each element for itself."""

from __future__ import annotations

from torch import Tensor

MEAN, STD = 0.7, 0.4


def variance(t: Tensor) -> Tensor:
    """Var x_t = (1 - t)^2 std^2 + t^2."""
    return (1 - t) ** 2 * STD**2 + t**2


def optimal(x: Tensor, t: Tensor) -> Tensor:
    """E[eps - x0 | x_t = x] by linear regression: Cov(eps - x0, x_t) / Var x_t = (t - (1 - t) std^2) / Var x_t."""
    t = t.view(-1, *(1,) * (x.dim() - 1))
    return -MEAN + (t - (1 - t) * STD**2) / variance(t) * (x - (1 - t) * MEAN)


def flow(noise: Tensor, t: Tensor) -> Tensor:
    """Where the probability flow has carried `noise` at time t: (1 - t) mean + sqrt(Var x_t) noise."""
    return (1 - t) * MEAN + variance(t).sqrt() * noise


def residual(t: Tensor) -> Tensor:
    """Var(eps - x0 | x_t): the loss that the best network is left with at t."""
    return 1 + STD**2 - (t - (1 - t) * STD**2) ** 2 / variance(t)
