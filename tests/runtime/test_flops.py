"""FLOPs of the whole objective: every role counts, recomputation only in what the hardware does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headway.data.digits import digits
from headway.recipes.digits import digits as recipe
from headway.runtime.build import bare_network
from headway.runtime.flops import flops_per_sample
from headway.runtime.graph import NeedsValues, record
from headway.spec.codec import apply_overrides
from headway.spec.parts import ObjectiveSpec, RoleSpec
from headway.spec.run import RunSpec

OBJECTIVE = """
import torch
from headway.diffusion.objective import squared_error

def both(spec):
    def loss(roles, batch, draw):
        x, t = batch["image"], draw.uniform("timestep")
        told = {"label": batch["label"]}
        with torch.no_grad():
            target = roles["reference"](x, t, told)
        return squared_error(roles["student"](x, t, told), target, t)
    return loss

def looks(spec):
    def loss(roles, batch, draw):
        assert batch["image"].sum().item() > -1e9
        return squared_error(batch["image"], batch["image"], draw.uniform("timestep"))
    return loss
"""


def forward_flops(spec: RunSpec) -> float:
    """Of one sample."""
    data = digits()
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        bare_network(spec, data)(torch.empty(1, 1, 8, 8), torch.empty(1), {"label": torch.empty(1, dtype=torch.int64)})
    return counter.get_total_flops()


def test_one_network_is_its_graph() -> None:
    found = flops_per_sample(recipe(), digits())
    with torch.device("meta"):
        network = bare_network(recipe(), digits())
    assert found.model == found.hardware == record(network, batch=2, channels=1, size=8, num_classes=10).flops_per_sample


def test_recomputation_counts_in_hardware_alone() -> None:
    spec = apply_overrides(recipe(), ["--remat.mode", "full"])
    found, plain = flops_per_sample(spec, digits()), flops_per_sample(recipe(), digits())
    assert found.model == plain.model
    again = found.hardware - found.model
    assert 0.9 * forward_flops(spec) < again <= forward_flops(spec)  # the blocks, not what is before and after them


def test_a_frozen_role_counts_its_forward(tmp_path: Path) -> None:
    file = tmp_path / "objective.py"
    file.write_text(OBJECTIVE)
    alone = flops_per_sample(recipe(), digits()).model
    spec = apply_overrides(recipe(), [f"--objective.name={file}:both"])
    spec = RunSpec(**{**vars(spec), "roles": (RoleSpec(name="reference"),)})
    assert flops_per_sample(spec, digits()).model == pytest.approx(alone + forward_flops(spec), rel=1e-12)


def test_an_objective_that_looks_at_values_is_named(tmp_path: Path) -> None:
    file = tmp_path / "objective.py"
    file.write_text(OBJECTIVE)
    spec = RunSpec(**{**vars(recipe()), "objective": ObjectiveSpec(name=f"{file}:looks")})
    with pytest.raises(NeedsValues, match="looks"):
        flops_per_sample(spec, digits())
