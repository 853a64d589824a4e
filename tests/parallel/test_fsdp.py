"""Sharded training is the training of one process: gradients are sums, on every layout, with accumulation and recomputation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from headway.parallel import fsdp, remat
from headway.parallel.mesh import Mesh, build_mesh
from headway.spec.parts import MeshSpec, PrecisionSpec
from tests.parallel.nets import BATCH, LAYOUTS, Net, batch, loss_sum, make, materialise
from tests.ranks import run_ranks

FP64 = PrecisionSpec(compute="fp64", reduce="fp64")
Grads = dict[str, torch.Tensor]


def _full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


def _build(spec: MeshSpec, precision: PrecisionSpec, dtype: torch.dtype, mode: Any = "none", reshard: bool = True) -> tuple[Net, Mesh]:
    mesh = build_mesh(spec, "cpu")
    full = make(dtype)
    with torch.device("meta"):
        net = Net().to(dtype)
    remat.apply(net, mode)
    fsdp.shard(net, mesh, precision, reshard=reshard)
    materialise(net, dict(full.named_parameters()) | dict(full.named_buffers()))
    return net, mesh


def _backward(net: Net, mesh: Mesh, accumulate: int) -> torch.Tensor:
    rows = BATCH // (mesh.data_parallel * accumulate)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(accumulate):
        fsdp.set_last(net, i == accumulate - 1)
        first = (mesh.data_rank * accumulate + i) * rows
        loss = loss_sum(net, slice(first, first + rows), net.position.dtype)
        loss.backward()
        total += loss.detach()
    return mesh.all_sum(total)


def _gradients(
    spec: MeshSpec, precision: PrecisionSpec, dtype: torch.dtype, accumulate: int, mode: str, reshard: bool
) -> tuple[float, Grads]:
    net, mesh = _build(spec, precision, dtype, mode, reshard)
    loss = _backward(net, mesh, accumulate)
    assert all(p.grad is not None for p in net.parameters())
    return loss.item(), {n: _full(p.grad) for n, p in net.named_parameters()}  # type: ignore[arg-type]


def _reference(dtype: torch.dtype = torch.float64) -> tuple[float, Grads]:
    net = make(dtype)
    loss = loss_sum(net, slice(None), dtype)
    loss.backward()
    return loss.item(), {n: p.grad for n, p in net.named_parameters()}  # type: ignore[misc]


def _error(got: Grads, want: Grads) -> float:
    assert list(got) == list(want)
    return max(((got[n] - want[n]).abs().max() / want[n].abs().max()).item() for n in want)


@pytest.mark.parametrize("spec", LAYOUTS, ids=lambda s: f"{s.dp_replicate}x{s.dp_shard}")
@pytest.mark.parametrize(("several", "mode", "reshard"), [(False, "none", True), (True, "full", True), (True, "none", False)])
def test_gradients_are_those_of_one_process(spec: MeshSpec, several: bool, mode: str, reshard: bool) -> None:
    accumulate = BATCH // (2 * spec.data_parallel) if several else 1  # micro-batches of two samples
    want_loss, want = _reference()
    for loss, got in run_ranks(_gradients, spec.world, spec, FP64, torch.float64, accumulate, mode, reshard):
        assert loss == pytest.approx(want_loss, rel=1e-14)
        assert _error(got, want) < 1e-13


def _sharded_gradient(planted: bool) -> float:
    net, mesh = _build(MeshSpec(dp_shard=2), FP64, torch.float64)
    if planted:
        for unit in [*net.blocks, net]:
            unit.set_gradient_divide_factor(2.0)  # type: ignore[union-attr, operator]
    _backward(net, mesh, 1)
    return _error({n: _full(p.grad) for n, p in net.named_parameters()}, _reference()[1])  # type: ignore[arg-type]


def test_a_mean_instead_of_a_sum_would_be_seen() -> None:
    assert max(run_ranks(_sharded_gradient, 2, False)) < 1e-13
    assert min(run_ranks(_sharded_gradient, 2, True)) == pytest.approx(0.5)


def _bf16(spec: MeshSpec) -> tuple[list[torch.dtype], set[torch.dtype], float, Grads]:
    net, mesh = _build(spec, PrecisionSpec(compute="bf16"), torch.float32)
    loss = _backward(net, mesh, 1)
    grads = {n: _full(p.grad) for n, p in net.named_parameters()}  # type: ignore[arg-type]
    norm = fsdp.norm([p.grad for p in net.parameters()])  # type: ignore[misc]
    kinds = {p.dtype for p in net.parameters()} | {g.dtype for g in grads.values()}
    return net.seen, kinds, loss.item(), {"norm": norm, **grads}


@pytest.mark.parametrize("spec", [MeshSpec(), MeshSpec(dp_shard=2), MeshSpec(dp_replicate=2, dp_shard=2)], ids=str)
def test_bf16_keeps_masters_and_timestep_in_fp32(spec: MeshSpec) -> None:
    want_loss, want = _reference(torch.float32)
    want_norm = torch.stack([g.norm() for g in want.values()]).norm().item()
    for seen, kinds, loss, got in run_ranks(_bf16, spec.world, spec):
        assert seen == [torch.float32, torch.float32, torch.bfloat16]
        assert kinds == {torch.float32}
        assert loss == pytest.approx(want_loss, rel=1e-2) and loss != want_loss
        assert got["norm"].item() == pytest.approx(want_norm, rel=1e-2)


def test_one_process_is_left_alone() -> None:
    net = make()
    assert fsdp.shard(net, build_mesh(MeshSpec(), "cpu"), FP64, reshard=True) is net
    fsdp.set_last(net, False)
    assert not any(isinstance(p, DTensor) for p in net.parameters())


def test_remat_keeps_names_and_recomputes_each_block() -> None:
    plain, net = make(), remat.apply(make(), "full")
    assert [n for n, _ in net.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert list(net.state_dict()) == list(plain.state_dict())
    calls: list[int] = []
    for i, block in enumerate(net.blocks):  # type: ignore[arg-type, union-attr]
        block.up.register_forward_hook(lambda *_, i=i: calls.append(i))
    loss_sum(net, slice(None)).backward()
    assert calls == [0, 1, 2, 2, 1, 0]


def test_remat_none_changes_nothing() -> None:
    net = remat.apply(make(), "none")
    assert all("forward" not in vars(b) for b in net.blocks)  # type: ignore[union-attr]


# ---- clipping ----


def _clip(spec: MeshSpec, max_norm: float, scale: float | None) -> tuple[float, Grads]:
    net, mesh = _build(spec, FP64, torch.float64)
    _backward(net, mesh, 1)
    loose = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))  # a plain tensor beside sharded ones
    loose.grad = torch.tensor([3.0, 0.0, 4.0], dtype=torch.float64)
    factor = None if scale is None else torch.tensor(scale, dtype=torch.float64)
    total = fsdp.clip([*net.parameters(), loose], max_norm, factor)
    assert total.shape == () and total.dtype == torch.float64
    return total.item(), {n: _full(p.grad) for n, p in net.named_parameters()} | {"loose": loose.grad}  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", [LAYOUTS[i] for i in (0, 2, 4, 5)], ids=lambda s: f"{s.dp_replicate}x{s.dp_shard}")
@pytest.mark.parametrize(("max_norm", "scale"), [(1.0, None), (1e9, 0.25), (0.0, None), (math.inf, 2.0)])
def test_clip_is_that_of_torch(spec: MeshSpec, max_norm: float, scale: float | None) -> None:
    grads = _reference()[1] | {"loose": torch.tensor([3.0, 0.0, 4.0], dtype=torch.float64)}
    grads = {n: g * (scale or 1.0) for n, g in grads.items()}
    want = torch.nn.utils.get_total_norm(list(grads.values())).item()
    if 0 < max_norm < want:
        grads = {n: g * (max_norm / want) for n, g in grads.items()}
    for total, got in run_ranks(_clip, spec.world, spec, max_norm, scale):
        assert total == pytest.approx(want, rel=1e-14)
        assert _error(got, grads) < 1e-13


def _param(grad: list[float], dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
    p = torch.nn.Parameter(torch.zeros(len(grad), dtype=dtype))
    p.grad = torch.tensor(grad, dtype=dtype)
    return p


def test_clip_below_the_limit_changes_no_bit() -> None:
    p = _param([0.1, 0.2, 0.3])
    before = p.grad.clone()  # type: ignore[union-attr]
    fsdp.clip([p], 1.0)
    assert torch.equal(p.grad, before)  # type: ignore[arg-type]


def test_clip_takes_mixed_formats_empty_shards_and_no_gradients() -> None:
    params = [_param([3.0]), _param([4.0], torch.float64), _param([]), torch.nn.Parameter(torch.zeros(2))]
    assert fsdp.clip(params, 1.0).item() == 5.0
    assert params[0].grad.item() == pytest.approx(0.6)  # type: ignore[union-attr]
    assert params[1].grad.item() == pytest.approx(0.8)  # type: ignore[union-attr]
    assert fsdp.clip([params[3]], 1.0).item() == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_says_so(bad: float) -> None:
    p = _param([1.0, bad])
    assert not fsdp.clip([p], 1.0).isfinite()


def test_squares_do_not_overflow() -> None:
    assert fsdp.clip([_param([3e30]), _param([4e30])], 0.0).item() == pytest.approx(5e30)


# ---- values ----


def _write(spec: MeshSpec) -> bool:
    net, _ = _build(spec, FP64, torch.float64)
    want = make()
    same = all(torch.equal(_full(p), q) for p, q in zip(net.parameters(), want.parameters(), strict=True))
    with pytest.raises(ValueError, match="does not fit"):
        fsdp.write_full(net.position, torch.zeros(2, 2))
    return same and torch.equal(net.gain, want.gain) and dist.is_initialized() == (spec.world > 1)


@pytest.mark.parametrize("spec", [LAYOUTS[i] for i in (0, 2, 4, 5)], ids=lambda s: f"{s.dp_replicate}x{s.dp_shard}")
def test_values_are_written_whole_or_by_shard(spec: MeshSpec) -> None:
    assert all(run_ranks(_write, spec.world, spec))


def test_batches_differ_between_rows() -> None:
    assert batch()[0].unique(dim=0).shape[0] == BATCH
