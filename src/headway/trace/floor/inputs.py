"""The inputs of a host operator as tensors: what the formulas read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

Dims = tuple[int, ...]

# What profilers call an element type -> (format, bytes of an element).
ELEMENTS: Final[dict[str, tuple[str, int]]] = {
    "double": ("fp64", 8), "float64": ("fp64", 8), "c10::complex<float>": ("fp32", 8), "c10::complex<double>": ("fp64", 16),
    "float": ("fp32", 4), "float32": ("fp32", 4), "c10::half": ("fp16", 2), "half": ("fp16", 2), "float16": ("fp16", 2),
    "c10::bfloat16": ("bf16", 2), "bfloat16": ("bf16", 2), "c10::float8_e4m3fn": ("fp8", 1), "c10::float8_e5m2": ("fp8", 1),
    "c10::float8_e4m3fnuz": ("fp8", 1), "c10::float8_e5m2fnuz": ("fp8", 1), "c10::float8_e8m0fnu": ("fp8", 1),
    "long": ("int64", 8), "long int": ("int64", 8), "int64": ("int64", 8), "int": ("int32", 4), "int32": ("int32", 4),
    "short": ("int16", 2), "short int": ("int16", 2), "char": ("int8", 1), "signed char": ("int8", 1), "c10::qint8": ("int8", 1),
    "byte": ("uint8", 1), "unsigned char": ("uint8", 1), "c10::quint8": ("uint8", 1), "bool": ("bool", 1),
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """One input: its dims, its format and the bytes of an element."""

    dims: Dims
    format: str
    element: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.dims)

    @property
    def bytes(self) -> int:
        """Bytes of all elements (a tensor that is expanded in place holds fewer)."""
        return self.numel * self.element


@dataclass(frozen=True)
class Inputs:
    """The inputs of an operator by place: a tensor, a list of tensors, or None for anything else. `out` are dims of its result if known."""

    places: tuple[Tensor | tuple[Tensor, ...] | None, ...]
    out: Dims | None = None

    def tensor(self, place: int) -> Tensor | None:
        """The tensor in `place`; None if there is none."""
        found = self.places[place] if place < len(self.places) else None
        return found if isinstance(found, Tensor) else None

    def lists(self) -> list[tuple[Tensor, ...]]:
        """Every list of tensors that is not empty."""
        return [p for p in self.places if isinstance(p, tuple) and p]

    def tensors(self) -> list[Tensor]:
        """Every tensor, lists left out."""
        return [p for p in self.places if isinstance(p, Tensor)]


def inputs(dims: Sequence[Any], types: Sequence[Any], out: Dims | None = None, element: int = 4) -> Inputs:
    """The inputs that a profiler recorded. The elements of a list of tensors have no recorded type: they count `element` bytes."""
    places: list[Tensor | tuple[Tensor, ...] | None] = []
    for dim, kind in zip(dims, types, strict=False):
        name = str(kind).lower()
        if name in ELEMENTS and _plain(dim):
            places.append(Tensor(tuple(dim), *ELEMENTS[name]))
        elif "list" in name and isinstance(dim, Sequence) and dim and all(_plain(d) for d in dim):
            places.append(tuple(Tensor(tuple(d), {8: "fp64", 4: "fp32"}.get(element, "bf16"), element) for d in dim))
        else:
            places.append(None)
    return Inputs(tuple(places), out)


def _plain(dim: Any) -> bool:
    return isinstance(dim, Sequence) and not isinstance(dim, str) and all(isinstance(n, int) and n >= 0 for n in dim)
