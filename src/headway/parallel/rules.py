"""Rules: which dim of a parameter FSDP cuts, from its shape and the logical axes of its dims.

FSDP cuts dim 0 by default and pads it to a multiple of the ranks. A position table [1, tokens, width] over 128 ranks would lie on one
rank and be gathered 128 times its size. So a dim is chosen by how well it divides; another dim than 0 must divide exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

# Logical axis -> may FSDP cut along it? Axes that are not listed may be cut. A cut of "class" or "time" tables is by rows of other
# samples' use, which FSDP does not mind; it minds small and oddly sized dims, and those are left whole.
FSDP_CUTS: Final[Mapping[str, bool]] = {"none": False, "patch": False, "channel": False}
PADDING: Final = Fraction(9, 8)  # dim 0 may be padded up to this times its size; cutting another dim costs a copy


def fsdp_dim(shape: Sequence[int], axes: Sequence[str], ranks: int) -> int:
    """The dim of a parameter of `shape` that FSDP over `ranks` cuts; `axes` names its dims (empty: unnamed).

    Dim 0 while its padding is within PADDING; else the longest dim that divides exactly; else the dim 0 that FSDP can always pad.
    """
    named = list(axes) or [""] * len(shape)
    assert len(named) == len(shape), f"{len(shape)} dims but axes {axes}"
    if not shape or ranks == 1:
        return 0
    if shape[0] and Fraction(padded(shape[0], ranks), shape[0]) <= PADDING:
        return 0
    even = [dim for dim in range(1, len(shape)) if shape[dim] and shape[dim] % ranks == 0 and FSDP_CUTS.get(named[dim], True)]
    return max(even, key=lambda dim: shape[dim], default=0)


def padded(length: int, ranks: int) -> int:
    """`length` rounded up to a multiple of `ranks`."""
    return -(-length // ranks) * ranks
