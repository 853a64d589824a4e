"""Floors of memory: less than a run needs, and enough to refuse what cannot be."""

from __future__ import annotations

import dataclasses

import pytest

from headway.runtime.fits import Floors, floors, host_memory, require
from headway.spec.errors import RunError
from headway.spec.parts import DataSpec, EmaSpec, MeshSpec, ModelSpec
from headway.spec.run import RunSpec

SPEC = RunSpec(global_batch=64, accumulate=2, model=ModelSpec(depth=3, width=32, heads=2, patch=2), data=DataSpec(prefetch=2, workers=1))


def test_floors_by_hand() -> None:
    need = floors(SPEC, channels=1, size=8, num_parameters=1000)
    assert need.state == 1000 * 4 * 5  # weight, gradient, two moments, average
    assert need.stream == 32 * 16 * 32 * 3 * 4  # micro-batch x tokens x width x blocks x bytes
    assert need.images == 3 * 64 * 8 * 8 * 4  # the step that is due and two ahead
    halves = dataclasses.replace(SPEC, mesh=MeshSpec(dp_shard=2), ema=EmaSpec(half_life=0))
    assert floors(halves, channels=1, size=8, num_parameters=1000) == Floors(
        state=1000 * 4 * 4 // 2, stream=need.stream // 2, images=need.images // 2
    )


@pytest.mark.parametrize(
    ("need", "ranks", "device", "fix"),
    [
        (Floors(state=1, stream=1, images=101), 1, None, "--data.prefetch"),
        (Floors(state=1, stream=60, images=0), 2, None, "--accumulate"),
        (Floors(state=60, stream=1, images=40), 1, None, "--mesh.dp-shard"),
        (Floors(state=200, stream=1, images=1), 1, 150, "GPU"),
        (Floors(state=1, stream=1, images=60), 2, 150, "2 ranks"),
    ],
)
def test_what_cannot_fit_is_refused(need: Floors, ranks: int, device: int | None, fix: str) -> None:
    with pytest.raises(RunError, match=fix):
        require(need, ranks=ranks, host=100, device=device)
    require(need, ranks=ranks, host=1000, device=device and 1000)


def test_this_machine_has_memory() -> None:
    assert 1 << 28 < host_memory() < 1 << 50
