"""Weights that are not finite are never saved, on one rank and on two."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headway.parallel import fsdp
from headway.spec.errors import RunError
from headway.train.hooks import Save
from tests.ranks import run_ranks
from tests.train import runs


def poisoned(path: str, shards: int) -> tuple[str, list[str]]:
    """What a save of weights with one infinity says, and what it leaves."""
    rank = torch.distributed.get_rank() if shards > 1 else 0
    spec = runs.small(mesh=runs.layout(shards))
    run, hooks, _, _ = runs.live(spec, Path(path), rank=rank)
    run.state.samples = 32
    checkpoints = runs.saving(spec, Path(path) / "checkpoints", rank=rank)
    save = Save(spec, checkpoints, hooks.guard)
    save.close(run)
    if rank == 0:
        part = fsdp.local(next(iter(fsdp.parameters_of(run.state.roles["student"]).values())).detach())
        part.view(-1)[0] = torch.inf
    run.state.samples = 64
    try:
        save.close(run)
        said = ""
    except RunError as error:
        said = str(error)
    checkpoints.wait()
    return said, sorted(p.name for p in (Path(path) / "checkpoints").iterdir())


@pytest.mark.parametrize("shards", [1, 2])
def test_they_are_refused_and_the_last_good_ones_stay(tmp_path: Path, shards: int) -> None:
    found = [poisoned(str(tmp_path), 1)] if shards == 1 else run_ranks(poisoned, 2, str(tmp_path), 2)
    for said, left in found:
        assert said.startswith("run ") and "1 weights are not finite" in said and "were not saved" in said
        assert left == ["s000000000032"]
