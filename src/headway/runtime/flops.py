"""FLOPs of a training step, counted on the meta device: every network that the objective calls, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from headway.data.dataset import Dataset
from headway.data.loader import fields
from headway.diffusion import objective
from headway.kernels.draw import Draw
from headway.parallel import remat
from headway.runtime.build import bare_network
from headway.runtime.graph import NeedsValues
from headway.spec.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class Flops:
    """FLOPs of one sample. A multiply-add counts two."""

    model: float  # what the mathematics asks for: of these MFU is the share of the peak
    hardware: float  # what the device does, with the forwards that activation checkpointing repeats: of these HFU is


def flops_per_sample(spec: RunSpec, data: Dataset, *, batch: int = 2) -> Flops:
    """FLOPs of one sample under the objective of `spec`; frozen roles count their forward.

    Raises NeedsValues for an objective or a network that looks at values while it runs.
    """
    model = _count(spec, data, batch, "none")
    return Flops(model=model, hardware=model if spec.remat.mode == "none" else _count(spec, data, batch, spec.remat.mode))


def _count(spec: RunSpec, data: Dataset, batch: int, mode: str) -> float:
    trained = {"student": True} | {role.name: role.trained for role in spec.roles}
    with torch.device("meta"), torch.enable_grad():
        networks = {name: bare_network(spec, data).requires_grad_(on).train(on) for name, on in trained.items()}
        for name, on in trained.items():
            remat.apply(networks[name], spec.remat.mode if on and mode != "none" else "none")
        rows = {key: torch.empty(batch, *shape, dtype=dtype) for key, (shape, dtype) in fields(data).items()}
        draw = Draw(seed=spec.seed, data=data.name, sample_id=rows["sample_id"], visit=rows["visit"])
        try:
            with FlopCounterMode(display=False) as counter:
                objective.build(spec.objective)(networks, rows, draw).loss_sum.backward()
        except (NotImplementedError, RuntimeError) as error:
            raise NeedsValues(f"cannot be run on the meta device: {error}", where=f"objective {spec.objective.name}") from error
    return float(counter.get_total_flops()) / batch
