"""Hooks: when checkpoints are saved, which steps are traced, what is said of a stage, what trackers hear."""

from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path

import pytest

from headway.runtime import folder
from headway.spec.errors import RunError
from headway.spec.parts import ObserveSpec, StageSpec
from headway.train import trackers
from headway.train.hooks import Profile, Save, Stages
from headway.train.loop import Running, loop
from headway.train.step import StepOut
from tests.train import runs


class At:
    """Calls `do` before step `number`."""

    def __init__(self, number: int, do: object) -> None:
        self.number, self.do = number, do

    def before(self, run: Running) -> None:
        if run.state.step == self.number:
            self.do()  # type: ignore[operator]

    def after(self, run: Running, out: StepOut) -> None: ...
    def close(self, run: Running) -> None: ...


def traced(path: Path) -> list[str]:
    return sorted(p.name.partition(".")[0] for p in (path / "traces").glob("*.json.gz"))


def observed(**fields: object) -> ObserveSpec:
    return ObserveSpec(log_every=1, progress="none", **fields)  # type: ignore[arg-type]


# ---- profile windows ----


@pytest.mark.parametrize(
    ("planned", "asked_at", "num", "windows"),
    [
        ("5-6", 1, 1, ["2-2", "5-6"]),  # before a planned window: both
        ("1-4", 2, 2, ["1-4", "5-6"]),  # inside an open one: after it
        ("3-6", 1, 3, ["2-4", "5-6"]),  # into a planned one: what is left of it follows
        ("", 6, 9, ["7-7"]),  # cut by the end of the run
    ],
)
def test_requests_and_planned_windows_are_all_traced(tmp_path: Path, planned: str, asked_at: int, num: int, windows: list[str]) -> None:
    spec = runs.small(observe=observed(profile_steps=planned))
    run, hooks, signals, _ = runs.live(spec, tmp_path)
    ask = At(asked_at, lambda: folder.ask(tmp_path, "profile", steps=num))
    loop(run, [ask, *hooks, Profile(spec, signals)])
    assert traced(tmp_path) == [f"steps{int(a):06d}-{int(b):06d}" for a, _, b in (w.partition("-") for w in windows)]


# ---- checkpoints ----


@pytest.mark.parametrize(
    ("every", "saved"),
    [(0, [128]), (16, [16, 32, 48, 64, 80, 96, 112, 128]), (40, [48, 80, 128]), (48, [48, 96, 128]), (1, list(range(16, 129, 16)))],
)
def test_a_checkpoint_whenever_the_period_is_crossed_and_at_the_end(tmp_path: Path, every: int, saved: list[int]) -> None:
    spec = runs.small()
    spec = dataclasses.replace(spec, checkpoint=dataclasses.replace(spec.checkpoint, every=every, keep=99, blocking=True))
    run, hooks, _, _ = runs.live(spec, tmp_path)
    checkpoints = runs.saving(spec, tmp_path / "checkpoints")
    loop(run, [*hooks, Save(spec, checkpoints, hooks.guard)])
    assert [int(p.name[1:]) for p in sorted((tmp_path / "checkpoints").iterdir())] == saved


def test_a_run_that_is_at_its_end_already_saves_nothing(tmp_path: Path) -> None:
    spec = runs.small()
    run, hooks, _, _ = runs.live(spec, tmp_path)
    run.state.samples = spec.samples
    loop(run, [*hooks, Save(spec, runs.saving(spec, tmp_path / "checkpoints"), hooks.guard, last=spec.samples)])
    assert not (tmp_path / "checkpoints").exists()


# ---- stages ----


def test_a_stage_is_said_once_when_it_begins(tmp_path: Path) -> None:
    spec = runs.small(stages=(StageSpec(at=48, set={"optim.lr": 1e-4, "guard.nonfinite": "skip"}),))
    run, hooks, _, said = runs.live(spec, tmp_path)
    loop(run, [Stages(), *hooks])
    begun = "a stage begins at 48 samples: "
    assert said == [
        ("stage", f"{begun}optim.lr 0.001 -> 0.0001"),
        ("stage", f"{begun}guard.nonfinite 'stop' -> 'skip'"),
    ]
    run, hooks, _, said = runs.live(spec, tmp_path)
    run.state.samples = 64  # resumed inside the stage
    loop(run, [Stages(), *hooks])
    assert said == []


# ---- trackers ----


class Told:
    """A tracker that remembers."""

    def __init__(self, path: Path, spec: object) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def log(self, scalars: dict[str, float], step: int) -> None:
        self.rows.append((step, dict(scalars)))

    def close(self) -> None: ...


def test_trackers_hear_every_log_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trackers._KINDS, "mlflow", Told)
    spec = runs.small(observe=ObserveSpec(log_every=4, progress="none", trackers=("mlflow",)))
    run, hooks, _, _ = runs.live(spec, tmp_path)
    (tracker,) = hooks.observe._trackers = trackers.open_trackers(tmp_path, spec, run.tell)
    loop(run, hooks)
    told = tracker._tracker
    assert isinstance(told, Told)
    assert [step for step, _ in told.rows] == [1, 4, 8]
    assert {"loss", "grad_norm", "lr", "samples_s", "mfu", "memory_bytes", "loss_t1"} <= set(told.rows[1][1])


class Deaf(Told):
    """A tracker whose server is gone from the second line on."""

    def log(self, scalars: dict[str, float], step: int) -> None:
        super().log(scalars, step)
        if step > 2:
            raise ConnectionError("no route")

    def close(self) -> None:
        raise AssertionError("it hears no more")


def test_a_tracker_that_fails_is_told_once_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trackers._KINDS, "wandb", Deaf)
    spec = runs.small(observe=ObserveSpec(log_every=2, progress="none", trackers=("wandb",)))
    run, hooks, _, said = runs.live(spec, tmp_path)
    (tracker,) = hooks.observe._trackers = trackers.open_trackers(tmp_path, spec, run.tell)
    loop(run, hooks)
    tracker.close()
    assert run.done
    assert [text for kind, text in said if kind == "warning"] == ["tracker wandb failed and hears no more: ConnectionError: no route"]
    assert [step for step, _ in tracker._tracker.rows] == [1, 2, 4]


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in ("torch.utils.tensorboard", "wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RunError, match=f"pip install {name}"):
        trackers.open_trackers(tmp_path, runs.small(observe=ObserveSpec(trackers=(name,))), lambda kind, text: None)


def test_wandb_is_offline_unless_told_otherwise_and_goes_on_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, object]] = []
    logged: list[tuple[dict[str, float], int]] = []
    run = types.SimpleNamespace(log=lambda scalars, step: logged.append((scalars, step)), finish=lambda: logged.append(({}, -1)))
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=lambda **kw: calls.append(kw) or run))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    for _ in range(2):
        tracker = trackers.Wandb(tmp_path, runs.small(name="mine"))
    tracker.log({"loss": 0.5}, 3)
    tracker.close()
    assert (calls[0]["mode"], calls[0]["name"], calls[0]["dir"]) == ("offline", "mine", str(tmp_path))
    assert calls[0]["id"] == calls[1]["id"] and calls[0]["resume"] == "allow"
    assert logged == [({"loss": 0.5}, 3), ({}, -1)]


def test_mlflow_goes_on_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, object]] = []

    def start_run(run_id: str = "", run_name: str = "") -> object:
        said.append(("start", run_id or run_name))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="r1"))

    fake = types.SimpleNamespace(
        set_tracking_uri=lambda uri: said.append(("uri", uri.startswith("sqlite:///"))),
        set_experiment=lambda name: None,
        start_run=start_run,
        log_params=lambda rows: said.append(("params", rows["optim.lr"])),
        log_metrics=lambda rows, step: said.append(("log", step)),
        end_run=lambda: said.append(("end", None)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for _ in range(2):
        tracker = trackers.MLflow(tmp_path, runs.small(name="mine"))
        tracker.log({"loss": 1.0}, 5)
        tracker.close()
    first = [("uri", True), ("start", "mine"), ("params", "0.001"), ("log", 5), ("end", None)]
    assert said == [*first, ("uri", True), ("start", "r1"), ("log", 5), ("end", None)]


def test_a_trace_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    spec = runs.small(observe=observed(profile_steps="2-3"))
    run, hooks, signals, said = runs.live(spec, tmp_path)
    monkeypatch.setattr("headway.train.hooks.os.replace", full)
    loop(run, [*hooks, Profile(spec, signals)])
    assert run.done and list((tmp_path / "traces").iterdir()) == []
    assert any(kind == "warning" and "cannot be written: No space left" in text for kind, text in said)
