"""The same run on every layout: losses within 1e-11 in float64, and a resume on another layout goes on as if nothing had happened."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from headway.diffusion import path
from headway.diffusion.objective import LossOut, Objective, flow
from headway.kernels.draw import Draw
from headway.parallel import fsdp
from headway.runtime import build
from headway.spec.parts import ObjectiveSpec, RematSpec
from headway.spec.run import RunSpec
from tests.ranks import run_ranks
from tests.train import runs

NUM = 6
LAYOUTS = [(1, 1, 2), (2, 1, 1), (2, 1, 2), (4, 1, 1), (1, 2, 1), (2, 2, 1), (2, 2, 2)]  # dp_shard, dp_replicate, accumulate


def curve(spec: RunSpec, num: int = NUM) -> list[float]:
    import torch.distributed as dist

    run, *_ = runs.live(spec, Path("/nowhere"), rank=dist.get_rank() if dist.is_initialized() else 0)
    return runs.losses(run, num)


def curve_with_mean_gradients(spec: RunSpec) -> list[float]:
    """The planted bug: gradients averaged over ranks instead of summed."""
    shard = fsdp.shard

    def wrong(network: torch.nn.Module, *args: object, **kw: object) -> torch.nn.Module:
        net = shard(network, *args, **kw)  # type: ignore[arg-type]
        for module in net.modules():
            if isinstance(module, fsdp.FSDPModule):
                module.set_gradient_divide_factor(float(spec.mesh.world))
        return net

    fsdp.shard = wrong  # type: ignore[assignment]
    return curve(dataclasses.replace(spec, optim=dataclasses.replace(spec.optim, clip=0.0)))


def on(spec: RunSpec, shard: int, replicate: int, accumulate: int = 1) -> RunSpec:
    return dataclasses.replace(spec, mesh=runs.layout(shard, replicate), accumulate=accumulate)


def gap(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) / abs(x) for x, y in zip(a, b, strict=True))


@pytest.fixture(scope="module")
def alone() -> list[float]:
    return curve(runs.double(runs.small()))


@pytest.mark.parametrize(("shard", "replicate", "accumulate"), LAYOUTS)
def test_every_layout_has_the_same_losses(alone: list[float], shard: int, replicate: int, accumulate: int) -> None:
    spec = on(runs.double(runs.small()), shard, replicate, accumulate)
    curves = run_ranks(curve, shard * replicate, spec)
    assert all(c == curves[0] for c in curves), "all ranks hear the same loss"
    assert gap(alone, curves[0]) <= 1e-11


def test_recomputation_changes_nothing(alone: list[float]) -> None:
    spec = dataclasses.replace(on(runs.double(runs.small()), 2, 1), remat=RematSpec(mode="full"))
    assert gap(alone, run_ranks(curve, 2, spec)[0]) <= 1e-11


def test_the_comparison_sees_averaged_gradients() -> None:
    spec = on(runs.double(runs.small()), 2, 1)
    plain = dataclasses.replace(spec, optim=dataclasses.replace(spec.optim, clip=0.0))
    right, wrong = run_ranks(curve, 2, plain)[0], run_ranks(curve_with_mean_gradients, 2, spec)[0]
    assert gap(right, wrong) > 1e-9


def foreground(spec: ObjectiveSpec) -> Objective:
    """An objective whose number of elements differs from sample to sample: the error of bright pixels."""
    whole = flow(spec)

    def loss(roles: Mapping[str, torch.nn.Module], batch: Mapping[str, torch.Tensor], draw: Draw) -> LossOut:
        bright = batch["image"] > 0
        t = draw.uniform("timestep")
        eps = draw.normal("noise", batch["image"].shape[1:], dtype=batch["image"].dtype)
        v = roles["student"](path.interpolate(batch["image"], eps, t), t, {"label": batch["label"]})
        error = (v - path.velocity(batch["image"], eps)).square() * bright
        count = int(bright.sum())
        return dataclasses.replace(whole(roles, batch, draw), loss_sum=error.sum(), count=count, t=t)

    return loss


@pytest.mark.parametrize(("shard", "replicate", "accumulate"), [(1, 1, 2), (2, 1, 1), (1, 2, 2)])
def test_ranks_whose_samples_count_differently_agree(shard: int, replicate: int, accumulate: int) -> None:
    spec = dataclasses.replace(runs.double(runs.small()), objective=ObjectiveSpec(name=f"{__file__}:foreground"))
    spec = dataclasses.replace(spec, optim=dataclasses.replace(spec.optim, eps=1e-3))  # Adam forgives a wrong scale; with this it does not
    curves = run_ranks(curve, shard * replicate, on(spec, shard, replicate, accumulate))
    assert all(c == curves[0] for c in curves)
    assert gap(curve(spec), curves[0]) <= 1e-11


def save_at(spec: RunSpec, folder: str, num: int) -> list[float]:
    import torch.distributed as dist

    rank = dist.get_rank() if dist.is_initialized() else 0
    run, *_ = runs.live(spec, Path(folder), rank=rank)
    first = runs.losses(run, num)
    checkpoints = runs.saving(spec, Path(folder) / "checkpoints", rank=rank)
    checkpoints.save(build.saved(run.state), samples=run.state.samples, meta={})
    rest = runs.losses(run, NUM - num)  # goes on while it is written
    checkpoints.wait()
    return first + rest


def go_on(spec: RunSpec, folder: str, num: int) -> list[float]:
    import torch.distributed as dist

    return runs.losses(runs.resumed(spec, Path(folder) / "checkpoints", rank=dist.get_rank() if dist.is_initialized() else 0), num)


@pytest.mark.parametrize("then", [(2, 1, 1), (1, 1, 1), (1, 1, 4), (2, 2, 1)])
def test_a_resume_goes_on_as_if_nothing_had_happened(tmp_path: Path, then: tuple[int, int, int]) -> None:
    spec = on(runs.double(runs.small()), 2, 1)
    whole = run_ranks(save_at, 2, spec, str(tmp_path), 3)[0]
    rest = run_ranks(go_on, then[0] * then[1], on(spec, *then), str(tmp_path), NUM - 3)[0]
    if then == (2, 1, 1):
        assert rest == whole[3:], "bitwise on the same layout"
    assert gap(whole[3:], rest) <= 1e-11
