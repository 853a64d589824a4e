"""The straight path between data (t = 0) and noise (t = 1), and what its velocity says about both ends.

Source: rectified flow (Liu et al. 2022), flow matching (Lipman et al. 2022). Images are [b, ...], times [b].
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def interpolate(x0: Float[Tensor, "b *d"], eps: Float[Tensor, "b *d"], t: Float[Tensor, " b"]) -> Float[Tensor, "b *d"]:
    """x_t = (1 - t) x0 + t eps."""
    t = per_sample(t, x0)
    return (1 - t) * x0 + t * eps


def velocity(x0: Float[Tensor, "b *d"], eps: Float[Tensor, "b *d"]) -> Float[Tensor, "b *d"]:
    """v = d x_t / dt = eps - x0."""
    return eps - x0


def to_x0(x_t: Float[Tensor, "b *d"], v: Float[Tensor, "b *d"], t: Float[Tensor, " b"]) -> Float[Tensor, "b *d"]:
    """x0 = x_t - t v: the data that the velocity points away from."""
    return x_t - per_sample(t, x_t) * v


def to_eps(x_t: Float[Tensor, "b *d"], v: Float[Tensor, "b *d"], t: Float[Tensor, " b"]) -> Float[Tensor, "b *d"]:
    """eps = x_t + (1 - t) v: the noise that the velocity points to."""
    return x_t + (1 - per_sample(t, x_t)) * v


def per_sample(t: Float[Tensor, " b"], x: Float[Tensor, "b *d"]) -> Float[Tensor, "b *ones"]:
    """t [b] in as many dims as x, so that it multiplies whole samples."""
    return t.view(-1, *(1,) * (x.dim() - 1))
