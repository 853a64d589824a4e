"""Where ranks stand, and sums over them."""

from __future__ import annotations

import pytest
import torch

from headway.parallel.mesh import build_mesh
from headway.spec.errors import RunError
from headway.spec.parts import MeshSpec
from tests.parallel.nets import LAYOUTS
from tests.ranks import run_ranks


def _stand(spec: MeshSpec) -> tuple[int, int, tuple[str, ...], tuple[int, ...], float]:
    mesh = build_mesh(spec, "cpu")
    total = mesh.all_sum(torch.tensor(mesh.data_rank + 1.0, dtype=torch.float64))
    names = (mesh.device.mesh_dim_names or ()) if mesh.device else ()
    return mesh.data_rank, mesh.data_parallel, names, tuple(mesh.fsdp.shape) if mesh.fsdp else (), total.item()


@pytest.mark.parametrize("spec", LAYOUTS, ids=lambda s: f"{s.dp_replicate}x{s.dp_shard}")
def test_ranks_and_sums(spec: MeshSpec) -> None:
    world = spec.world
    got = run_ranks(_stand, world, spec)
    names = tuple(a for a in ("dp_replicate", "dp_shard") if getattr(spec, a) > 1)
    fsdp = () if world == 1 else (spec.dp_shard,) if spec.dp_replicate == 1 else (spec.dp_replicate, spec.dp_shard)
    assert got == [(rank, world, names, fsdp, world * (world + 1) / 2) for rank in range(world)]


def _refused() -> str:
    with pytest.raises(RunError) as error:
        build_mesh(MeshSpec(dp_shard=3), "cpu")
    return str(error.value)


def test_a_mesh_for_another_number_of_processes_is_refused() -> None:
    for text in (_refused(), run_ranks(_refused, 2)[0]):
        assert "dp_shard 3" in text and "--mesh.dp-shard" in text
