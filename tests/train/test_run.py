"""A whole run in this process: its folder, its events, what a network may not do."""

from __future__ import annotations

import dataclasses
import gc
import json
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from headway.data.digits import digits
from headway.runtime import folder, launch
from headway.runtime.launch import Place
from headway.spec.errors import RunError, SpecError
from headway.spec.event import SCHEMA
from headway.spec.parts import ModelSpec, ObserveSpec
from headway.spec.run import RunSpec
from headway.trace.explain import explain
from headway.train import run, trackers
from headway.train.loop import Hook, Running
from tests.ranks import run_ranks
from tests.train import runs

SMALL = "--model.depth 1 --model.width 32 --model.heads 2 --global-batch 32 --observe.peak h200"
NETWORK = """
import torch
class Peeks(torch.nn.Linear):
    def forward(self, x, t, condition):
        scale = 1.0 if x.abs().max().item() > 0 else 0.0
        return super().forward(x) * scale
def peeks(model, *, channels, size, num_classes):
    return Peeks(size, size)
class Flat(torch.nn.Linear):
    def forward(self, x, t, condition):
        return super().forward(x).flatten(1)
def flat(model, *, channels, size, num_classes):
    return Flat(size, size)
"""


def small(**changes: object) -> RunSpec:
    return runs.small(observe=ObserveSpec(log_every=2, progress="none", peak="h200"), **changes)


def own(tmp_path: Path, name: str) -> RunSpec:
    (tmp_path / "net.py").write_text(NETWORK)
    return small(model=ModelSpec(name=f"{tmp_path / 'net.py'}:{name}", condition="none"))


def events(path: Path, kind: str) -> list[dict[str, object]]:
    return [e for e in folder.read_events(path) if e["kind"] == kind]


def test_every_step_of_a_run_is_accounted_for(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert run.train(small(), path, Place()) == 0
    (begin,) = events(path, "run")
    assert (begin["schema"], begin["rank"], begin["world"], begin["samples"]) == (SCHEMA, 0, 1, 0)
    assert begin["versions"] == folder.open_run(str(path)).info["versions"]
    (rank,) = explain([path]).ranks
    assert [s.step for s in rank.steps] == list(range(8)), "the last one too"
    assert all(sum(s.phases.values()) == s.wall_ns for s in rank.steps)
    assert json.loads((path / "graph.json").read_text())["schema"] == "headway.graph/1"
    assert run.train(small(samples=16 * 9), path, Place()) == 0
    assert [e["samples"] for e in events(path, "run")] == [0, 128]
    assert [str(e["text"]) for e in events(path, "stage")] == ["changed on resume: samples 128 -> 144"]


def test_a_network_that_looks_at_values_trains_without_mfu(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert run.train(own(tmp_path, "peeks"), path, Place()) == 0
    assert folder.open_run(str(path)).info["flops_per_sample"] is None
    assert [str(e["text"])[:19] for e in events(path, "warning")] == ["no FLOPs and no MFU"]
    assert all("mfu" not in e for e in events(path, "log"))


def test_a_network_that_returns_no_velocity_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a velocity of shape"):
        run.train(own(tmp_path, "flat"), tmp_path / "a", Place())


def broken(running: object, hooks: object) -> None:
    raise RunError("no more")


def test_trackers_are_closed_however_a_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[str] = []

    class Told:
        def __init__(self, path: Path, spec: RunSpec) -> None: ...
        def log(self, scalars: dict[str, float], step: int) -> None: ...
        def close(self) -> None:
            ends.append("closed")

    monkeypatch.setitem(trackers._KINDS, "wandb", Told)
    spec = small()
    spec = dataclasses.replace(spec, observe=dataclasses.replace(spec.observe, trackers=("wandb",)))
    assert run.train(spec, tmp_path / "a", Place()) == 0
    monkeypatch.setattr(run, "loop", broken)
    with pytest.raises(RunError, match="no more"):
        run.train(spec, tmp_path / "b", Place())
    assert ends == ["closed", "closed"]
    assert folder.status(tmp_path / "b")["state"] == "failed"


def missing_tracker(path: str) -> str:
    spec = small(mesh=runs.layout(2))
    rank = torch.distributed.get_rank()
    try:
        launch.process_group = lambda place, mesh: nullcontext(torch.device("cpu"))  # type: ignore[assignment]  # there is one
        sys.modules["mlflow"] = None  # type: ignore[assignment]
        run.train(
            dataclasses.replace(spec, observe=dataclasses.replace(spec.observe, trackers=("mlflow",))),
            Path(path),
            Place(rank=rank, world=2),
        )
    except RunError as error:
        return str(error)
    return ""


def test_a_tracker_that_is_not_installed_ends_all_ranks(tmp_path: Path) -> None:
    ends = run_ranks(missing_tracker, 2, str(tmp_path / "a"))
    assert ends[0] == ends[1] and "pip install mlflow" in ends[0]


def test_a_run_that_is_stopped_does_not_claim_a_checkpoint_that_is_not_there(tmp_path: Path) -> None:
    spec = small()
    for saved in (False, True):
        live, _, signals, _ = runs.live(spec, tmp_path)
        live.state.samples, live.reason = 32, "request"
        if saved:
            (tmp_path / "checkpoints" / "s000000000032").mkdir(parents=True)
        run.finish(live, None, signals)
        text = json.loads((tmp_path / "events0.jsonl").read_text().splitlines()[-1])["text"]
        assert ("checkpoint saved" in text) == saved and "the same command goes on" in text


def test_a_run_whose_folder_is_removed_while_it_runs_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = tmp_path / "a", run.loop

    def removing(running: Running, hooks: list[Hook]) -> None:
        class Removes(Hook):
            def after(self, running: Running, out: object) -> None:
                if running.state.step == 3:
                    shutil.rmtree(path)

        real(running, [Removes(), *hooks])

    monkeypatch.setattr(run, "loop", removing)
    assert run.train(small(), path, Place()) == 0
    assert folder.open_run(str(path)).spec == small()
    assert ["removed or moved away" in str(e["text"]) for e in events(path, "warning")] == [True]
    assert [p.name for p in (path / "checkpoints").glob("s*")] == ["s000000000128"]


def test_without_its_run_json_a_run_keeps_its_settings_and_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    assert run.train(small(), path, Place()) == 0
    (path / "run.json").unlink()
    with pytest.raises(SpecError, match="--seed was 0, now 1"):
        run.train(small(seed=1), path, Place())
    changed = digits()
    changed.fingerprint = "other"
    monkeypatch.setattr(run, "open_data", lambda spec, cache: changed)
    with pytest.raises(RunError, match=r"is not the one this run began with \(1797 samples then, 1797 now\)"):
        run.train(small(samples=16 * 9), path, Place())
    monkeypatch.undo()
    assert run.train(small(samples=16 * 9), path, Place()) == 0
    assert folder.open_run(str(path)).spec.samples == 16 * 9


def test_garbage_collections_of_a_run_do_not_walk_what_was_there_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, frozen = run.loop, []

    class Looks(Hook):
        def before(self, running: Running) -> None:
            frozen.append(gc.get_freeze_count())

    monkeypatch.setattr(run, "loop", lambda running, hooks: real(running, [Looks(), *hooks]))
    before = gc.get_freeze_count()
    assert run.train(small(), tmp_path / "a", Place()) == 0
    assert min(frozen) > 10_000 > before == gc.get_freeze_count()


def test_other_classes_are_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    assert run.train(small(), path, Place()) == 0
    fewer = digits()
    fewer.fingerprint, fewer.class_names, fewer.num_classes = "other", fewer.class_names[:5], 5
    monkeypatch.setattr(run, "open_data", lambda spec, cache: fewer)
    with pytest.raises(RunError, match="is not the one this run began with"):
        run.train(small(samples=16 * 9), path, Place())


def test_a_run_that_cannot_fit_is_refused_before_it_is_built(tmp_path: Path) -> None:
    for changes in ({"global_batch": 1 << 32, "samples": 1 << 40}, {"model": ModelSpec(depth=2, width=1 << 20, heads=64)}):
        with pytest.raises(RunError, match="this run needs at least"):
            run.train(small(**changes), tmp_path / "a", Place())
    assert "this run needs at least" in folder.status(tmp_path / "a")["error"]


FAILS = """
from headway.diffusion.objective import flow
def fails(spec):
    inner, calls = flow(spec), []
    def loss(roles, batch, draw):
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.")
        return inner(roles, batch, draw)
    return loss
"""


def test_a_run_that_fails_under_an_open_profiler_ends_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FAILS)
    words = f"train digits --run a --objective.name own.py:fails --observe.profile-steps 0-9 {SMALL}".split()
    ended = subprocess.run([sys.executable, "-m", "headway", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr.count("Error: out of memory")) == (2, 1), ended.stderr
    status = folder.status(tmp_path / "runs/a")
    assert (status["state"], status["error"]) == ("failed", "CUDA out of memory. Tried to allocate 2 GiB.")


def test_a_run_that_fails_at_its_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise RunError("no network can be built")

    monkeypatch.setattr(run.build, "build", none)
    with pytest.raises(RunError):
        run.train(small(), tmp_path / "a", Place())
    status = folder.status(tmp_path / "a")
    assert (status["state"], status["error"]) == ("failed", "no network can be built.")
    assert [e["text"] for e in events(tmp_path / "a", "end")] == ["no network can be built."]
