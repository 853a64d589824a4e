"""Roles: each trained network has an optimizer of its own, a frozen one does not move, all through the one step."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from headway.data.loader import Loader
from headway.data.registry import open_data
from headway.parallel.mesh import build_mesh
from headway.recipes.registry import resolve
from headway.runtime import build
from headway.spec.run import RunSpec, StageSpec, require
from headway.trace.emit import Emitter
from headway.train.step import step

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "01_own_everything.py")


def state_of(spec: RunSpec) -> tuple[build.TrainState, Loader]:
    data = open_data(spec.data, cache=None)
    state = build.build(spec, data, build_mesh(spec.mesh, "cpu"), torch.device("cpu"), load_role=lambda role: {})
    return state, Loader(data, spec.data, seed=spec.seed, global_batch=spec.global_batch)


def weights(state: build.TrainState, role: str) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in state.roles[role].parameters()])


def test_trained_roles_move_by_their_own_learning_rates_and_frozen_ones_do_not() -> None:
    spec = require(resolve(f"{EXAMPLE}:run"))
    state, loader = state_of(spec)
    start = {role: weights(state, role).clone() for role in state.roles}
    assert torch.equal(start["student"], start["reference"]), "a role starts as the student does"
    out = step(state, next(iter(loader)), Emitter(None))
    moved = {role: (weights(state, role) - start[role]).abs().max().item() for role in state.roles}
    assert moved["reference"] == 0
    # Adam's first step is lr for every weight with a gradient: 3e-3 of the student, 1e-2 of the critic
    assert abs(moved["student"] - 3e-3) < 1e-4
    assert abs(moved["critic"] - 1e-2) < 3e-4
    assert set(state.optimizers) == {"student", "critic"}
    assert set(out.losses[0].metrics) == {"pull", "critic"}


def test_the_critic_does_not_pull_at_the_student() -> None:
    spec = resolve(f"{EXAMPLE}:run")
    without = dataclasses.replace(spec, roles=tuple(dataclasses.replace(r, lr=0.0) if r.name == "critic" else r for r in spec.roles))
    ends = []
    for s in (spec, dataclasses.replace(without, optim=dataclasses.replace(without.optim, clip=0.0))):
        state, loader = state_of(dataclasses.replace(s, optim=dataclasses.replace(s.optim, clip=0.0)))
        for batches, _ in zip(loader, range(3), strict=False):
            step(state, batches, Emitter(None))
        ends.append(weights(state, "student"))
    assert torch.equal(*ends)


def test_a_stage_changes_the_learning_rate_when_its_samples_are_seen() -> None:
    spec = resolve(f"{EXAMPLE}:run")
    spec = require(dataclasses.replace(spec, stages=(StageSpec(at=64, set={"optim.lr": 1e-4}),)))
    state, loader = state_of(spec)
    rates = [step(state, batches, Emitter(None)).lr for batches, _ in zip(loader, range(4), strict=False)]
    assert rates == [3e-3, 3e-3, 1e-4, 1e-4]
