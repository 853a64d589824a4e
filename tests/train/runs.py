"""A run in this process, step by step, for tests: what `train.run` does without the folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from headway.data.loader import Loader
from headway.data.registry import open_data
from headway.parallel.mesh import build_mesh
from headway.runtime import build
from headway.runtime.checkpoint import Checkpoints
from headway.runtime.launch import Place
from headway.spec.parts import DataSpec, GuardSpec, MeshSpec, ModelSpec, ObjectiveSpec, ObserveSpec, OptimSpec, PrecisionSpec, RoleSpec
from headway.spec.run import RunSpec
from headway.trace.emit import Emitter
from headway.train.guard import Guard
from headway.train.loop import Running
from headway.train.observe import Observe
from headway.train.signals import Signals
from headway.train.step import StepOut, step


class Hooks(NamedTuple):
    """The hooks that every run has."""

    guard: Guard
    observe: Observe


def small(**changes: object) -> RunSpec:
    """A digits run of a tiny network from a start without zero gradients."""
    spec = RunSpec(
        global_batch=16,
        samples=16 * 8,
        model=ModelSpec(depth=2, width=32, heads=2, init="perturbed"),
        data=DataSpec(window=256),
        objective=ObjectiveSpec(),
        optim=OptimSpec(lr=1e-3),
        observe=ObserveSpec(log_every=2, progress="none"),
    )
    return dataclasses.replace(spec, **changes)  # type: ignore[arg-type]


def double(spec: RunSpec) -> RunSpec:
    return dataclasses.replace(spec, precision=PrecisionSpec(compute="fp64", reduce="fp64"))


def layout(shard: int = 1, replicate: int = 1) -> MeshSpec:
    return MeshSpec(dp_shard=shard, dp_replicate=replicate)


def guard(policy: str) -> GuardSpec:
    return GuardSpec(nonfinite=policy)  # type: ignore[arg-type]


def live(
    spec: RunSpec,
    path: Path,
    *,
    rank: int = 0,
    device: str = "cpu",
    load_role: Callable[[RoleSpec], Mapping[str, Any]] | None = None,
) -> tuple[Running, Hooks, Signals, list[tuple[str, str]]]:
    """A run that can be stepped, its guard and log hook, its signals and what it has said."""
    data = open_data(spec.data, cache=None)
    mesh = build_mesh(spec.mesh, device)
    state = build.build(spec, data, mesh, torch.device(device), load_role=load_role)
    loader = Loader(
        data, spec.data, seed=spec.seed, global_batch=spec.global_batch, data_rank=mesh.data_rank, data_parallel=mesh.data_parallel,
        accumulate=spec.accumulate, start_samples=state.samples, pin=device == "cuda",
    )  # fmt: skip
    said: list[tuple[str, str]] = []
    place = Place(rank=rank, world=spec.mesh.world)
    run = Running(
        state=state, batches=iter(loader), emit=Emitter(path / f"events{rank}.jsonl"), path=path, place=place,
        tell=lambda kind, text: said.append((kind, text)),
    )  # fmt: skip
    signals = Signals()
    guard = Guard()
    observe = Observe(spec, place, progress=None, trackers=[], signals=signals, guard=guard, flops=1e6, hardware_flops=2e6, peak=1e12)
    return run, Hooks(guard, observe), signals, said


def resumed(spec: RunSpec, folder: Path, *, rank: int = 0) -> Running:
    """The run, from the newest checkpoint in `folder`."""
    run, *_ = live(spec, folder.parent, rank=rank)
    checkpoints = saving(spec, folder, rank=rank)
    found = checkpoints.newest()
    assert found is not None
    checkpoints.load(found, build.saved(run.state))
    run.state.samples = found.samples
    data, mesh = open_data(spec.data, cache=None), run.state.mesh
    run.batches = iter(
        Loader(
            data, spec.data, seed=spec.seed, global_batch=spec.global_batch, data_rank=mesh.data_rank, data_parallel=mesh.data_parallel,
            accumulate=spec.accumulate, start_samples=found.samples,
        )
    )  # fmt: skip
    return run


def saving(spec: RunSpec, folder: Path, *, rank: int = 0) -> Checkpoints:
    return Checkpoints(folder, spec.checkpoint, rank=rank, world=spec.mesh.world, notify=lambda kind, text: None)


def steps(run: Running, num: int) -> Iterator[StepOut]:
    for _ in range(num):
        yield step(run.state, next(run.batches), run.emit)


def losses(run: Running, num: int) -> list[float]:
    return [(out.total[0] / out.total[1]).item() for out in steps(run, num)]
