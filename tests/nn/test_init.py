"""First weights: the same whatever the order, the format or the layout."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from headway.nn.dit import DiT
from headway.nn.init import first_value, init_weights
from tests.ranks import run_ranks


def dit(depth: int = 2, **changes: int) -> DiT:
    return DiT(depth=depth, width=32, heads=4, patch=2, mlp_ratio=2.0, channels=1, size=8, **({"num_classes": 10} | changes))


def weights(network: nn.Module, seed: int = 0, mode: str = "perturbed") -> dict[str, torch.Tensor]:
    init_weights(network, seed=seed, mode=mode)  # type: ignore[arg-type]
    return {n: p.detach().clone() for n, p in network.named_parameters()}


def test_weights_depend_on_seed_and_name_alone() -> None:
    one = weights(dit())
    torch.manual_seed(99)
    deeper = weights(dit(depth=4))
    other = weights(dit(), seed=1)
    for name, value in one.items():
        assert torch.equal(value, deeper[name]), name
        if not name.endswith("_norm.weight"):
            assert not torch.equal(value, other[name]), name
    assert not torch.equal(one["blocks.0.mlp.up.weight"], one["blocks.1.mlp.up.weight"])


def test_float64_holds_the_float32_values() -> None:
    single, double = weights(dit()), weights(dit().double())
    assert all(torch.equal(double[n], single[n].double()) for n in single)


def test_zero_mode_zeroes_gates_output_and_biases_only() -> None:
    zero = {n for n, v in weights(dit(), mode="zero").items() if not v.any()}
    expected = {n for n, _ in dit().named_parameters() if n.endswith(("bias", "modulation.weight")) or n == "patch_out.weight"}
    assert zero == expected
    assert not [n for n, v in weights(dit(), mode="perturbed").items() if not v.any()]


def test_scales() -> None:
    bound = math.sqrt(6 / (64 + 192))
    linear = first_value("a.weight", (192, 64), nn.Linear(64, 192), seed=0, mode="zero")
    assert linear.abs().max() <= bound and abs(linear.std() - bound / math.sqrt(3)) < 0.01 * bound
    window = first_value("a.weight", (8, 4, 3, 3), nn.Conv2d(4, 8, 3), seed=0, mode="zero")
    assert 0.9 * math.sqrt(6 / (12 * 9)) < window.abs().max() <= math.sqrt(6 / (12 * 9))
    table = first_value("a.weight", (100, 64), nn.Embedding(100, 64), seed=0, mode="zero")
    assert abs(table.std() - 0.02) < 0.001
    assert first_value("a.weight", (5,), nn.LayerNorm(5), seed=0, mode="perturbed").tolist() == [1.0] * 5
    assert not first_value("a.bias", (5,), nn.LayerNorm(5), seed=0, mode="zero").any()


def test_a_users_network_needs_to_say_nothing() -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Conv2d(4, 1, 3))
    network.register_parameter("gain", nn.Parameter(torch.empty(())))
    got = weights(network, mode="zero")
    assert got["1.weight"].tolist() == [1.0] * 4 and got["0.weight"].std() > 0.1 and torch.isfinite(got["gain"])


def test_write_gets_every_full_tensor() -> None:
    written: dict[str, torch.Tensor] = {}
    network = dit()
    before = {n: p.detach().clone() for n, p in network.named_parameters()}
    init_weights(network, seed=0, mode="zero", write=lambda name, full: written.update({name: full}))
    after = dict(network.named_parameters())
    assert set(written) == set(after)
    assert all(torch.equal(after[n], before[n]) or before[n].isnan().any() for n in after), "write replaces the copy"
    expected = weights(dit(), mode="zero")
    assert all(torch.equal(written[n], expected[n]) for n in expected)


@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_every_value_is_finite_even_where_memory_was_not(bad: str) -> None:
    network = dit()
    with torch.no_grad():
        for p in network.parameters():
            p.fill_(float(bad))
    assert all(torch.isfinite(v).all() for v in weights(network, mode="zero").values())


def _sharded_weights(dims: tuple[int, ...]) -> dict[str, torch.Tensor]:
    mesh = init_device_mesh("cpu", dims, mesh_dim_names=("replicate", "shard")[-len(dims) :])
    with torch.device("meta"):
        network = dit(num_classes=11)  # 11 rows do not divide
    for block in network.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(network, mesh=mesh)
    network.to_empty(device="cpu")
    init_weights(network, seed=5, mode="perturbed")
    return {n: p.full_tensor().detach() for n, p in network.named_parameters()}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("world", "dims"), [(2, (2,)), (4, (2, 2))])
def test_sharded_networks_begin_with_the_same_bits(world: int, dims: tuple[int, ...]) -> None:
    expected = weights(dit(num_classes=11), seed=5)
    for got in run_ranks(_sharded_weights, world, dims):
        assert set(got) == set(expected)
        assert all(torch.equal(got[n], expected[n]) for n in expected)
