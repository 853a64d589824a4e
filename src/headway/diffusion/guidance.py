"""Classifier-free guidance: a network, a condition and a scale become one velocity field v(x, t)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headway.diffusion.sampler import Velocity
from headway.spec.errors import SpecError


def guided(network: nn.Module, condition: Mapping[str, Tensor], scale: float = 1.0) -> Velocity:
    """v = v_null + scale (v_condition - v_null) of `condition` [b, ...], by one doubled batch (Ho and Salimans 2022).

    scale 1 is the condition alone and 0 the null condition alone, each at the cost of one batch. Raises SpecError if there is
    nothing to guide by.
    """
    if not condition and scale != 1.0:
        raise SpecError(f"guidance scale {scale:g}: the network has no condition to be guided by", fix="Use scale 1.")

    def one(x: Float[Tensor, "b *d"], t: Float[Tensor, " b"]) -> Float[Tensor, "b *d"]:
        told = {**condition, "drop": torch.full((len(x),), scale == 0.0, device=x.device)} if condition else {}
        return network(x, t, told)  # type: ignore[no-any-return]

    def both(x: Float[Tensor, "b *d"], t: Float[Tensor, " b"]) -> Float[Tensor, "b *d"]:
        drop = torch.arange(2 * len(x), device=x.device) < len(x)  # the null half first
        told = {key: torch.cat((value, value)) for key, value in condition.items()} | {"drop": drop}
        v_null, v_told = network(torch.cat((x, x)), torch.cat((t, t)), told).chunk(2)
        return v_null + scale * (v_told - v_null)  # type: ignore[no-any-return]

    return one if scale in (0.0, 1.0) else both
