"""`OpGraph`: the operations of one training step of one network on one device, recorded on the meta device.

FLOPs count a multiply-add as two. Shapes are those of one micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SCHEMA: Final = "headway.graph/1"


@dataclass(frozen=True, kw_only=True)
class Op:
    """One operation: kind (gemm, attention, norm, ...), name (aten name), phase, module path, shapes, FLOPs and bytes moved."""

    kind: str
    name: str
    phase: str  # forward | backward
    module: str
    shapes: tuple[tuple[int, ...], ...]
    flops: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class OpGraph:
    """The operations of forward and backward, and what the forward keeps for the backward."""

    ops: tuple[Op, ...]
    batch: int
    num_parameters: int
    saved_bytes: Mapping[str, int] = field(default_factory=dict)  # activations kept for the backward, by module path
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # parameter -> logical axis of each dim

    @property
    def flops(self) -> int:
        """FLOPs of forward and backward of the whole micro-batch."""
        return sum(op.flops for op in self.ops)

    @property
    def flops_per_sample(self) -> float:
        """FLOPs of forward and backward of one sample."""
        return self.flops / self.batch


def to_json(graph: OpGraph) -> dict[str, Any]:
    """`graph` as plain data under the schema headway.graph/1."""
    from headway.spec.codec import encode

    data: dict[str, Any] = encode(graph)
    return {"schema": SCHEMA, "flops": graph.flops, **data}
