"""Where on the path: the distribution of training timesteps, and the grid of sampling times.

Both may be shifted towards noise, as larger images need: t -> s t / (1 + (s - 1) t).
Source: Esser et al. 2024 (SD3), sections 3.1 (logit-normal) and 5.3.2 (shift).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headway.spec.parts import ObjectiveSpec


def timesteps(spec: ObjectiveSpec, u: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    """Training timesteps [b] of [0, 1] from uniform draws u [b] of (0, 1), by the inverse of the distribution's cdf, in u's format.

    Computed in float64 and rounded once.
    """
    wide = u.double()
    t = logit_normal(wide, spec.logit_mean, spec.logit_std) if spec.schedule == "logit_normal" else wide
    return shift(t, spec.shift).to(u.dtype)


def logit_normal(u: Float[Tensor, " b"], mean: float, std: float) -> Float[Tensor, " b"]:
    """t = sigmoid(mean + std z), z = Phi^-1(u) standard normal."""
    return torch.sigmoid(mean + std * torch.special.ndtri(u))


def shift(t: Float[Tensor, " n"], s: float) -> Float[Tensor, " n"]:
    """s t / (1 + (s - 1) t), s > 0: keeps 0 and 1, moves the rest towards noise for s > 1."""
    return s * t / (1 + (s - 1) * t)


def sampling_times(num_steps: int, s: float = 1.0, *, device: torch.device | str = "cpu") -> Float[Tensor, " n"]:
    """num_steps + 1 times from 1 (noise) down to 0 (data), evenly spaced, then shifted by s."""
    assert num_steps >= 1
    return shift(torch.linspace(1, 0, num_steps + 1, dtype=torch.float64), s).to(device=device, dtype=torch.float32)
