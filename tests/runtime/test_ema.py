"""The average of weights: its half-life, skipped steps, shards, and that it follows the live parameters."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor

from headway.parallel import fsdp
from headway.parallel.mesh import build_mesh
from headway.runtime.ema import Ema
from headway.spec.parts import MeshSpec, PrecisionSpec
from tests.parallel.nets import LAYOUTS, Net, loss_sum, make, materialise
from tests.ranks import run_ranks

FP64 = PrecisionSpec(compute="fp64", reduce="fp64")


def _filled(value: float, dtype: torch.dtype = torch.float64) -> nn.Linear:
    net = nn.Linear(2, 2).to(dtype)
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(value)
    return net


@pytest.mark.parametrize("batch", [1, 10, 100, 250])
def test_half_of_a_change_is_left_after_the_half_life_whatever_the_batch(batch: int) -> None:
    net = _filled(0.0)
    ema = Ema(net, half_life=1000)
    with torch.no_grad():
        net.weight.fill_(1.0)
    for _ in range(1000 // batch):
        ema.update(batch)
    assert torch.allclose(ema.weights()["weight"], torch.full((2, 2), 0.5, dtype=torch.float64), rtol=1e-12)
    assert not ema.weights()["bias"].any()


def test_it_starts_at_the_weights_and_stays_there() -> None:
    net = make(torch.float32)
    ema = Ema(net, half_life=10)
    for _ in range(3):
        ema.update(4)
    assert all(torch.equal(ema.weights()[n], p) for n, p in net.named_parameters())


def test_a_step_that_is_not_ok_changes_no_bit() -> None:
    net = make(torch.float32)
    ema = Ema(net, half_life=10)
    before = {n: t.clone() for n, t in ema.weights().items()}
    with torch.no_grad():
        for p in net.parameters():
            p.add_(1.0)
    ema.update(4, torch.tensor(False))
    assert all(torch.equal(before[n], t) for n, t in ema.weights().items())
    ema.update(4, torch.tensor(True))
    assert not any(torch.equal(before[n], t) for n, t in ema.weights().items())


def test_long_half_lives_do_not_lose_the_gain_to_rounding() -> None:
    net = _filled(0.0)
    ema = Ema(net, half_life=1e15)
    with torch.no_grad():
        net.weight.fill_(1.0)
    ema.update(1)
    assert ema.weights()["weight"][0, 0].item() == pytest.approx(0.6931471805599453e-15, rel=1e-12)


def test_writing_into_the_state_restores_the_average() -> None:
    ema, second = Ema(make(seed=0), 10), Ema(make(seed=1), 10)
    for name, tensor in second.state().items():
        tensor.copy_(ema.state()[name])
    assert all(torch.equal(second.weights()[n], t) for n, t in ema.weights().items())


def _follow(spec: MeshSpec) -> dict[str, torch.Tensor]:
    mesh = build_mesh(spec, "cpu")
    full = make()
    net = fsdp.shard(Net().double().to("meta"), mesh, FP64, reshard=True)
    materialise(net, dict(full.named_parameters()) | dict(full.named_buffers()))
    ema = Ema(net, half_life=100)  # before the first forward, at which FSDP moves uneven shards
    for _ in range(2):
        loss_sum(net, slice(None)).backward()
        with torch.no_grad():
            for p in net.parameters():
                fsdp.local(p).add_(1.0)
        ema.update(50, torch.tensor(True))
    with torch.no_grad():
        loss_sum(net, slice(None))  # leaves the root gathered
    assert all(isinstance(p, DTensor) == (spec.world > 1) for p in fsdp.parameters_of(net).values())
    return {n: t.full_tensor() if isinstance(t, DTensor) else t for n, t in ema.weights().items()}


@pytest.mark.parametrize("spec", LAYOUTS, ids=lambda s: f"{s.dp_replicate}x{s.dp_shard}")
def test_it_follows_sharded_parameters(spec: MeshSpec) -> None:
    d = 0.5**0.5
    want = {n: p + (1 - d) * d + (1 - d) * 2 for n, p in make().named_parameters()}
    for got in run_ranks(_follow, spec.world, spec):
        assert got.keys() == want.keys()
        assert max((got[n] - want[n]).abs().max().item() for n in want) < 1e-14
