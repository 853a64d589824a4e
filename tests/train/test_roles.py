"""Roles: each trained network has an optimizer of its own, a frozen one does not move, all through the one step."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import torch

from headway.data.loader import Loader
from headway.data.registry import open_data
from headway.parallel.mesh import build_mesh
from headway.recipes.registry import resolve
from headway.runtime import build, folder
from headway.runtime.checkpoint import load_tensors
from headway.runtime.launch import Place
from headway.runtime.load import load_weights
from headway.spec.run import RunSpec, StageSpec, require
from headway.trace.emit import Emitter
from headway.train import run
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


def test_each_role_is_clipped_by_its_own_norm() -> None:
    """A critic with a gradient a million times larger leaves the student's update as it was."""
    spec = resolve(f"{EXAMPLE}:run")
    spec = dataclasses.replace(spec, optim=dataclasses.replace(spec.optim, clip=0.01, eps=1e-3))
    ends = []
    for factor in (1.0, 1e6):
        state, loader = state_of(spec)
        plain = state.objective

        def loud(roles: Any, batch: Any, draw: Any, plain: Any = plain, factor: float = factor) -> Any:
            out = plain(roles, batch, draw)
            critic = sum(p.square().sum() for p in roles["critic"].parameters())
            return dataclasses.replace(out, loss_sum=out.loss_sum + factor * (critic - critic.detach()))

        state.objective = loud
        out = step(state, next(iter(loader)), Emitter(None))
        ends.append((weights(state, "student"), out.grad_norm))
    assert torch.equal(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]


def test_a_resume_needs_the_source_of_a_loaded_role_no_more(tmp_path: Path) -> None:
    spec = resolve(f"{EXAMPLE}:run")
    spec = dataclasses.replace(
        spec,
        samples=64,
        observe=dataclasses.replace(spec.observe, progress="none", peak="h200"),
        ema=dataclasses.replace(spec.ema, half_life=0),
    )
    assert run.train(spec, tmp_path / "teacher", Place()) == 0
    teacher = load_weights(folder.open_run(str(tmp_path / "teacher")))
    roles = (dataclasses.replace(spec.roles[0], init=str(tmp_path / "teacher")), spec.roles[1])
    student = dataclasses.replace(spec, roles=roles, seed=1)
    assert run.train(student, tmp_path / "student", Place()) == 0
    shutil.rmtree(tmp_path / "teacher")
    assert run.train(dataclasses.replace(student, samples=128), tmp_path / "student", Place()) == 0
    kept = load_tensors(tmp_path / "student" / "checkpoints" / "s000000000128", "reference.model")
    assert kept.keys() == teacher.keys() and all(torch.equal(kept[n], teacher[n]) for n in kept)
