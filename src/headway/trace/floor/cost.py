"""The least work of each row of device work: the cost of the host operator that launched it.

Several kernels of one call of an operator are a group: together they do what the operator costs. On a CPU the row is the operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headway.trace.floor.formula import cost
from headway.trace.floor.inputs import ELEMENTS, Dims, inputs
from headway.trace.floor.product import Cost
from headway.trace.marks import is_backward
from headway.trace.sweep import Ints, distinct, innermost
from headway.trace.table import Kind, Table
from headway.trace.work import NUM_CLASSES, Work

FORMATS: Final = tuple(dict.fromkeys([*(name for name, _ in ELEMENTS.values()), "tf32", "fp4"]))
_TF32 = ("tf32", "s1688", "xf32")  # in the name of a kernel: fp32 in, products in TF32


@dataclass(frozen=True)
class Costs:
    """Per row of work: FLOPs, bytes, format (code into FORMATS) and the group that they are the cost of; group -1: unknown."""

    flops: NDArray[np.float64]
    bytes: NDArray[np.float64]
    format: Ints
    group: Ints

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether the cost of each row is known."""
        return self.group >= 0


def costs(table: Table, work: Work) -> Costs:
    """The cost of each row of `work`, from the innermost operator that has one where the row was launched."""
    num = len(work)
    group = np.full(num, -1, np.int64)
    computes = work.level < NUM_CLASSES
    per_row, found = _of_operators(table)
    rows = np.flatnonzero(per_row >= 0)
    if work.device == "cpu":
        group = np.where(computes & (per_row[work.row] >= 0), work.row, -1)
    else:
        for track in distinct(work.track[computes & work.linked]).tolist():
            mine = rows[table.track[rows] == track]
            steps = innermost(table.start[mine], table.end[mine], mine)
            at = np.flatnonzero(computes & work.linked & (work.track == track))
            group[at] = steps.at(work.launched[at])
    code = np.where(group >= 0, per_row[np.maximum(group, 0)], 0)
    flops, moved = (
        np.array([0.0, *(getattr(c, n) for c in found)], np.float64)[np.where(group >= 0, code + 1, 0)] for n in ("flops", "bytes")
    )
    form = np.array([0, *(FORMATS.index(c.format) for c in found)], np.int64)[np.where(group >= 0, code + 1, 0)]
    tensor32 = group[table.named(lambda n: any(t in n for t in _TF32))[work.row]] if num else group
    form = np.where(np.isin(group, tensor32) & (form == FORMATS.index("fp32")), FORMATS.index("tf32"), form)  # one kernel tells the group
    _, dense = np.unique(group, return_inverse=True)
    return Costs(flops, moved, form, np.where(group >= 0, dense.reshape(-1), -1))


def _of_operators(table: Table) -> tuple[Ints, list[Cost]]:
    """(per row of the table, the index of its cost or -1; the costs). Each pair of name and shapes is looked at once."""
    out = np.full(len(table), -1, np.int64)
    if not table.shapes:
        return out, []
    rows = np.flatnonzero((table.kind == Kind.OPERATOR) & (table.shape >= 0))
    results = _results(table)
    keys = np.stack((table.name[rows], table.shape[rows], results[rows]))
    unique, place = np.unique(keys, axis=1, return_inverse=True)
    element = _usual(table)
    code = np.full(unique.shape[1], -1, np.int64)
    found: list[Cost] = []
    for k, (name, shape, result) in enumerate(unique.T.tolist()):
        said = table.shapes[shape]
        one = cost(table.names[name], inputs(said.dims, said.types, _first(table.shapes[result].dims) if result >= 0 else None, element))
        if one is not None:
            code[k] = len(found)
            found.append(one)
    out[rows] = code[place.reshape(-1)]
    return out, found


def _results(table: Table) -> Ints:
    """For each forward operator, the shapes of the backward node with its sequence number: its first input is as large as the result."""
    out = np.full(len(table), -1, np.int64)
    convolves = table.named(lambda n: "conv" in n and "ackward" not in n)
    made = np.flatnonzero((table.kind == Kind.OPERATOR) & (table.sequence >= 0) & (table.forward <= 0) & convolves)
    nodes = np.flatnonzero((table.kind == Kind.OPERATOR) & (table.sequence >= 0) & (table.forward > 0) & (table.shape >= 0))
    nodes = nodes[table.named(lambda n: is_backward(n) and "Conv" in n and ":" not in n)[nodes]]
    if not len(made) or not len(nodes):
        return out
    nodes = nodes[np.argsort(table.sequence[nodes], kind="stable")]
    index = np.minimum(np.searchsorted(table.sequence[nodes], table.sequence[made]), len(nodes) - 1)
    same = table.sequence[nodes[index]] == table.sequence[made]
    out[made[same]] = table.shape[nodes[index[same]]]
    return out


def _first(dims: Any) -> Dims | None:
    return tuple(dims[0]) if dims and all(isinstance(n, int) for n in dims[0]) else None


def _usual(table: Table) -> int:
    """Bytes of the floating type that most elements of the trace have: what lists of tensors, whose type is not recorded, count as."""
    total = {8: 0, 4: 0, 2: 0}
    for shape in table.shapes:
        for dim, kind in zip(shape.dims, shape.types, strict=False):
            name, size = ELEMENTS.get(str(kind).lower(), ("", 0))
            if name.startswith(("fp", "bf")) and size in total and all(isinstance(n, int) for n in dim):
                total[size] += prod(dim)
    return max(total, key=lambda s: total[s]) if any(total.values()) else 4
