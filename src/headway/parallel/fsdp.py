"""FSDP2: parameters, gradients and optimizer state spread over ranks; gradients are sums over ranks, never means.

The loss of a micro-batch is (sum over its elements) / (count of the whole global batch), so the gradient of the global batch is the plain
sum over ranks and micro-batches.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from headway.parallel import rules
from headway.parallel.mesh import Mesh, single
from headway.spec.parts import PrecisionSpec

DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}


# ---- sharding ----


def shard(
    network: nn.Module, mesh: Mesh, precision: PrecisionSpec, *, reshard: bool, axes: Mapping[str, Sequence[str]] | None = None
) -> nn.Module:
    """`network` itself, spread over `mesh`: one FSDP unit for each of `network.blocks`, one for the rest.

    The network may be on the meta device (`to_empty` and `write_full` give it values). Master parameters keep their format; with
    precision.compute bf16 the gathered copies are bf16. Inputs are not cast: the timestep stays fp32 and the network casts the rest
    itself. In a run of one process nothing is done, except that bf16 goes through FSDP there too, so that its numbers do not depend on the
    layout.
    `axes` names the dims of each parameter for the rules; without it the network is asked for them.
    """
    policy = _policy(precision)
    device = mesh.fsdp or (single(mesh.device_type) if policy.param_dtype else None)
    if device is None:
        return network
    named = axes if axes is not None else axes_of(network)
    ranks = device.size(device.ndim - 1)
    dims = {id(p): rules.fsdp_dim(p.shape, named.get(name, ()), ranks) for name, p in network.named_parameters()}

    def placement(parameter: nn.Parameter) -> Shard:
        return Shard(dims[id(parameter)])

    _quiet()
    for module in [*blocks_of(network), network]:
        unit = fully_shard(module, mesh=device, reshard_after_forward=reshard, shard_placement_fn=placement, mp_policy=policy)
        unit.set_gradient_divide_factor(1.0)  # sum, not mean
        unit.set_force_sum_reduction_for_comms(True)  # a factor would else ask for PREMUL_SUM, which Gloo does not have
    return network


def set_last(network: nn.Module, last: bool) -> None:
    """Say before a micro-batch whether it is the last one of its step: only then are gradients reduced over ranks."""
    if isinstance(network, FSDPModule):
        network.set_requires_gradient_sync(last)
        network.set_is_last_backward(last)


def parameters_of(network: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters by name, sharded: a forward without a backward leaves some of them gathered, and those are other objects."""
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    return dict(network.named_parameters())


def blocks_of(network: nn.Module) -> list[nn.Module]:
    """The units of a network: the modules of `network.blocks`; none if it has no such list."""
    blocks = getattr(network, "blocks", ())
    return list(blocks) if isinstance(blocks, nn.ModuleList) else []


def axes_of(network: nn.Module) -> Mapping[str, Sequence[str]]:
    """Logical axes of the dims of each parameter, by name; empty if the network does not say."""
    axes = getattr(network, "axes", None)
    return dict(axes()) if callable(axes) else {}


# ---- values ----


def write_full(tensor: torch.Tensor, full: torch.Tensor) -> None:
    """Copy `full` into `tensor`: all of it, or this rank's shard. No communication: every rank holds `full`.

    Raises ValueError if the shapes differ.
    """
    if tensor.shape != full.shape:
        raise ValueError(f"a tensor of shape {tuple(full.shape)} does not fit into one of shape {tuple(tensor.shape)}")
    source = full.detach()
    with torch.no_grad():
        if isinstance(tensor, DTensor):
            source = source.to(local(tensor).device)
            source = local(distribute_tensor(source, tensor.device_mesh, tensor.placements, src_data_rank=None))
        local(tensor).copy_(source)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of `tensor`, sharing its memory; a plain tensor is its own part."""
    if isinstance(tensor, DTensor):
        part: torch.Tensor = tensor.to_local()
        return part
    return tensor


# ---- the gradient as one vector ----


def clip(parameters: Iterable[torch.Tensor], max_norm: float, scale: torch.Tensor | None = None) -> torch.Tensor:
    """The 2-norm of all gradients before clipping: a float64 scalar on their device, equal on all ranks. The host waits for nothing.

    g <- scale g (scale: a scalar tensor, 1 if not given), then g <- g max_norm / max(|g|, max_norm), so that nothing changes up to
    `max_norm`; 0 or infinity: no clipping. A norm that is not finite leaves no gradient finite. Any mixture of meshes and plain
    tensors; each rank adds up its own shards, then one all-reduce per mesh axis and kind of sharding adds up the ranks.
    """
    grads = [p.grad for p in parameters if p.grad is not None]
    total = norm(grads) if grads or scale is None else torch.zeros_like(scale, dtype=torch.float64)
    factor = torch.ones_like(total) if scale is None else scale.to(total)
    total = total * factor.abs()
    if 0 < max_norm < math.inf:
        factor = factor * (max_norm / total.clamp(min=max_norm))
    if scale is not None or 0 < max_norm < math.inf:
        for batch in _by_dtype([local(g) for g in grads]):
            torch._foreach_mul_(batch, factor.to(batch[0].dtype))
    return total


def norm(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The 2-norm of `tensors` taken as one vector: a float64 scalar, equal on all ranks. Squares are added in float64."""
    groups: dict[tuple[DeviceMesh, tuple[int, ...]] | None, list[torch.Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(_spread(tensor), []).append(local(tensor))
    squares = [_square(parts, spread) for spread, parts in groups.items()]
    return torch.stack(squares).sum().sqrt() if squares else torch.zeros((), dtype=torch.float64)


def _square(parts: list[torch.Tensor], spread: tuple[DeviceMesh, tuple[int, ...]] | None) -> torch.Tensor:
    norms = [torch.stack(list(torch._foreach_norm(batch))).double() for batch in _by_dtype(parts)]
    square = torch.cat(norms).square().sum()
    if spread is not None:
        mesh, axes = spread
        for axis in axes:
            dist.all_reduce(square, group=mesh.get_group(axis))
    return square


def _spread(tensor: torch.Tensor) -> tuple[DeviceMesh, tuple[int, ...]] | None:
    """The mesh and those of its axes over which the tensor is cut; None if every rank has it whole."""
    if not isinstance(tensor, DTensor):
        return None
    assert not any(p.is_partial() for p in tensor.placements), "a gradient is reduced before its norm is taken"
    axes = tuple(i for i, p in enumerate(tensor.placements) if not p.is_replicate() and tensor.device_mesh.size(i) > 1)
    return (tensor.device_mesh, axes) if axes else None


def _by_dtype(tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    groups: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return list(groups.values())


def _policy(precision: PrecisionSpec) -> MixedPrecisionPolicy:
    if precision.compute != "bf16":
        return MixedPrecisionPolicy(cast_forward_inputs=False)
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=DTYPES[precision.reduce], cast_forward_inputs=False)


def _quiet() -> None:
    # A linear layer on [b, tokens, width] returns a view. FSDP warns that an in-place operation on it would lose a hook; no network
    # here changes the output of a unit in place.
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module \(.*\) returned a view tensor", category=UserWarning)
