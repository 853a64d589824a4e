"""Recorded graphs: FLOPs against torch's counter and a formula, modules, kinds, bytes, what is kept."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from headway.nn.dit import TIME_FEATURES, DiT
from headway.runtime.graph import record
from headway.spec.errors import RunError
from headway.spec.graph import OpGraph, to_json

DIGITS: dict[str, object] = {
    "depth": 4,
    "width": 128,
    "heads": 4,
    "patch": 2,
    "mlp_ratio": 4.0,
    "channels": 1,
    "size": 8,
    "num_classes": 10,
}
SHAPES: list[dict[str, object]] = [
    {},
    {"num_classes": 0, "text_dim": 24},
    {"num_classes": 0},
    {"depth": 1, "width": 48, "heads": 3, "patch": 1, "mlp_ratio": 1.7},
    {"depth": 2, "width": 64, "heads": 2, "patch": 4, "channels": 3, "size": 32, "num_classes": 1000},
]


def dit(**changes: object) -> DiT:
    with torch.device("meta"):
        return DiT(**(DIGITS | changes))  # type: ignore[arg-type]


def graph(network: DiT, batch: int = 3, **changes: object) -> OpGraph:
    sizes = DIGITS | changes
    return record(network, batch=batch, channels=int(sizes["channels"]), size=int(sizes["size"]))  # type: ignore[call-overload]


def formula(*, depth: int, width: int, patch: int, mlp_ratio: float, channels: int, size: int, text_dim: int = 0, **_: object) -> int:
    """FLOPs of a sample. A multiply-add is 2; backward costs twice the forward, but once where the input has no gradient."""
    tokens, pixels, hidden = (size // patch) ** 2, channels * patch * patch, round(mlp_ratio * width)
    first = pixels * width * tokens + TIME_FEATURES * width + text_dim * width  # layers whose input is data
    attention = 2 * tokens * tokens * width
    block = tokens * (3 * width * width + width * width + 2 * width * hidden) + attention + 6 * width * width
    last = 2 * width * width + tokens * width * pixels
    return 2 * (2 * first + 3 * (width * width + depth * block + last))


@pytest.mark.parametrize("changes", SHAPES)
def test_flops_equal_torchs_counter_and_the_formula(changes: dict[str, object]) -> None:
    network = dit(**changes)
    got = graph(network, **changes)
    sizes = DIGITS | changes
    x = torch.empty(3, sizes["channels"], sizes["size"], sizes["size"], device="meta")  # type: ignore[arg-type]
    condition = {key: torch.empty(3, *shape, dtype=dtype, device="meta") for key, (shape, dtype) in network.needs.items()}
    with FlopCounterMode(display=False) as counter:
        v = network(x, torch.empty(3, device="meta"), condition)
        v.backward(torch.ones_like(v))
    assert got.flops == counter.get_total_flops()
    assert got.flops_per_sample == formula(**sizes)  # type: ignore[arg-type]
    assert got.num_parameters == sum(p.numel() for p in network.parameters())


def test_every_module_gets_its_own_flops_forward_and_backward() -> None:
    got = graph(dit())
    by_module: dict[str, dict[str, int]] = {}
    for op in got.ops:
        phases = by_module.setdefault(op.module, {"forward": 0, "backward": 0})
        phases[op.phase] += op.flops
    up = 3 * 2 * 16 * 128 * 512  # batch x multiply-add x tokens x width x hidden
    for i in range(4):
        assert by_module[f"blocks.{i}.mlp.up"] == {"forward": up, "backward": 2 * up}
        assert by_module[f"blocks.{i}.attention"] == {"forward": 3 * 4 * 16 * 16 * 128, "backward": 3 * 8 * 16 * 16 * 128}
    embed = 3 * 2 * 16 * 4 * 128
    assert by_module["patch_in"] == {"forward": embed, "backward": embed}  # pixels have no gradient
    paths = {name for name, _ in dit().named_modules()}
    assert set(by_module) <= paths


def test_kinds() -> None:
    got = graph(dit())
    flops_of = {kind: sum(op.flops for op in got.ops if op.kind == kind) for kind in {op.kind for op in got.ops}}
    assert flops_of["attention"] == 4 * 3 * (3 * 4 * 16 * 16 * 128)
    assert flops_of["gemm"] + flops_of["attention"] == got.flops
    assert {(op.kind, op.phase) for op in got.ops} >= {(k, p) for k in ("norm", "embedding", "attention") for p in ("forward", "backward")}
    assert all(op.module.endswith("_norm") for op in got.ops if op.name in ("aten.rsqrt", "aten.pow") and op.kind == "norm")
    assert not [op for op in got.ops if op.name in ("aten.view", "aten.t", "aten.transpose", "aten.expand", "aten.detach")]


class Two(nn.Module):
    """Two linear layers without bias around a square: all of it can be counted by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 32, bias=False), nn.Linear(32, 64, bias=False)

    def forward(self, x: Tensor, t: Tensor, condition: Mapping[str, Tensor]) -> Tensor:
        h = self.a(x.flatten(1))
        return self.b(h * h).view(x.shape) * t.view(-1, 1, 1, 1)  # type: ignore[no-any-return]


def test_bytes_and_kept_activations_by_hand() -> None:
    with torch.device("meta"):
        network = Two()
    got = record(network, batch=2, channels=1, size=8)
    by_name = [(op.name, op.phase, op.module, op.shapes, op.bytes) for op in got.ops]
    x, w, h = 2 * 64 * 4, 64 * 32 * 4, 2 * 32 * 4
    assert by_name[:4] == [
        ("aten.mm", "forward", "a", ((2, 64), (64, 32)), x + w + h),
        ("aten.mul", "forward", "", ((2, 32), (2, 32)), 3 * h),
        ("aten.mm", "forward", "b", ((2, 32), (32, 64)), h + w + x),
        ("aten.mul", "forward", "", ((2, 1, 8, 8), (2, 1, 1, 1)), x + 2 * 4 + x),
    ]
    assert [n[1:3] for n in by_name if n[0] == "aten.mm"][2:] == [("backward", "b")] * 2 + [("backward", "a")]
    # kept: x by a; h (once, though it is used twice) and t by the root; h * h by b; weights are not activations
    assert got.saved_bytes == {"a": x, "": h + 2 * 4, "b": h}
    assert got.axes == {"a.weight": ("none", "none"), "b.weight": ("none", "none")}


def test_kept_activations_grow_with_the_batch_and_follow_the_format() -> None:
    one, two = (sum(graph(dit(), batch=b).saved_bytes.values()) for b in (64, 128))
    assert 1.95 < two / one <= 2
    short = sum(graph(dit().bfloat16(), batch=128).saved_bytes.values())
    assert 0.5 < short / two < 0.9


def test_expanded_inputs_are_read_once() -> None:
    class Add(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.empty(1, device="meta"))

        def forward(self, x: Tensor, t: Tensor, condition: Mapping[str, Tensor]) -> Tensor:
            return x + self.bias.expand(x.shape)

    got = record(Add(), batch=2, channels=1, size=4)
    assert [op.bytes for op in got.ops if op.phase == "forward"] == [2 * 16 * 4 * 2 + 4]


def test_the_network_is_left_as_it_was() -> None:
    network = dit()
    first, second = graph(network), graph(network)
    assert first == second
    assert all(p.grad is None for p in network.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())


def test_without_gradients_around_it() -> None:
    with torch.no_grad():
        assert graph(dit()).flops == graph(dit()).flops > 0


def test_a_network_that_looks_at_values_is_refused() -> None:
    class Looks(Two):
        def forward(self, x: Tensor, t: Tensor, condition: Mapping[str, Tensor]) -> Tensor:
            return super().forward(x, t, condition) if t[0].item() > 0.5 else x

    with torch.device("meta"):
        network = Looks()
    with pytest.raises(RunError, match=r"Looks: cannot be run on the meta device: .*meta.*\.item\(\)"):
        record(network, batch=2, channels=1, size=8)
    assert not any(m._forward_hooks for m in network.modules())


def test_a_network_that_returns_something_else_is_refused() -> None:
    class Flat(Two):
        def forward(self, x: Tensor, t: Tensor, condition: Mapping[str, Tensor]) -> Tensor:
            return super().forward(x, t, condition).flatten(1)

    with torch.device("meta"):
        network = Flat()
    with pytest.raises(RunError, match=r"Flat: returned \(2, 64\), not a velocity of shape \(2, 1, 8, 8\)"):
        record(network, batch=2, channels=1, size=8)


def test_a_frozen_network_has_no_backward() -> None:
    got = graph(dit().requires_grad_(False))
    assert {op.phase for op in got.ops} == {"forward"} and got.saved_bytes == {}


def test_a_network_with_values_is_refused() -> None:
    with pytest.raises(AssertionError, match="meta"):
        record(Two(), batch=2, channels=1, size=8)


def test_json() -> None:
    got = graph(dit(depth=1))
    data = to_json(got)
    assert data["schema"] == "headway.graph/1" and data["flops"] == got.flops and len(data["ops"]) == len(got.ops)


@pytest.mark.parametrize(
    "changes", [{}, {"depth": 28, "width": 1152, "heads": 16, "channels": 4, "size": 32, "num_classes": 1000}], ids=["digits", "dit-xl"]
)
def test_it_takes_less_than_two_seconds(changes: dict[str, object]) -> None:
    start = time.process_time()
    graph(dit(**changes), **changes)
    assert time.process_time() - start < 2
