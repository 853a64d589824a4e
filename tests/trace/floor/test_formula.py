"""Formulas against torch's own counter, against bytes counted by hand, and their table against its examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from headway.trace.floor import formula
from headway.trace.floor.formula import RULES, cost
from headway.trace.floor.inputs import Dims, inputs

F32, BF16 = "float", "c10::BFloat16"


def of(name: str, *dims: Any, types: Sequence[str] | None = None, out: Dims | None = None) -> formula.Cost:
    found = cost(name, inputs(dims, types or [F32] * len(dims), out))
    assert found is not None, name
    return found


def counted(function: Any, *shapes: tuple[int, ...], **options: Any) -> int:
    with torch.device("meta"):
        tensors = [torch.empty(s) for s in shapes]
    with FlopCounterMode(display=False) as counter:
        function(*tensors, **options)
    return int(counter.get_total_flops())


@pytest.mark.parametrize(
    ("name", "function", "shapes"),
    [
        ("aten::mm", torch.mm, [(7, 5), (5, 3)]),
        ("aten::bmm", torch.bmm, [(4, 7, 5), (4, 5, 3)]),
        ("aten::addmm", torch.addmm, [(3,), (7, 5), (5, 3)]),
        ("aten::baddbmm", torch.baddbmm, [(4, 7, 3), (4, 7, 5), (4, 5, 3)]),
        ("aten::linear", torch.nn.functional.linear, [(2, 7, 5), (3, 5)]),
    ],
)
def test_products_count_as_torch_counts_them(name: str, function: Any, shapes: list[tuple[int, ...]]) -> None:
    assert of(name, *shapes).flops == counted(function, *shapes) > 0


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_count_as_torch_counts_them(groups: int, transposed: bool) -> None:
    function = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    x, w = (2, 4, 9, 8), ((4, 6 // groups, 3, 3) if transposed else (6, 4 // groups, 3, 3))
    options = {"stride": 2, "padding": 1, "groups": groups}
    with torch.device("meta"):
        a, b = torch.empty(x, requires_grad=True), torch.empty(w, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        y = function(a, b, **options)
    with FlopCounterMode(display=False) as backward:
        y.sum().backward()
    out = tuple(y.shape)
    assert of("aten::convolution", x, w, out=out).flops == forward.get_total_flops() > 0
    gradients = of("aten::convolution_backward", out, x, w).flops
    assert gradients == 2 * forward.get_total_flops()
    assert groups > 1 or gradients == backward.get_total_flops(), "torch forgets the groups in the gradient of the weight"
    assert of("aten::cudnn_convolution_backward", x, out, w) == of("aten::convolution_backward", out, x, w)
    assert cost("aten::convolution", inputs([x, w], [F32, F32])) is None, "without its result a convolution is unknown"


@pytest.mark.parametrize(
    "operator",
    ["_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention", "_flash_attention_forward"],
)
def test_attention_counts_as_torch_counts_it(operator: str) -> None:
    heads_last = operator.startswith("_flash")
    q, k, v = ((2, 9, 3, 8), (2, 7, 3, 8), (2, 7, 3, 8)) if heads_last else ((2, 3, 9, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    rule = flop_registry[getattr(torch.ops.aten, "_scaled_dot_product_flash_attention" if heads_last else operator)]
    plain = [(2, 3, 9, 8), (2, 3, 7, 8), (2, 3, 7, 8)]
    with torch.device("meta"):
        tensors = [torch.empty(s) for s in plain]
    expected = rule(*tensors, out_val=None)
    assert of(f"aten::{operator}", q, k, v).flops == expected > 0
    back = flop_registry[torch.ops.aten._scaled_dot_product_flash_attention_backward]
    with torch.device("meta"):
        grad = torch.empty(2, 3, 9, 8)
    name = "aten::_flash_attention_backward" if heads_last else f"aten::{operator}_backward"
    assert of(name, q, q, k, v).flops == back(grad, *tensors, out_val=None) > 0


def test_bytes_are_each_input_once_and_each_result_once() -> None:
    assert of("aten::mm", (7, 5), (5, 3), types=[BF16, BF16]) == formula.Cost(2 * 7 * 5 * 3, 2 * (35 + 15 + 21), "bf16")
    assert of("aten::add", (4, 8), (8,), []).bytes == 4 * (32 + 8 + 1 + 32)
    assert of("aten::mul_", (4, 8), [], types=[F32, "Scalar"]).bytes == 4 * (32 + 32)
    assert of("aten::copy_", (4, 8), (4, 8), types=[BF16, F32]).bytes == 32 * (2 + 4)
    assert of("aten::zero_", (4, 8)).bytes == 32 * 4
    assert of("aten::cat", [(4, 8), (2, 8)], [], types=["TensorList", "Scalar"]).bytes == 2 * 4 * 48
    assert of("aten::sum", (4, 8)).bytes == 32 * 4
    assert of("aten::lt", (4, 8), [], types=[F32, "Scalar"]).bytes == 32 * 5
    assert of("aten::native_layer_norm", (4, 8), [], (8,), (8,), types=[F32, "ScalarList", F32, F32]).bytes == 2 * 4 * 32
    assert of("aten::_softmax_backward_data", (4, 8), (4, 8)).bytes == 3 * 4 * 32
    assert of("aten::embedding", (10, 8), (5,), types=[F32, "long int"]).bytes == 2 * 5 * 8 * 4 + 5 * 8
    weights = [[(4, 8), (8,)]] * 4
    assert of("aten::_fused_adamw_", *weights, types=["TensorList"] * 4).bytes == 7 * 4 * 40


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.pattern[:30])
def test_every_example_is_found_by_its_rule_first(rule: formula.Rule) -> None:
    for name in rule.examples:
        assert formula._formula(name) is rule.formula, name


def test_what_is_not_known_has_no_cost() -> None:
    for name in ("mylib::op", "aten::view", "aten::index", "aten::nonzero"):
        assert cost(name, inputs([(4, 8)], [F32])) is None, name
    assert cost("aten::mm", inputs([], [])) is None
    assert cost("aten::mm", inputs([(2, 3), (4, 5)], [F32, F32])) is None, "dims that do not fit"
    assert cost("aten::_foreach_add_", inputs([[], []], ["TensorList", "Scalar"])) is None, "long lists are not recorded"
