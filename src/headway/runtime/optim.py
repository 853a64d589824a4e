"""AdamW: which parameters decay, the learning rate as a function of samples seen, and a step that the device itself can skip."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import nn
from torch.optim import AdamW

from headway.parallel.fsdp import axes_of, parameters_of
from headway.spec.parts import OptimSpec

TABLES: Final = ("class", "token", "position")  # logical axes of lookup tables: a row is used by few samples, decay would fade it
STATE: Final = ("step", "exp_avg", "exp_avg_sq")


def groups(network: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The trained parameters that decay, and those that do not.

    Matrices (and convolutions) decay; vectors (norms, biases) and embeddings do not. An embedding is the weight of an nn.Embedding, or
    a parameter with one of TABLES among its logical axes.
    """
    axes = axes_of(network)
    embeddings = {id(m.weight) for m in network.modules() if isinstance(m, nn.Embedding)}
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        is_table = id(parameter) in embeddings or any(axis in TABLES for axis in axes.get(name, ()))
        (plain if parameter.ndim < 2 or is_table else decayed).append(parameter)
    return decayed, plain


def build_optimizer(network: nn.Module, spec: OptimSpec, lr: float) -> AdamW:
    """Fused AdamW over the (sharded, materialised) parameters, its state allocated: a run does not run out of memory at step 1.

    Each group says under "decays" whether weight decay is for it.
    """
    decayed, plain = groups(network)
    sets = [
        {"params": decayed, "decays": True, "weight_decay": spec.weight_decay},
        {"params": plain, "decays": False, "weight_decay": 0.0},
    ]
    optimizer = AdamW([s for s in sets if s["params"]], lr=lr, betas=(spec.beta1, spec.beta2), eps=spec.eps, fused=True)
    for parameter in [*decayed, *plain]:
        zeros = torch.zeros_like(parameter, requires_grad=False)
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=zeros.device),
            "exp_avg": zeros,
            "exp_avg_sq": zeros.clone(),
        }
    return optimizer


def learning_rate(spec: OptimSpec, seen: int, total: int) -> float:
    """The learning rate after `seen` of `total` samples: lr x warm-up x decay.

    Warm-up: min(1, seen / warmup). Decay: with p = the share of the decay samples that is over, 1 -> final_lr as 1 - p (linear) or
    (1 + cos(pi p)) / 2 (cosine). The decay takes the last `decay_samples`, or all after the warm-up.
    """
    warm = min(1.0, seen / spec.warmup) if spec.warmup else 1.0
    if spec.decay == "constant":
        return spec.lr * warm
    start = max(spec.warmup, total - spec.decay_samples) if spec.decay_samples else spec.warmup
    p = min(1.0, max(0.0, (seen - start) / (total - start))) if total > start else float(seen >= total)
    shape = 1 - p if spec.decay == "linear" else (1 + math.cos(math.pi * p)) / 2
    return spec.lr * warm * (spec.final_lr + (1 - spec.final_lr) * shape)


def set_lr(optimizer: torch.optim.Optimizer, lr: float, weight_decay: float | None = None) -> None:
    """Set the learning rate, and the decay of the group that decays. Numbers of the host: the device is not asked."""
    for group in optimizer.param_groups:
        group["lr"] = lr
        if weight_decay is not None and group["decays"]:
            group["weight_decay"] = weight_decay


def step(optimizer: torch.optim.Optimizer, ok: torch.Tensor) -> None:
    """One step where `ok` (a boolean scalar on the device) holds; where not, no bit of parameters and state changes.

    The fused kernel reads the flag (`found_inf`, made for loss scaling) on the device, and takes the step counter back.
    """
    optimizer.found_inf = ok.logical_not().to(torch.float32)  # type: ignore[attr-defined]
    optimizer.step()


def state(network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, torch.Tensor]]:
    """The live state tensors by parameter name: {name: {step, exp_avg, exp_avg_sq}}. Writing into them restores the optimizer.

    Names and shapes do not depend on the layout. Learning rate and decay are not in it: they follow from the spec.
    """
    named = {n: p for n, p in parameters_of(network).items() if p in optimizer.state}
    assert len(named) == len(optimizer.state), "every parameter of the optimizer has a name in the network"
    return {n: {k: optimizer.state[p][k] for k in STATE} for n, p in named.items()}
