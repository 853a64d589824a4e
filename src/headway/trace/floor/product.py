"""Matrix products, convolutions and attention: FLOPs and bytes from shapes.

FLOPs count a multiply-add as two, as torch.utils.flop_counter does. Bytes: every input read once, every result written once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from headway.trace.floor.inputs import Inputs, Tensor


@dataclass(frozen=True)
class Cost:
    """The least work of one call: FLOPs in a number format, bytes to and from memory."""

    flops: int
    bytes: int
    format: str


Formula = Callable[[Inputs], "Cost | None"]


# ---- matrix products ----


def _product(a: Tensor | None, b: Tensor | None, out_element: int | None = None) -> Cost | None:
    """[.., m, k] x [.., k, n]: 2 m k n for each of the batch."""
    if a is None or b is None or len(a.dims) < 2 or len(b.dims) < 2 or a.dims[-1] != b.dims[-2]:
        return None
    rows, (k, n) = prod(a.dims[:-1]), b.dims[-2:]
    return Cost(2 * rows * k * n, a.bytes + b.bytes + rows * n * (out_element or a.element), a.format)


def mm(i: Inputs) -> Cost | None:
    """[.., m, k] x [.., k, n]."""
    return _product(i.tensor(0), i.tensor(1))


def addmm(i: Inputs) -> Cost | None:
    """As torch, the sum with the first input is not counted."""
    return _product(i.tensor(1), i.tensor(2))


def scaled_mm(i: Inputs) -> Cost | None:
    """FP8 in, at least two bytes an element out."""
    return _product(i.tensor(0), i.tensor(1), out_element=2)


def mv(i: Inputs) -> Cost | None:
    """[m, k] x [k]."""
    a, x = i.tensor(0), i.tensor(1)
    return Cost(2 * a.numel, a.bytes + x.bytes, a.format) if a is not None and x is not None else None


def linear(i: Inputs) -> Cost | None:
    """x [.., k], weight [n, k]."""
    x, w = i.tensor(0), i.tensor(1)
    if x is None or w is None or len(w.dims) != 2 or not x.dims or x.dims[-1] != w.dims[1]:
        return None
    rows = prod(x.dims[:-1])
    return Cost(2 * rows * w.numel, x.bytes + w.bytes + rows * w.dims[0] * x.element, x.format)


# ---- convolutions ----


def _convolved(x: Tensor, w: Tensor, out: tuple[int, ...]) -> int | None:
    """2 x elements of the result x products of each: weight [c_out, c_in / groups, kernel ..]; transposed where c_in comes first."""
    if len(out) != len(x.dims) or len(w.dims) != len(x.dims) or not w.numel:
        return None
    each = w.numel // w.dims[0]
    if out[1] == w.dims[0]:
        return 2 * prod(out) * each
    return 2 * x.numel * each if x.dims[1] == w.dims[0] else None


def conv(i: Inputs) -> Cost | None:
    """A convolution whose result is known."""
    x, w = i.tensor(0), i.tensor(1)
    flops = _convolved(x, w, i.out) if x is not None and w is not None and i.out is not None else None
    if x is None or w is None or i.out is None or flops is None:
        return None
    return Cost(flops, x.bytes + w.bytes + prod(i.out) * x.element, x.format)


def conv_backward(grad: int, x: int) -> Formula:
    """Gradients of input and weight: each as many FLOPs as the forward; inputs `grad`, `x` by place, the weight third."""

    def formula(i: Inputs) -> Cost | None:
        g, a, w = i.tensor(grad), i.tensor(x), i.tensor(2)
        flops = _convolved(a, w, g.dims) if g is not None and a is not None and w is not None else None
        if g is None or a is None or w is None or flops is None:
            return None
        return Cost(2 * flops, g.bytes + 2 * a.bytes + 2 * w.bytes, a.format)

    return formula


# ---- attention ----


def attention(q: int, heads: int, backward: bool) -> Formula:
    """Attention over q, k, v at places q.. with the heads in dim `heads` of 4, without a mask, as torch counts it.

    Forward: Q K^T and P V, 2 b h s t (d + e). Backward: five products, 2 b h s t (3 d + 2 e): the scores are computed again.
    """
    length = 3 - heads

    def formula(i: Inputs) -> Cost | None:
        a, k, v = i.tensor(q), i.tensor(q + 1), i.tensor(q + 2)
        if a is None or k is None or v is None or not len(a.dims) == len(k.dims) == len(v.dims) == 4:
            return None
        b, h, s, d = a.dims[0], a.dims[heads], a.dims[length], a.dims[3]
        t, e = k.dims[length], v.dims[3]
        pairs, out = b * h * s * t, b * h * s * e * a.element
        moved = a.bytes + k.bytes + v.bytes
        if backward:  # read q, k, v, out and its gradient; write three gradients
            return Cost(2 * pairs * (3 * d + 2 * e), 2 * moved + 2 * out, a.format)
        return Cost(2 * pairs * (d + e), moved + out, a.format)

    return formula
