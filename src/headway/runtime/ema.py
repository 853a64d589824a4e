"""The exponential moving average of a network's weights, in the format and the sharding of its master weights."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn

from headway.parallel.fsdp import local, parameters_of


class Ema:
    """e <- e + (1 - d) (w - e) after every step, d = 0.5 ** (batch / half_life): a weight counts half after `half_life` samples.

    It starts at the weights themselves, so there is no bias towards zero to correct.
    """

    def __init__(self, network: nn.Module, half_life: float) -> None:
        assert half_life > 0, "a run without an average makes none"
        self._half_life = half_life
        self._source = parameters_of(network)  # not their local parts: FSDP moves those at the first forward
        self._average = {n: p.detach().clone() for n, p in self._source.items()}

    @torch.no_grad()
    def update(self, batch: int, ok: torch.Tensor | None = None) -> None:
        """Take in the weights after a step of `batch` samples where `ok` (a boolean scalar on the device) holds. No host wait."""
        gain = -math.expm1(-math.log(2) * batch / self._half_life)  # 1 - d, exact for small ones
        for average, source in self._by_dtype():
            share = torch.full((), gain, dtype=average[0].dtype, device=average[0].device)
            if ok is not None:
                share = torch.where(ok, share, torch.zeros_like(share))
            step = torch._foreach_sub(source, average)
            torch._foreach_mul_(step, share)
            torch._foreach_add_(average, step)

    def weights(self) -> Mapping[str, torch.Tensor]:
        """The average by parameter name, sharded as the network is."""
        return self._average

    def state(self) -> dict[str, torch.Tensor]:
        """The live tensors for a checkpoint; writing into them restores the average."""
        return dict(self._average)

    def _by_dtype(self) -> list[tuple[list[torch.Tensor], list[torch.Tensor]]]:
        groups: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        for name, average in self._average.items():
            pair = groups.setdefault(average.dtype, ([], []))
            pair[0].append(local(average))
            pair[1].append(local(self._source[name]))
        return list(groups.values())
