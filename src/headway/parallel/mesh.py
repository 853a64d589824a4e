"""The mesh: which rank stands where, and sums over the ranks that read different samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from headway.spec.errors import RunError
from headway.spec.parts import MeshSpec

DATA_AXES: Final = ("dp_replicate", "dp_shard")


@dataclass(frozen=True)
class Mesh:
    """Where this rank stands. A run of one process has no device mesh and needs no process group.

    `device`: the axes longer than one, in the order of MESH_AXES. `fsdp`: what parameters are spread over: (dp_shard,), or
    (dp_replicate, dp_shard) when the model is replicated.
    """

    spec: MeshSpec
    device_type: str
    device: DeviceMesh | None = None
    fsdp: DeviceMesh | None = None

    @property
    def data_parallel(self) -> int:
        """Ranks that read different samples."""
        return self.spec.data_parallel

    @property
    def data_rank(self) -> int:
        """This rank's number among them: dp_replicate outer, dp_shard inner."""
        rank = 0
        for axis in DATA_AXES:
            rank = rank * getattr(self.spec, axis) + self.coordinate(axis)
        return rank

    def coordinate(self, axis: str) -> int:
        """Where this rank stands on `axis`."""
        if self.device is None or axis not in (self.device.mesh_dim_names or ()):
            return 0
        return self.device.get_local_rank(axis)

    def all_sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor` itself, summed in place over the data ranks. The host does not wait for the device."""
        if self.device is not None:  # every axis longer than one is a data axis today, see build_mesh
            dist.all_reduce(tensor)
        return tensor


def build_mesh(spec: MeshSpec, device_type: str) -> Mesh:
    """The mesh of this process. More than one process: the default process group is there already.

    Raises RunError if the number of processes is not the product of the axes.
    """
    world = dist.get_world_size() if dist.is_initialized() else 1
    if world != spec.world:
        fix = f"Start {spec.world} processes, or set --mesh.dp-shard so that the axes multiply to {world}."
        raise RunError(f"the mesh ({spec}) is for {spec.world} processes, but {world} run", where="mesh", fix=fix)
    assert world == spec.data_parallel, "axes without an engine are refused by spec.run.check"
    if world == 1:
        return Mesh(spec=spec, device_type=device_type)
    device = init_device_mesh(device_type, tuple(spec.used.values()), mesh_dim_names=tuple(spec.used))
    return Mesh(spec=spec, device_type=device_type, device=device, fsdp=_fsdp_mesh(spec, device_type, device))


def _fsdp_mesh(spec: MeshSpec, device_type: str, device: DeviceMesh) -> DeviceMesh:
    if spec.dp_replicate == 1:
        return device["dp_shard"]
    if spec.dp_shard > 1:
        return device[DATA_AXES]
    return init_device_mesh(device_type, (spec.dp_replicate, 1), mesh_dim_names=DATA_AXES)  # pure replicas: shards of one rank


def single(device_type: str) -> DeviceMesh:
    """A mesh of this process alone, for work that needs FSDP in a run of one process (mixed precision)."""
    if not dist.is_initialized():
        backend = "nccl" if device_type == "cuda" else "gloo"
        store = dist.HashStore()  # type: ignore[attr-defined]  # in memory: nobody else connects
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    return init_device_mesh(device_type, (1,), mesh_dim_names=("dp_shard",))
