"""Objectives: `loss(roles, batch, draw) -> LossOut`. A function of named networks, a micro-batch and keyed draws; never a trainer.

The caller sums `loss_sum` and `count` over micro-batches and ranks and divides once, so that the loss does not depend on the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headway.diffusion import path, schedule
from headway.kernels.draw import Draw
from headway.spec.errors import SpecError
from headway.spec.locate import is_own, locate
from headway.spec.parts import ObjectiveSpec

CONDITIONS = ("label", "text")  # batch keys that a network may be told


@dataclass(frozen=True, kw_only=True)
class LossOut:
    """The loss of a micro-batch: its sum over `count` elements (with a gradient), and per sample [b] its mean and its timestep."""

    loss_sum: Float[Tensor, ""]
    count: int
    per_sample: Float[Tensor, " b"]
    t: Float[Tensor, " b"]
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


Objective = Callable[[Mapping[str, nn.Module], Mapping[str, Tensor], Draw], LossOut]


def build(spec: ObjectiveSpec) -> Objective:
    """The objective of `spec`. A user's own is `fn(spec) -> objective`. Raises SpecError if there is none."""
    maker: Any = locate(spec.name) if is_own(spec.name) else OBJECTIVES.get(spec.name)
    if maker is None:
        raise SpecError(f"--objective.name '{spec.name}' is not known", fix=f"Use {', '.join(OBJECTIVES)}, or your own as path.py:fn.")
    objective = maker(spec)
    if not callable(objective):
        raise SpecError(
            f"returned {type(objective).__name__}, not a function",
            where=f"--objective.name {spec.name}",
            fix="It takes the ObjectiveSpec and returns loss(roles, batch, draw) -> LossOut.",
        )
    return _checked(objective, spec.name) if is_own(spec.name) else objective


def _checked(objective: Objective, name: str) -> Objective:
    """A user's own objective, which may return anything."""

    def loss(roles: Mapping[str, nn.Module], batch: Mapping[str, Tensor], draw: Draw) -> LossOut:
        out: Any = objective(roles, batch, draw)
        if not isinstance(out, LossOut):
            fix = "It is loss(roles, batch, draw) -> LossOut (headway.diffusion.objective)."
            raise SpecError(f"gave a {type(out).__name__}, not a LossOut", where=f"--objective.name {name}", fix=fix)
        return out

    return loss


def flow(spec: ObjectiveSpec) -> Objective:
    """Flow matching: the squared distance of the student's velocity from eps - x0, at a drawn t and noise."""

    def loss(roles: Mapping[str, nn.Module], batch: Mapping[str, Tensor], draw: Draw) -> LossOut:
        x0 = batch["image"]
        t = schedule.timesteps(spec, draw.uniform("timestep"))
        eps = draw.normal("noise", x0.shape[1:], dtype=x0.dtype)
        v = roles["student"](path.interpolate(x0, eps, t), t, condition(batch, draw, spec.condition_dropout))
        return squared_error(v, path.velocity(x0, eps), t)

    return loss


OBJECTIVES: dict[str, Callable[[ObjectiveSpec], Objective]] = {"flow": flow}


def condition(batch: Mapping[str, Tensor], draw: Draw, dropout: float) -> dict[str, Tensor]:
    """What the network is told of `batch`; "drop" [b] bool marks the share `dropout` of samples that it is told nothing of."""
    told = {key: batch[key] for key in CONDITIONS if key in batch}
    return told | {"drop": draw.uniform("condition_dropout") < dropout} if told and dropout > 0 else told


def squared_error(prediction: Float[Tensor, "b *d"], target: Float[Tensor, "b *d"], t: Float[Tensor, " b"]) -> LossOut:
    """|prediction - target|^2 over all elements, in the wider of the two formats and never shorter than float32."""
    error = (prediction - target).to(torch.promote_types(prediction.dtype, torch.float32)).square()
    return LossOut(loss_sum=error.sum(), count=error.numel(), per_sample=error.detach().flatten(1).mean(1), t=t)
