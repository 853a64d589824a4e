"""A small network with the traits of a transformer: blocks, a position table with a tiny dim 0, norms, a class table, an fp32 timestep."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from headway.parallel import fsdp
from headway.spec.parts import MeshSpec

WIDTH, TOKENS, CLASSES, BATCH = 12, 5, 7, 24


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 20)
        self.down = nn.Linear(20, WIDTH)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x) + c[:, None])))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(1, TOKENS, WIDTH))
        self.label = nn.Embedding(CLASSES, WIDTH)
        self.time = nn.Linear(1, WIDTH)
        self.enter = nn.Linear(3, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.leave = nn.Linear(WIDTH, 3)
        self.register_buffer("gain", torch.tensor([0.5, 1.0, 2.0]), persistent=False)
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        dtype = self.enter.weight.dtype
        self.seen = [x.dtype, t.dtype, dtype]
        c = self.time(torch.cos(t)[:, None].to(dtype)) + self.label(label)
        h = self.enter(x.to(dtype)) + self.position
        for block in self.blocks:
            h = block(h, c)
        return self.leave(h) * self.gain

    def axes(self) -> dict[str, tuple[str, ...]]:
        return {"position": ("none", "token", "embed"), "label.weight": ("class", "embed")}


def make(dtype: torch.dtype = torch.float64, seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net().to(dtype)


def batch(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, TOKENS, 3, generator=generator, dtype=dtype)
    t = torch.rand(BATCH, generator=generator, dtype=dtype)
    label = torch.randint(CLASSES, (BATCH,), generator=generator)
    return x, t, label, torch.randn(x.shape, generator=generator, dtype=dtype)


def loss_sum(net: nn.Module, rows: slice, dtype: torch.dtype = torch.float64) -> Tensor:
    """Sum of squared errors of some rows of the global batch."""
    x, t, label, target = (a[rows] for a in batch(dtype))
    return (net(x, t, label).to(dtype) - target).square().sum()


LAYOUTS = [MeshSpec(), *(MeshSpec(dp_shard=n) for n in (2, 3, 4)), MeshSpec(dp_replicate=2), MeshSpec(dp_replicate=2, dp_shard=2)]


def materialise(network: nn.Module, full: Mapping[str, Tensor]) -> nn.Module:
    """`network` itself, taken from the meta device to the CPU, every parameter and buffer written from `full` (by name)."""
    network.to_empty(device="cpu")
    for name, tensor in itertools.chain(network.named_parameters(), network.named_buffers()):
        fsdp.write_full(tensor, full[name])
    return network
