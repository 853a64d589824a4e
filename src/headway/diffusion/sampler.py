"""Samplers: from noise at ts[0] to data at ts[-1] along dx/dt = v(x, t). Free functions of a velocity field and a grid of times."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor

Velocity = Callable[[Tensor, Tensor], Tensor]  # (x [b, ...], t [b]) -> v [b, ...]
Callback = Callable[[int, Tensor], None]  # (steps done, x)
Sampler = Callable[..., Tensor]


def sample_euler(
    model: Velocity, x: Float[Tensor, "b *d"], ts: Float[Tensor, " n"], *, callback: Callback | None = None
) -> Float[Tensor, "b *d"]:
    """x' = x + (t' - t) v(x, t). One evaluation a step, error of order 1. ts: decreasing times (`schedule.sampling_times`)."""
    for i, (t, t_next) in enumerate(pairwise(ts), 1):
        x = x + (t_next - t) * model(x, t.expand(len(x)))
        if callback:
            callback(i, x)
    return x


def sample_heun(
    model: Velocity, x: Float[Tensor, "b *d"], ts: Float[Tensor, " n"], *, callback: Callback | None = None
) -> Float[Tensor, "b *d"]:
    """x' = x + (t' - t) (v(x, t) + v(x + (t' - t) v(x, t), t')) / 2. Two evaluations a step, error of order 2."""
    for i, (t, t_next) in enumerate(pairwise(ts), 1):
        dt = t_next - t
        v = model(x, t.expand(len(x)))
        x = x + dt * (v + model(x + dt * v, t_next.expand(len(x)))) / 2
        if callback:
            callback(i, x)
    return x


SAMPLERS: dict[str, Sampler] = {"euler": sample_euler, "heun": sample_heun}
