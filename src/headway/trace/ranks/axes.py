"""Axes of the mesh: the name of a process group's axis from what its maker called it, or from where its ranks lie in a mesh.

A mesh is said outermost first, `dp_shard=4,tp=2`: rank = dp_shard x 2 + tp. A group lies along an axis if its ranks differ in that
coordinate alone and take every value of it; along several if it is their product.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Final

import numpy as np

from headway.spec.errors import TraceError
from headway.trace import marks
from headway.trace.classify import Rule, first

_SELF: Final = ""  # the value of the last rule: the text itself, made a name
GROUPS: Final = (  # what makers of process groups call them
    Rule("world", r"^(default_pg|default|world|global|WorldProcessGroup)$", ("default_pg", "world")),
    Rule("etp", r"^expert_tensor(_model)?_parallel_group", ("EXPERT_TENSOR_PARALLEL_GROUP",)),
    Rule("edp", r"^expert_data_parallel_group|^intra_partial_expert_data", ("EXPERT_DATA_PARALLEL_GROUP",)),
    Rule("ep", r"^expert_(model_)?parallel_group|^mesh_ep$|^moe_ep$", ("EXPERT_MODEL_PARALLEL_GROUP", "mesh_ep")),
    Rule("tp_pp", r"^model_parallel_group|^tensor_and_pipeline|^mesh_tp_pp$", ("MODEL_PARALLEL_GROUP",)),
    Rule("tp_cp", r"^tensor_and_context_parallel", ("TENSOR_AND_CONTEXT_PARALLEL_GROUP",)),
    Rule("tp_dp", r"^tensor_and_data_parallel", ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP",)),
    Rule("tp", r"^(tensor(_model)?_parallel|tp)_group|^mesh_tp$", ("TENSOR_MODEL_PARALLEL_GROUP", "TENSOR_PARALLEL_GROUP", "mesh_tp")),
    Rule("pp", r"^(pipeline(_model)?_parallel|pp)_group|^mesh_pp$", ("PIPELINE_MODEL_PARALLEL_GROUP", "PP_GROUP", "mesh_pp")),
    Rule("embedding", r"^(position_)?embedding_group", ("EMBEDDING_GROUP", "POSITION_EMBEDDING_GROUP")),
    Rule("dp_cp", r"^data_parallel_group_with_cp|^mesh_dp_cp$", ("DATA_PARALLEL_GROUP_WITH_CP", "DATA_PARALLEL_GROUP_WITH_CP_GLOO")),
    Rule("cp", r"^(hierarchical_)?context_parallel_group|^mesh_cp$", ("CONTEXT_PARALLEL_GROUP", "mesh_cp")),
    Rule("dp_replicate", r"^mesh_(dp_)?replicate$|^inter_(partial_data|distributed_opt)", ("mesh_replicate", "mesh_dp_replicate")),
    Rule("dp_shard", r"^mesh_(dp_)?shard$|^(mesh_)?fsdp$|^intra_partial_data", ("mesh_dp_shard", "INTRA_PARTIAL_DATA_PARALLEL_GROUP")),
    Rule("dp", r"^(data_parallel|dp)_group|^(mesh_)?ddp$|^mesh_dp$", ("DATA_PARALLEL_GROUP", "DATA_PARALLEL_GROUP_GLOO", "mesh_dp", "ddp")),
    Rule(_SELF, r"", ("mesh_cp_ring", "headway::comm::dp_shard", "my_group")),
)  # fmt: skip


@cache
def named(text: str) -> str:
    """The axis of a process group by its description: a rule's, else the description in [a-z0-9_-]."""
    return first(GROUPS, text) or marks.axis(text)


@dataclass(frozen=True)
class Mesh:
    """Names and sizes of the axes, outermost first."""

    axes: tuple[tuple[str, int], ...]

    @property
    def world(self) -> int:
        """Number of ranks."""
        return prod(size for _, size in self.axes)

    def check(self, world: int | None, ranks: Sequence[int] = ()) -> None:
        """Raises TraceError if the mesh has another number of ranks than the run, or the run a rank that the mesh does not have."""
        most = max(ranks, default=-1) + 1
        world = most if world is None and most > self.world else world
        if world is not None and world != self.world:
            product = " x ".join(f"{n}={s}" for n, s in self.axes)
            raise TraceError(
                f"the mesh {product} has {self.world} ranks, the run has {world}", fix="Say every axis: --mesh dp_shard=4,tp=2."
            )

    def axis(self, ranks: Sequence[int]) -> str:
        """Along which axis, or product of axes (outermost first, joined by _), a group lies; '' if along none. All ranks: world."""
        if len(ranks) < 2 or not 0 <= min(ranks) <= max(ranks) < self.world:
            return ""
        if len(set(ranks)) == self.world:
            return "world" if len([n for n, s in self.axes if s > 1]) > 1 else next(n for n, s in self.axes if s > 1)
        place = np.array(np.unravel_index(list(ranks), [size for _, size in self.axes]))
        varies = [i for i in range(len(self.axes)) if len(set(place[i].tolist())) > 1]
        full = prod(self.axes[i][1] for i in varies)
        return "_".join(self.axes[i][0] for i in varies) if len(set(ranks)) == full else ""

    def group(self, rank: int, axis: str) -> tuple[int, ...]:
        """The ranks that share all coordinates of `rank` but that of one axis; () if there is no such axis or rank."""
        names = [n for n, _ in self.axes]
        if axis not in names or not 0 <= rank < self.world:
            return ()
        shape = [size for _, size in self.axes]
        place = list(np.unravel_index(rank, shape))
        along = names.index(axis)
        return tuple(int(np.ravel_multi_index([*place[:along], i, *place[along + 1 :]], shape)) for i in range(shape[along]))


def parse_mesh(text: str) -> Mesh:
    """`dp_shard=4,tp=2` as a mesh. Raises TraceError."""
    found: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([a-z][a-z0-9_-]*)\s*=\s*(\d+)\s*", part)
        if match is None or match[1] in found or int(match[2]) < 1:
            fix = "Name each axis once with its size, outermost first: --mesh dp_shard=4,tp=2."
            raise TraceError(f"{part.strip()!r} is not an axis of a mesh", where=f"--mesh {text}", fix=fix)
        found[match[1]] = int(match[2])
    return Mesh(tuple(found.items()))
