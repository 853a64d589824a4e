"""A recipe, a network, a data set, an objective and a reward of your own, in one file outside the package.

Usage:

    headway train examples/01_own_everything.py:run
    headway evaluate own --reward examples/01_own_everything.py:smoothness
    headway check examples/01_own_everything.py:run --global-batch 33 --mesh.dp-shard 2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.dataset import ArrayDataset
from headway.diffusion import path, schedule
from headway.diffusion.objective import LossOut, Objective, squared_error
from headway.kernels.draw import Draw
from headway.spec.parts import DataSpec, EmaSpec, ModelSpec, ObjectiveSpec, ObserveSpec, OptimSpec, RoleSpec
from headway.spec.run import RunSpec

HERE = __file__


def run() -> RunSpec:
    """The recipe: everything below, and a frozen copy of the network that the student must not leave too far."""
    return RunSpec(
        name="own",
        global_batch=32,
        samples=32 * 30,
        model=ModelSpec(name=f"{HERE}:mixer", width=32, condition="none", options={"hidden": 64}),
        roles=(RoleSpec(name="reference", trained=False), RoleSpec(name="critic", trained=True, lr=1e-2)),
        data=DataSpec(name=f"{HERE}:stripes", size=8, channels=1),
        objective=ObjectiveSpec(name=f"{HERE}:anchored", options={"anchor": 0.1}),
        optim=OptimSpec(lr=3e-3),
        ema=EmaSpec(half_life=200),
        observe=ObserveSpec(log_every=5),
    )


def stripes(spec: DataSpec) -> ArrayDataset:
    """512 pictures of stripes of random phase: [512, 1, 8, 8] in [-1, 1], two classes (across, down)."""
    rng = np.random.default_rng(0)
    wave = np.sin(np.arange(spec.size)[None] * 0.9 + rng.uniform(0, 6.28, (512, 1)))
    images = np.repeat(wave[:, None, :, None], spec.size, axis=3).astype(np.float32)
    labels = np.arange(512) % 2
    images[labels == 1] = images[labels == 1].transpose(0, 1, 3, 2)
    return ArrayDataset("stripes", images, labels, class_names=("across", "down"))


def mixer(model: ModelSpec, *, channels: int, size: int, num_classes: int) -> nn.Module:
    """The network: any module with forward(x [b, c, h, w], t [b], condition) -> velocity [b, c, h, w]."""
    return Mixer(channels * size * size, int(model.options["hidden"]))


class Mixer(nn.Module):
    """Two layers over all pixels and the time."""

    def __init__(self, pixels: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(pixels + 1, hidden)
        self.down = nn.Linear(hidden, pixels)

    def forward(self, x: Tensor, t: Tensor, condition: Mapping[str, Tensor]) -> Tensor:
        """Velocity of x [b, c, h, w] at t [b]."""
        flat = torch.cat((x.flatten(1), t.to(x.dtype)[:, None]), dim=1)
        return self.down(torch.tanh(self.up(flat))).view_as(x).clone()


def anchored(spec: ObjectiveSpec) -> Objective:
    """The objective: flow matching, plus a pull towards the frozen reference; the critic learns the student's error on the side."""
    anchor = float(spec.options["anchor"])

    def loss(roles: Mapping[str, nn.Module], batch: Mapping[str, Tensor], draw: Draw) -> LossOut:
        x0 = batch["image"]
        t = schedule.timesteps(spec, draw.uniform("timestep"))
        eps = draw.normal("noise", x0.shape[1:], dtype=x0.dtype)
        x_t = path.interpolate(x0, eps, t)
        v = roles["student"](x_t, t, {})
        with torch.no_grad():
            reference = roles["reference"](x_t, t, {})
        main = squared_error(v, path.velocity(x0, eps), t)
        pull = squared_error(v, reference, t)
        critic = squared_error(roles["critic"](x_t, t, {}), (v - path.velocity(x0, eps)).detach(), t)
        return LossOut(
            loss_sum=main.loss_sum + anchor * pull.loss_sum + critic.loss_sum, count=main.count, per_sample=main.per_sample, t=t,
            metrics={"pull": pull.loss_sum, "critic": critic.loss_sum},
        )  # fmt: skip

    return loss


def smoothness(images: np.ndarray, asked: Mapping[str, Any]) -> np.ndarray:
    """The reward: images [n, 1, 8, 8] in, a score [n] out; higher the less neighbouring pixels differ."""
    rough = np.abs(np.diff(images, axis=-1)).mean((1, 2, 3)) + np.abs(np.diff(images, axis=-2)).mean((1, 2, 3))
    return -rough
