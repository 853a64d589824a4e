"""The log hook: figures of a period, the guard's policies, requests and signals; on one rank and on two."""

from __future__ import annotations

import dataclasses
import json
import math
import signal
import time
from pathlib import Path

import pytest
import torch

from headway.diffusion.objective import LossOut
from headway.runtime import build, folder
from headway.spec.errors import RunError
from headway.spec.parts import ObserveSpec
from headway.spec.run import RunSpec, StageSpec
from headway.train.hooks import Profile, Save
from headway.train.loop import Hook, Running, loop
from headway.train.observe import Observe, binned, next_flush
from headway.train.step import StepOut
from tests.ranks import run_ranks
from tests.train import runs


def rows(path: Path, kind: str, rank: int = 0) -> list[dict[str, object]]:
    return [r for r in map(json.loads, (path / f"events{rank}.jsonl").read_text().splitlines()) if r["kind"] == kind]


def test_a_log_line_holds_the_means_of_its_period(tmp_path: Path) -> None:
    run, hooks, _, _ = runs.live(runs.small(), tmp_path)
    seen: list[float] = []

    class Watch:
        def before(self, run: object) -> None: ...
        def after(self, run: object, out: object) -> None:
            seen.append((out.total[0] / out.total[1]).item())  # type: ignore[attr-defined]

        def close(self, run: object) -> None: ...

    loop(run, [*hooks, Watch()])  # type: ignore[list-item]
    run.emit.flush()
    logs = rows(tmp_path, "log")
    assert [r["step"] for r in logs] == [1, 2, 4, 6, 8], "the first step is shown at once"
    for first, row in zip((0, 1, 2, 4, 6), logs, strict=True):
        losses = seen[first : int(row["step"])]  # type: ignore[call-overload]
        assert row["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-12)
        by_t = [v for v in row["loss_by_t"] if v is not None]  # type: ignore[attr-defined]
        assert by_t and min(by_t) > 0
        assert row["samples_s"] > 0 and row["mfu"] > 0 and row["memory_bytes"] > 1 << 20  # type: ignore[operator]
    steps = rows(tmp_path, "step")
    assert len(steps) == 8
    for row in steps:
        assert sum(row["phases"].values()) == row["wall_ns"]  # type: ignore[attr-defined]
        assert {"input", "forward", "backward", "reduce", "clip", "optimizer", "ema"} <= set(row["phases"])  # type: ignore[call-overload]
    assert folder.read_json(tmp_path / "status.json")["samples"] == 128  # type: ignore[index]


def poison(run: object, at: int) -> None:
    """The images of step `at` are not finite on the last rank only."""
    batches = run.batches  # type: ignore[attr-defined]

    def broken():  # type: ignore[no-untyped-def]
        for number, micro in enumerate(batches):
            if number == at and run.place.rank == run.place.world - 1:  # type: ignore[attr-defined]
                micro[0]["image"][0] = math.nan
            yield micro

    run.batches = broken()  # type: ignore[attr-defined]


def guarded(spec: RunSpec, path: str) -> tuple[str, bool, list[tuple[str, str]], list[str]]:
    """How a run with a poisoned step ends: error, whether its weights are finite, what it said, its checkpoints."""
    import torch.distributed as dist

    rank = dist.get_rank() if dist.is_initialized() else 0
    run, hooks, _, said = runs.live(spec, Path(path), rank=rank)
    poison(run, 4)
    checkpoints = runs.saving(spec, Path(path) / "checkpoints", rank=rank)
    error = ""
    try:
        loop(run, [*hooks, Save(spec, checkpoints, hooks.guard)])
    except RunError as failed:
        error = str(failed)
    checkpoints.wait()
    finite = all(torch.isfinite(build.fsdp.local(p)).all().item() for p in run.state.roles["student"].parameters())
    run.emit.flush()
    return error, finite, said, sorted(p.name for p in (Path(path) / "checkpoints").glob("s*"))


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("policy", ["stop", "skip", "off"])
def test_a_step_that_is_not_finite(tmp_path: Path, world: int, policy: str) -> None:
    spec = runs.small(mesh=runs.layout(world), guard=runs.guard(policy))
    spec = dataclasses.replace(spec, checkpoint=dataclasses.replace(spec.checkpoint, every=16 * 3, keep=9))
    ends = run_ranks(guarded, world, spec, str(tmp_path))
    error, finite, said, saved = ends[0]
    assert all((e[0] == "") == (error == "") for e in ends), "all ranks end alike"
    if policy == "stop":
        assert "was not finite in step 4" in error and finite
        assert saved == ["s000000000048"], "nothing after the bad step is saved"
    elif policy == "skip":
        assert error == "" and finite and any("step 4" in text for _, text in said)
        assert saved[-1] == "s000000000128"
    else:
        assert not finite and saved == ["s000000000048"], "a state that is not finite is never saved"


def test_a_skipped_step_changes_nothing_but_the_clock(tmp_path: Path) -> None:
    run, *_ = runs.live(runs.small(guard=runs.guard("skip")), tmp_path)
    poison(run, 2)
    before: list[torch.Tensor] = []
    for number, out in enumerate(runs.steps(run, 3)):
        if number == 1:
            before = [t.clone() for t in leaves(build.saved(run.state))]
        assert out.ok.item() == (number != 2)
    after = leaves(build.saved(run.state))
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)) and run.state.samples == 48


def leaves(tree: object) -> list[torch.Tensor]:
    return [t for v in tree.values() for t in leaves(v)] if isinstance(tree, dict) else [tree]  # type: ignore[list-item]


def test_a_signal_and_a_request_end_the_run_at_the_next_line(tmp_path: Path) -> None:
    run, hooks, signals, _ = runs.live(runs.small(samples=16 * 100), tmp_path)
    signals.number = signal.SIGTERM
    loop(run, hooks)
    assert (run.reason, run.state.step) == ("SIGTERM", 1)
    run, hooks, _, _ = runs.live(runs.small(samples=16 * 100), tmp_path)
    folder.ask(tmp_path, "stop")
    loop(run, hooks)
    assert (run.reason, run.state.step) == ("request", 1)
    assert folder.asked(tmp_path, "stop") is None, "a request is carried out once"


@pytest.mark.parametrize(
    ("step", "every", "step_s", "after"),
    [
        (0, 10, 0.1, 10),
        (10, 10, 0.1, 20),
        (1, 10, 0.1, 10),
        (1, 10, 3.0, 4),
        (7, 10, 4.0, 9),
        (9, 10, 60.0, 10),
        (7, 100, 60.0, 8),
        (3, 10, 0.0, 10),
    ],
)
def test_a_request_waits_for_a_period_or_ten_seconds(step: int, every: int, step_s: float, after: int) -> None:
    assert next_flush(step, every, step_s) == after


class Long(Hook):
    """To the log hook of one rank every step looks 30 s long."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe

    def before(self, run: Running) -> None:
        self._observe._since = (time.perf_counter_ns() - 30_000_000_000, run.state.samples)


def uneven(spec: RunSpec, path: str) -> list[object]:
    """The steps that this rank has logged."""
    import torch.distributed as dist

    rank = dist.get_rank()
    run, hooks, *_ = runs.live(spec, Path(path), rank=rank)
    loop(run, [*hooks] if rank == 0 else [Long(hooks.observe), *hooks])
    run.emit.flush()
    return [row["step"] for row in rows(Path(path), "log", rank)]


def test_ranks_flush_at_the_same_steps_however_their_clocks_go(tmp_path: Path) -> None:
    spec = runs.small(mesh=runs.layout(2), observe=ObserveSpec(log_every=4, progress="none"))
    assert run_ranks(uneven, 2, spec, str(tmp_path)) == [[1, 2, 3, 4, 5, 6, 7, 8]] * 2, "the mean of the ranks is 15 s a step"


def test_a_live_run_is_traced_on_request(tmp_path: Path) -> None:
    spec = runs.small()
    run, hooks, signals, said = runs.live(spec, tmp_path)
    folder.ask(tmp_path, "profile", steps=2)
    loop(run, [*hooks, Profile(spec, signals)])
    assert [p.name for p in (tmp_path / "traces").iterdir()] == ["steps000001-000002.rank0.json.gz"]
    assert said == [("profile", f"traced steps 1 to 2: headway explain {tmp_path}")]


class Slow(Hook):
    """Steps from 30 on take longer."""

    def before(self, run: Running) -> None:
        time.sleep(0.2 if run.state.step >= 30 else 0.02)


def test_a_live_run_traces_itself_when_steps_become_slower(tmp_path: Path) -> None:
    for on in (True, False):
        path = tmp_path / str(on)
        spec = runs.small(samples=16 * 56, observe=ObserveSpec(log_every=4, progress="none", capture=on))
        run, hooks, signals, said = runs.live(spec, path)
        loop(run, [*hooks, Profile(spec, signals), Slow()])
        assert [p.name for p in (path / "traces").glob("*")] == (["steps000036-000038.rank0.json.gz"] if on else [])
        assert [kind for kind, _ in said] == (["cliff", "profile"] if on else [])


def test_a_window_that_the_run_cuts_is_written(tmp_path: Path) -> None:
    spec = runs.small()
    spec = dataclasses.replace(spec, observe=dataclasses.replace(spec.observe, profile_steps="6-99"))
    run, hooks, signals, _ = runs.live(spec, tmp_path)
    loop(run, [*hooks, Profile(spec, signals)])
    assert [p.name for p in (tmp_path / "traces").iterdir()] == ["steps000006-000007.rank0.json.gz"]


def test_samples_that_are_not_finite_are_in_no_bin() -> None:
    losses = LossOut(
        loss_sum=torch.tensor(1.0), count=4, per_sample=torch.tensor([1.0, 3.0, math.nan, math.inf]), t=torch.tensor([0.0, 0.3, 0.3, 1.0])
    )
    out = StepOut(step=0, losses=(losses,), total=torch.zeros(2), grad_norm=torch.tensor(0.0), ok=torch.tensor(False), lr=0.0)
    assert binned([out], 4).tolist() == [[1.0, 3.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]


def test_a_step_is_judged_by_the_policy_that_it_ran_under(tmp_path: Path) -> None:
    """Weights that are lost while the guard is off stay lost when a stage turns it on before the next log line."""
    spec = runs.small(guard=runs.guard("off"), stages=(StageSpec(at=80, set={"guard.nonfinite": "skip"}),))
    spec = dataclasses.replace(
        spec,
        observe=dataclasses.replace(spec.observe, log_every=8),
        checkpoint=dataclasses.replace(spec.checkpoint, every=16 * 3, keep=9),
    )
    _, finite, said, saved = guarded(spec, str(tmp_path))
    assert not finite and saved == ["s000000000048"], "a state that is not finite is never saved"
    assert [text for kind, text in said if "guard is off" in text], said
