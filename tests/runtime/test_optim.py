"""Decay groups, the learning rate, steps that the device skips."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.tensor import DTensor

from headway.parallel import fsdp
from headway.parallel.mesh import build_mesh
from headway.runtime import optim
from headway.spec.parts import MeshSpec, OptimSpec, PrecisionSpec
from tests.parallel.nets import BATCH, LAYOUTS, Net, loss_sum, make, materialise
from tests.ranks import run_ranks

FP64 = PrecisionSpec(compute="fp64", reduce="fp64")
SPEC = OptimSpec(lr=0.1, weight_decay=0.5)


def _full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.detach().clone()


def test_matrices_decay_and_nothing_else() -> None:
    net = make()
    names = {id(p): n for n, p in net.named_parameters()}
    decayed, plain = ([names[id(p)] for p in g] for g in optim.groups(net))
    assert decayed == ["time.weight", "enter.weight", *(f"blocks.{i}.{m}.weight" for i in range(3) for m in ("up", "down")), "leave.weight"]
    assert "position" in plain and "label.weight" in plain and "blocks.0.norm.weight" in plain and "enter.bias" in plain
    assert len(decayed) + len(plain) == len(names)


def test_frozen_parameters_are_in_no_group_and_embeddings_are_known_without_axes() -> None:
    net = nn.ModuleDict({"table": nn.Embedding(3, 2), "matrix": nn.Linear(2, 2), "frozen": nn.Linear(2, 2).requires_grad_(False)})
    decayed, plain = optim.groups(net)
    assert [p.shape for p in decayed] == [(2, 2)] and [p.shape for p in plain] == [(3, 2), (2,)]
    only_vectors = optim.build_optimizer(nn.LayerNorm(3), SPEC, 0.1)
    assert [g["decays"] for g in only_vectors.param_groups] == [False]


@given(
    st.builds(
        OptimSpec,
        lr=st.floats(1e-6, 1.0),
        warmup=st.integers(0, 50),
        decay=st.sampled_from(["constant", "cosine", "linear"]),
        decay_samples=st.integers(0, 300),
        final_lr=st.floats(0, 1),
    ),
    st.integers(0, 400),
    st.integers(1, 200),
)
def test_learning_rate_stays_in_bounds_and_never_rises_after_the_warm_up(spec: OptimSpec, seen: int, total: int) -> None:
    now, later = optim.learning_rate(spec, seen, total), optim.learning_rate(spec, seen + 1, total)
    assert 0 <= now <= spec.lr * (1 + 1e-12)
    if seen >= spec.warmup:
        assert later <= now * (1 + 1e-12)
        assert now >= spec.lr * spec.final_lr * (1 - 1e-12)
    if spec.decay != "constant" and seen >= total >= spec.warmup:
        assert now == pytest.approx(spec.lr * spec.final_lr, abs=1e-15)


def test_learning_rate_worked() -> None:
    spec = OptimSpec(lr=2.0, warmup=10, decay="linear", final_lr=0.5)
    assert [optim.learning_rate(spec, s, 110) for s in (0, 5, 10, 60, 110, 999)] == [0.0, 1.0, 2.0, 1.5, 1.0, 1.0]
    spec = OptimSpec(lr=2.0, decay="cosine", decay_samples=50)
    assert [optim.learning_rate(spec, s, 100) for s in (0, 50, 100)] == [2.0, 2.0, 0.0]
    assert optim.learning_rate(spec, 75, 100) == pytest.approx(1.0)
    assert optim.learning_rate(OptimSpec(lr=2.0), 10**9, 1) == 2.0


def test_set_lr_touches_decay_only_where_it_is_meant() -> None:
    optimizer = optim.build_optimizer(make(), SPEC, 0.1)
    optim.set_lr(optimizer, 0.2, 0.7)
    assert [(g["lr"], g["weight_decay"]) for g in optimizer.param_groups] == [(0.2, 0.7), (0.2, 0.0)]
    optim.set_lr(optimizer, 0.3)
    assert [(g["lr"], g["weight_decay"]) for g in optimizer.param_groups] == [(0.3, 0.7), (0.3, 0.0)]


def _train(spec: MeshSpec, oks: list[bool], dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    """Parameters and state after one step for each of `oks`; where false the gradients are NaN."""
    mesh = build_mesh(spec, "cpu")
    full = make(dtype)
    net = fsdp.shard(Net().to(dtype).to("meta"), mesh, FP64, reshard=True)
    materialise(net, dict(full.named_parameters()) | dict(full.named_buffers()))
    optimizer = optim.build_optimizer(net, SPEC, 0.1)
    rows = BATCH // mesh.data_parallel
    for ok in oks:
        loss_sum(net, slice(mesh.data_rank * rows, (mesh.data_rank + 1) * rows), dtype).backward()
        if not ok:
            for p in net.parameters():
                fsdp.local(p.grad).fill_(math.nan)  # type: ignore[arg-type]
        optim.step(optimizer, torch.tensor(ok))
        optimizer.zero_grad(set_to_none=True)
    state = optim.state(net, optimizer)
    assert all(t.dtype == dtype for s in state.values() for k, t in s.items() if k != "step")
    return {n: _full(p) for n, p in net.named_parameters()} | {f"{n}/{k}": _full(t) for n, s in state.items() for k, t in s.items()}


@pytest.mark.parametrize("spec", [LAYOUTS[i] for i in (0, 2, 4, 5)], ids=lambda s: f"{s.dp_replicate}x{s.dp_shard}")
def test_a_step_that_is_not_ok_changes_no_bit(spec: MeshSpec) -> None:
    skipped = run_ranks(_train, spec.world, spec, [False, True, False, False, True])
    plain = run_ranks(_train, spec.world, spec, [True, True])
    for a, b in zip(skipped, plain, strict=True):
        assert a.keys() == b.keys()
        assert all(torch.equal(a[k], b[k]) for k in a)
        assert a["position/step"].item() == 2.0


def test_state_starts_empty_and_stays_so_when_the_first_step_is_skipped() -> None:
    got, start = _train(MeshSpec(), [False]), dict(make().named_parameters())
    assert all(torch.equal(got[n], start[n]) for n in start)
    assert all(not got[k].any() for k in got if "/" in k)


@pytest.mark.parametrize("spec", LAYOUTS[1:], ids=lambda s: f"{s.dp_replicate}x{s.dp_shard}")
def test_training_does_not_depend_on_the_layout(spec: MeshSpec) -> None:
    want = _train(MeshSpec(), [True] * 3)
    for got in run_ranks(_train, spec.world, spec, [True] * 3):
        assert max(((got[k] - want[k]).abs().max() / want[k].abs().max()).item() for k in want) < 1e-11


def test_adamw_is_that_of_its_equations() -> None:
    net = nn.Linear(2, 1, bias=False)
    w = net.weight.detach().double().clone()
    optimizer = optim.build_optimizer(net, OptimSpec(weight_decay=0.1, eps=1e-8), 0.01)
    m = v = torch.zeros_like(w)
    for n in range(1, 4):
        net.weight.grad = torch.tensor([[1.0, -2.0 * n]])
        g = net.weight.grad.double()
        optim.step(optimizer, torch.tensor(True))
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g  # Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2
        w = w * (1 - 0.01 * 0.1) - 0.01 * (m / (1 - 0.9**n)) / ((v / (1 - 0.99**n)).sqrt() + 1e-8)
    assert torch.allclose(net.weight.double(), w, atol=1e-6)
