"""Operator and shapes -> FLOPs and bytes: one ordered table of formulas, first match wins, examples beside each rule.

Only matrix products, convolutions and attention have FLOPs; other arithmetic never binds before memory does. Bytes are the least that
must move: every input read once, every result written once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Final

from headway.trace import classify
from headway.trace.floor.inputs import Inputs, Tensor
from headway.trace.floor.product import Cost, Formula, addmm, attention, conv, conv_backward, linear, mm, mv, scaled_mm


@dataclass(frozen=True)
class Rule:
    """Operators that `pattern` finds cost what `formula` says (None: unknown); every example must be found by this rule first."""

    pattern: str
    formula: Formula
    examples: tuple[str, ...]


# ---- what only moves bytes ----


def _moved(read: int, written: int, format: str = "fp32") -> Cost | None:
    return Cost(0, read + written, format) if read + written else None


def _widest(tensors: list[Tensor]) -> Tensor:
    """The tensor whose type the result has: the largest floating type, else the largest."""
    return max(tensors, key=lambda t: (t.format.startswith(("fp", "bf")), t.element))


def _pointwise(i: Inputs, element: int | None = None) -> Cost | None:
    """Inputs read, one result of the broadcast shape written."""
    t = i.tensors()
    if not t:
        return None
    rank = max(len(x.dims) for x in t)
    shape = [max(x.dims[len(x.dims) - rank + d] if len(x.dims) - rank + d >= 0 else 1 for x in t) for d in range(rank)]
    if any(0 in x.dims for x in t):
        return None
    wide = _widest(t)
    return _moved(sum(x.bytes for x in t), prod(shape) * (element or wide.element), wide.format)


def _compared(i: Inputs) -> Cost | None:
    return _pointwise(i, element=1)


def _in_place(i: Inputs) -> Cost | None:
    """Inputs read, the first written."""
    t = i.tensors()
    return _moved(sum(x.bytes for x in t), t[0].bytes, t[0].format) if t else None


def _written(i: Inputs) -> Cost | None:
    first = i.tensor(0)
    return _moved(0, first.bytes, first.format) if first is not None else None


def _read(i: Inputs) -> Cost | None:
    """Inputs read, a small result."""
    t = i.tensors()
    return _moved(sum(x.bytes for x in t), 0, t[0].format) if t else None


def _first_again(i: Inputs) -> Cost | None:
    """The first input read, a result of its size written."""
    first = i.tensor(0)
    return _moved(first.bytes, first.bytes, first.format) if first is not None else None


def _largest(count: int) -> Formula:
    """`count` passes over a tensor of the largest input's size: norms (in, out), their backward (gradient, input, gradient)."""

    def formula(i: Inputs) -> Cost | None:
        t = i.tensors()
        big = max(t, key=lambda x: x.bytes) if t else None
        return _moved((count - 1) * big.bytes, big.bytes, big.format) if big is not None else None

    return formula


def _joined(i: Inputs) -> Cost | None:
    """A list of tensors copied into one."""
    lists = i.lists()
    total = sum(t.bytes for t in lists[0]) if lists else 0
    return _moved(total, total)


def _embedded(table: int, index: int) -> Formula:
    """Rows of a table [rows, width] picked by an index: read and written, and the index read."""

    def formula(i: Inputs) -> Cost | None:
        w, ids = i.tensor(table), i.tensor(index)
        if w is None or ids is None or len(w.dims) < 2 or not w.dims[0]:
            return None
        row = w.bytes // w.dims[0]
        return _moved(ids.numel * row + ids.bytes, ids.numel * row, w.format)

    return formula


def _gathered(i: Inputs) -> Cost | None:
    """gather(x, dim, index): as many elements as the index has."""
    x, ids = i.tensor(0), i.tensor(2)
    return _moved(ids.numel * x.element + ids.bytes, ids.numel * x.element, x.format) if x is not None and ids is not None else None


def _lists(written: int) -> Formula:
    """All lists read, the first `written` of those that the update changes written: parameters, then moments (the gradient is second)."""

    def formula(i: Inputs) -> Cost | None:
        sums = [sum(t.bytes for t in part) for part in i.lists()]
        changed = (sums[:1] + sums[2:])[:written]
        return _moved(sum(sums), sum(changed)) if sums else None

    return formula


def _copy(i: Inputs) -> Cost | None:
    """copy_(target, source): the source read, the target written."""
    target, source = i.tensor(0), i.tensor(1)
    return _moved(source.bytes, target.bytes, target.format) if target is not None and source is not None else None


def _unknown(i: Inputs) -> Cost | None:
    return None


RULES: Final = (
    Rule(r"^aten::(mm|bmm|_int_mm)(\.|$)", mm, ("aten::mm", "aten::bmm")),
    Rule(r"^aten::(addmm|baddbmm|_addmm_activation|addbmm)_?$", addmm, ("aten::addmm", "aten::baddbmm")),
    Rule(r"^aten::_scaled_mm", scaled_mm, ("aten::_scaled_mm",)),
    Rule(r"^aten::(mv|dot|vdot)$", mv, ("aten::mv", "aten::dot")),
    Rule(r"^(aten::linear|mkldnn::_linear_pointwise|aten::mkldnn_linear|mkl::_mkl_linear)$", linear, ("aten::linear",)),
    Rule(r"^aten::convolution_backward", conv_backward(0, 1), ("aten::convolution_backward",)),
    Rule(
        r"^aten::(cudnn|miopen|mkldnn)_convolution(_transpose)?_backward$", conv_backward(1, 0), ("aten::cudnn_convolution_backward",)
    ),  # (input, gradient, weight)
    Rule(r"convolution.*backward", _unknown, ("aten::cudnn_convolution_backward_weight",)),  # part of the rule above
    Rule(
        r"^aten::(conv[123]d|_?convolution|(cudnn|miopen|mkldnn)_convolution(_transpose|_relu|_add_relu)?|convolution_overrideable|"
        r"thnn_conv2d|_slow_conv2d_forward|slow_conv3d_forward|_conv_depthwise2d|conv_depthwise3d)$",
        conv,
        ("aten::conv2d", "aten::convolution", "aten::cudnn_convolution", "aten::mkldnn_convolution"),
    ),
    Rule(
        r"^aten::_(flash|efficient)_attention_backward$|^flash_attn.*_flash_attn_backward$",
        attention(1, 2, True),
        ("aten::_flash_attention_backward",),
    ),
    Rule(
        r"^aten::_(flash|efficient)_attention_forward$|^flash_attn.*_flash_attn_forward$",
        attention(0, 2, False),
        ("aten::_flash_attention_forward",),
    ),
    Rule(
        r"^aten::_(scaled_dot_product_\w*attention\w*|cudnn_attention)_backward$|^aten::_cudnn_attention_backward$",
        attention(1, 1, True),
        ("aten::_scaled_dot_product_flash_attention_backward", "aten::_scaled_dot_product_flash_attention_for_cpu_backward"),
    ),
    Rule(
        r"^aten::_?(scaled_dot_product_(\w*)attention(_for_cpu|_math)?|_?cudnn_attention_forward)$",
        attention(0, 1, False),
        (
            "aten::_scaled_dot_product_flash_attention",
            "aten::_scaled_dot_product_flash_attention_for_cpu",
            "aten::scaled_dot_product_attention",
        ),
    ),
    Rule(r"^aten::\w*(layer|group|batch|instance|rms)_norm\w*backward", _largest(3), ("aten::native_layer_norm_backward",)),
    Rule(
        r"^aten::\w*(layer|group|batch|instance|rms)_norm",
        _largest(2),
        ("aten::native_layer_norm", "aten::cudnn_batch_norm", "aten::native_group_norm"),
    ),
    Rule(r"^aten::_fused_adamw?_", _lists(3), ("aten::_fused_adamw_", "aten::_fused_adam_")),
    Rule(r"^aten::_fused_(sgd|adagrad)_", _lists(2), ("aten::_fused_sgd_",)),
    Rule(r"^aten::_foreach_(norm|max)", _lists(0), ("aten::_foreach_norm",)),
    Rule(r"^aten::_foreach_", _lists(1), ("aten::_foreach_lerp_", "aten::_foreach_add_")),
    Rule(r"^aten::(cat|_cat|concat|stack)$", _joined, ("aten::cat",)),
    Rule(r"^aten::copy_$", _copy, ("aten::copy_",)),
    Rule(
        r"^aten::(zero_|fill_|normal_|uniform_|random_|bernoulli_|exponential_|log_normal_|geometric_|cauchy_|arange|eye)$",
        _written,
        ("aten::zero_", "aten::normal_"),
    ),
    Rule(r"^aten::(roll|flip|repeat)$", _first_again, ("aten::roll",)),
    Rule(r"^aten::(embedding|embedding_renorm_)$", _embedded(0, 1), ("aten::embedding",)),
    Rule(r"^aten::index_select$", _embedded(0, 2), ("aten::index_select",)),
    Rule(r"^aten::gather$", _gathered, ("aten::gather",)),
    Rule(r"^aten::_?(embedding_dense_backward|embedding_backward)$", _read, ("aten::embedding_dense_backward",)),
    Rule(r"^aten::_?(log_)?softmax_backward|^aten::_(log_)?softmax_backward_data", _largest(3), ("aten::_softmax_backward_data",)),
    Rule(r"^aten::(_?(log_)?softmax|cumsum|cumprod|sort|topk)$", _largest(2), ("aten::_softmax", "aten::_log_softmax", "aten::cumsum")),
    Rule(r"^aten::\w*pool\w*backward", _in_place, ("aten::max_pool2d_with_indices_backward",)),
    Rule(r"^aten::(lt|le|gt|ge|eq|ne|logical_\w+|isfinite|isnan|isinf|signbit)$", _compared, ("aten::lt", "aten::isfinite")),
    Rule(r"^triton_", _read, ("triton_poi_fused_gelu_17",)),  # pointers to inputs and results alike
)


def cost(name: str, inputs: Inputs) -> Cost | None:
    """The least work of one call of operator `name`; None if it is unknown.

    What no rule finds is counted by its inputs where `classify` calls it elementwise (in place or not) or a reduction.
    """
    return _formula(name)(inputs)


@cache
def _formula(name: str) -> Formula:
    for pattern, formula in _compiled():
        if pattern.search(name):
            return formula
    if not name.startswith("aten::"):
        return _unknown
    kind = classify.operator(name)
    if kind == "reduce":
        return _read
    if kind == "elementwise":
        return _in_place if name.endswith("_") else _pointwise
    return _unknown


@cache
def _compiled() -> list[tuple[re.Pattern[str], Formula]]:
    return [(re.compile(rule.pattern), rule.formula) for rule in RULES]
