"""The first weights of a network: a pure function of (seed, parameter name, shape).

Each parameter has a generator of its own, keyed by the seed and its name, so that neither the order of construction, nor the layout, nor
another parameter more changes it: one process or many begin with bitwise equal weights, and a float64 network with the float32 values.
Numbers are drawn on the CPU, one whole parameter at a time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

EMBEDDING_STD: Final = 0.02
PERTURBED_STD: Final = 0.02

Write = Callable[[str, Tensor], None]
_ONES: Final = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


@torch.no_grad()
def init_weights(network: nn.Module, *, seed: int, mode: Literal["zero", "perturbed"], write: Write | None = None) -> None:
    """Gives every parameter of a materialised `network` its first value.

    Matrices are Xavier-uniform, embeddings and free parameters N(0, 0.02^2), norms one, biases zero, and zero is what the network's own
    `zeros()` names (patterns of parameter names). mode "perturbed": N(0, 0.02^2) instead of zero, so that no gradient is zero.

    `write(name, full)` puts the full tensor [float32, CPU] in place; by default it is copied, or, into a DTensor, the local part of it.
    """
    parameters = dict(network.named_parameters())
    put = write or (lambda name, full: copy_into(parameters[name], full))
    zeros: tuple[str, ...] = network.zeros() if hasattr(network, "zeros") else ()  # type: ignore[operator]
    for name, parameter in parameters.items():
        owner = network.get_submodule(name.rpartition(".")[0])
        zero = any(fnmatchcase(name, pattern) for pattern in zeros)
        put(name, first_value(name, tuple(parameter.shape), owner, seed=seed, mode=mode, zero=zero))


def first_value(name: str, shape: tuple[int, ...], owner: nn.Module, *, seed: int, mode: str, zero: bool = False) -> Tensor:
    """The first value of one parameter of the module `owner`: float32 on the CPU."""
    leaf = name.rpartition(".")[2]
    full = torch.empty(shape, dtype=torch.float32, device="cpu")
    generator = torch.Generator().manual_seed(key(seed, name))
    if zero or leaf == "bias":
        return full.zero_() if mode == "zero" else full.normal_(0.0, PERTURBED_STD, generator=generator)
    if isinstance(owner, _ONES) and leaf == "weight":
        return full.fill_(1.0)
    if isinstance(owner, nn.Embedding) or len(shape) < 2:
        return full.normal_(0.0, EMBEDDING_STD, generator=generator)
    # Glorot and Bengio 2010: bound = sqrt(6 / (fan_in + fan_out)); a convolution's fans count its window
    window = math.prod(shape[2:])
    bound = math.sqrt(6.0 / ((shape[0] + shape[1]) * window))
    return full.uniform_(-bound, bound, generator=generator)


def key(seed: int, name: str) -> int:
    """Seed of the generator of the parameter `name`."""
    return int.from_bytes(blake2b(json.dumps([seed, "init", name]).encode(), digest_size=8).digest(), "little", signed=True)


def copy_into(parameter: Any, full: Tensor) -> None:
    """`full` into `parameter`; of a DTensor each rank writes its own part, without communication."""
    if hasattr(parameter, "device_mesh"):
        from torch.distributed.tensor import distribute_tensor

        full = full.to(device=parameter.device, dtype=parameter.dtype)
        full = distribute_tensor(full, parameter.device_mesh, parameter.placements, src_data_rank=None)
    parameter.copy_(full)
