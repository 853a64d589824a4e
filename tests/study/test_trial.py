"""`headway try`: which findings are tried, how pairs are run and judged, and one real run whose input is slow on purpose."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from headway.report.trial import verdict
from headway.runtime import folder
from headway.runtime.folder import Run
from headway.spec.breakdown import Breakdown
from headway.spec.errors import RunError, SpecError
from headway.spec.finding import Finding
from headway.spec.run import RunSpec
from headway.spec.trial import Trial
from headway.study import runs, trial

SLOW = """
import time
import numpy as np


class Slow:
    name, fingerprint, num_classes, class_names, channels, size = "slow", "slow-1", 2, ("a", "b"), 1, 8

    def __len__(self):
        return 64

    def sample_id(self, index):
        return index

    def load(self, index):
        time.sleep(0.002)  # a disk far away: no processor is needed
        return {"image": np.full((1, 8, 8), index, np.uint8), "label": index % 2}


def make(spec):
    return Slow()
"""

WITH = Finding(what="slow input", bucket="idle.input", recoverable_ns=20_000_000, confidence=0.9, patch={"data.workers": 2})
WITHOUT = Finding(what="too hot", bucket="comm.wait", recoverable_ns=10, confidence=0.9, action="Cool it.")


def events(path: Path, walls_ns: list[int]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    lines = [
        {"kind": "step", "time_ns": 0, "step": k, "samples": 8 * (k + 1), "start_ns": k, "wall_ns": ns, "phases": {"other": ns}}
        for k, ns in enumerate(walls_ns)
    ]
    (path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run that has ended, with two findings."""
    path = tmp_path / "mine"
    events(path, [30_000_000] * 10)
    made = Run(path=path, spec=RunSpec(name="mine", global_batch=8), info={})
    folder.write_run(made)
    folder.write_json(path / "status.json", {"state": "ended"})
    found = Breakdown(ranks=(), findings=(WITH, WITHOUT), summary={"step_ns": {"median": 30_000_000}})
    monkeypatch.setattr(trial, "explain", lambda paths: found)
    return made


def trained(monkeypatch: pytest.MonkeyPatch, step_ns: Any) -> list[tuple[str, dict[str, Any]]]:
    """Short runs that take `step_ns(name, fields)` a step, and the list of those that were started."""
    started: list[tuple[str, dict[str, Any]]] = []

    def train(recipe: str, path: Path, *, fields: Mapping[str, Any], threads: int | None) -> None:
        started.append((path.name, dict(fields)))
        events(path, [900_000_000] * trial.WARMUP + [step_ns(path.name, fields)] * 10)

    monkeypatch.setattr(runs, "train", train)
    return started


def test_pairs_alternate_and_the_gain_is_their_mean(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    drift = {"0": 0, "1": 1_000_000, "2": 3_000_000}
    started = trained(monkeypatch, lambda name, fields: 30_000_000 + drift[name[1]] - 18_000_000 * (fields.get("data.workers") == 2))
    found, _ = trial.attempt(run, 1, pairs=3, steps=15)
    assert [name for name, _ in started] == ["a0", "b0", "b1", "a1", "a2", "b2"]
    assert all(fields["samples"] == 15 * 8 and fields["checkpoint.every"] == 0 for _, fields in started)
    assert [fields.get("data.workers") for name, fields in started if name[0] == "a"] == [None] * 3
    assert found.gain_ns == pytest.approx(18e6) and found.found and not found.as_predicted
    kept = json.loads((run.path / "trials.json").read_text())
    assert kept["schema"] == "headway.trial/1" and kept["trials"][0]["found"] is True
    trial.attempt(run, 1, pairs=2, steps=15)
    kept = json.loads((run.path / "trials.json").read_text())
    assert [Path(t["folder"]).name for t in kept["trials"]] == ["finding1", "finding1.1"], "an earlier trial is kept"


def test_no_gain_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = iter([30e6, 31e6, 29e6, 30e6, 31e6, 30e6, 30e6, 29e6])
    trained(monkeypatch, lambda name, fields: round(next(noise)))
    found, _ = trial.attempt(run, 1, steps=15)
    assert not found.found and "No gain is certain" in verdict(found)


@pytest.mark.parametrize(
    ("gain", "low", "high", "text"),
    [(20e6, 18e6, 22e6, "as predicted"), (10e6, 9e6, 11e6, r"less than predicted \(50%"), (-5e6, -6e6, -4e6, "slower")],
)
def test_verdicts(gain: float, low: float, high: float, text: str) -> None:
    made = Trial(
        finding=1, what="w", bucket="b", patch={}, predicted_ns=20_000_000, gain_ns=gain, low_ns=low, high_ns=high, confidence=0.95,
        step_a_ns=1, step_b_ns=1, pairs=(), b_first=(), steps=20, warmup=5, folder="", time_ns=0,
    )  # fmt: skip
    assert re.search(text, verdict(made))


def test_refusals(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match=r"there is no finding 3; it has 2"):
        trial.attempt(run, 3)
    with pytest.raises(SpecError, match=r"no setting cures finding 2 \(too hot\)\. Cool it\. Findings with one: 1"):
        trial.attempt(run, 2)
    monkeypatch.setattr(folder, "status", lambda path: {"state": "running", "pid": 7, "host": "here"})
    with pytest.raises(RunError, match="it is running"):
        trial.attempt(run, 1)


def test_a_run_without_findings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "explain", lambda paths: Breakdown(ranks=()))
    with pytest.raises(SpecError, match="it has none"):
        trial.attempt(run, 1)


def test_a_run_that_is_too_short(tmp_path: Path) -> None:
    events(tmp_path, [1, 2, 3])
    with pytest.raises(RunError, match="--steps"):
        trial.step_ns(tmp_path)


def test_checkpoints_are_kept_where_they_are_compared(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    every = Finding(what="c", bucket="idle.checkpoint", recoverable_ns=1, confidence=0.5, patch={"checkpoint.every": 1600})
    found = Breakdown(ranks=(), findings=(every,), summary={"step_ns": {"median": 30_000_000}})
    monkeypatch.setattr(trial, "explain", lambda paths: found)
    started = trained(monkeypatch, lambda name, fields: 30_000_000 + len(name))
    result, _ = trial.attempt(run, 1, pairs=2)
    assert result.steps >= 2 * 1600 / 8, "at least two checkpoints of each"
    assert {fields["checkpoint.every"] for _, fields in started} == {run.spec.checkpoint.every, 1600}


@pytest.mark.slow
@pytest.mark.alone
def test_a_slow_loader_is_found_and_its_cure_gains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data set that waits 2 ms for each sample: workers are the patch, and the wait goes away."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "slow.py").write_text(SLOW)
    fields = {"data.name": f"{tmp_path}/slow.py:make", "model.width": 32, "model.depth": 1, "global_batch": 16}
    quiet = {"samples": 480, "checkpoint.every": 0, "observe.profile_steps": "20-24", "observe.progress": "none"}
    path = tmp_path / "run"
    runs.train("digits", path, fields=fields | quiet)
    assert main(["try", str(path), "--finding", "1", "--pairs", "3", "--steps", "30", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "headway.trial/1"
    assert answer["bucket"] == "idle.input" and set(answer["patch"]) == {"data.workers"}
    assert answer["found"] and answer["gain_ns"] > 0.4 * answer["predicted_ns"]
    assert json.loads((path / "trials.json").read_text())["trials"][0]["gain_ns"] == answer["gain_ns"]
