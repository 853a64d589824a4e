"""One optimizer step, written once for every objective, role, precision and layout.

    for each micro-batch: loss = sum over elements / nominal number of elements of the global batch; backward
    reduce (one small vector) -> clip each trained role, nominal -> true number -> its optimizer -> EMA

Nothing here waits for the device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.diffusion.objective import LossOut
from headway.kernels.draw import Draw
from headway.parallel import fsdp
from headway.runtime import optim
from headway.runtime.build import TrainState
from headway.spec.run import RunSpec
from headway.trace.emit import Emitter

Batch = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class StepOut:
    """What a step leaves behind, on the device."""

    step: int
    losses: tuple[LossOut, ...]  # of this rank's micro-batches
    total: Tensor  # [2] float64: sum of losses and number of elements over all ranks
    grad_norm: Tensor  # scalar: norm of the student's gradient
    ok: Tensor  # bool scalar: the loss and all gradients are finite; the same on all ranks
    lr: float


def step(state: TrainState, batches: Sequence[Batch], emit: Emitter) -> StepOut:
    """Train on one global batch, of which `batches` are this rank's micro-batches."""
    spec, number = state.current(), state.step
    # Any number that is the same on all ranks would do: the true one is known after the reduction, and the gradients are scaled by then.
    nominal = spec.global_batch * batches[0]["image"][0].numel()
    losses = []
    for i, batch in enumerate(batches):
        for name in state.optimizers:
            fsdp.set_last(state.roles[name], i == len(batches) - 1)
        with emit.phase("forward"):
            moved = to_device(batch, state)
            out = state.objective(state.roles, moved, draw_of(state, moved))
        with emit.phase("backward"):
            (out.loss_sum / nominal).backward()
        losses.append(detached(out))
    with emit.phase("reduce"):
        loss = sum_of(losses)
        total = state.mesh.all_sum(torch.stack([loss, torch.full_like(loss, sum(o.count for o in losses))]))  # a fill: no copy to wait for
    with emit.phase("clip"):
        scale = nominal / total[1]  # 1 where an image's elements are the loss's
        norms = [fsdp.clip(fsdp.parameters_of(state.roles[name]).values(), spec.optim.clip, scale) for name in state.optimizers]
        ok = torch.isfinite(torch.stack([*norms, total[0]])).all()
        go = torch.ones_like(ok) if spec.guard.nonfinite == "off" else ok  # whether this step changes anything
    with emit.phase("optimizer"):
        for name, lr in role_lrs(spec, state.samples).items():
            optim.set_lr(state.optimizers[name], lr, spec.optim.weight_decay)
            optim.step(state.optimizers[name], go)
            state.optimizers[name].zero_grad(set_to_none=True)
    if state.ema is not None:
        with emit.phase("ema"):
            state.ema.update(state.spec.global_batch, go)
    lr = role_lrs(spec, state.samples)["student"]
    state.samples += state.spec.global_batch
    return StepOut(step=number, losses=tuple(losses), total=total, grad_norm=norms[0], ok=ok, lr=lr)


def sum_of(losses: Sequence[LossOut]) -> Tensor:
    """Sum of the losses of some micro-batches, float64 scalar."""
    return torch.stack([o.loss_sum for o in losses]).sum(dtype=torch.float64)


def role_lrs(spec: RunSpec, seen: int) -> dict[str, float]:
    """Learning rate of every trained role after `seen` samples."""
    peaks = {"student": spec.optim.lr} | {r.name: spec.optim.lr if r.lr is None else r.lr for r in spec.roles if r.trained}
    return {n: optim.learning_rate(dataclasses.replace(spec.optim, lr=peak), seen, spec.samples) for n, peak in peaks.items()}


def draw_of(state: TrainState, batch: Batch) -> Draw:
    """The keyed draws of a micro-batch."""
    return Draw(seed=state.spec.seed, data=state.data_name, sample_id=batch["sample_id"], visit=batch["visit"])


def to_device(batch: Batch, state: TrainState) -> dict[str, Tensor]:
    """The batch on the device; images in the run's number format."""
    moved = {k: v.to(state.device, non_blocking=True) for k, v in batch.items()}
    moved["image"] = moved["image"].to(state.dtype)
    return moved


def detached(out: LossOut) -> LossOut:
    """A loss without its graph."""
    return dataclasses.replace(
        out, loss_sum=out.loss_sum.detach(), per_sample=out.per_sample.detach(), metrics={k: v.detach() for k, v in out.metrics.items()}
    )
