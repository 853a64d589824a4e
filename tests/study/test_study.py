"""What the studies say of their rows: the judgement, not the runs."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.runtime import folder
from headway.runtime.folder import Run
from headway.spec.breakdown import RankBreakdown, StepBreakdown
from headway.spec.errors import RunError
from headway.spec.parts import GuardSpec
from headway.spec.run import RunSpec, injections, require
from headway.study import kills, parity, runs, truth
from headway.trace.timeline import Timeline


def events(run: Path, rows: list[dict[str, Any]], rank: int = 0) -> None:
    run.mkdir(exist_ok=True)
    name = "events.jsonl" if rank == 0 else f"events.rank{rank}.jsonl"
    (run / name).write_text("".join(json.dumps(r) + "\n" for r in rows))


def test_the_worst_difference_is_relative_and_a_missing_step_is_infinite() -> None:
    assert runs.worst({1: 2.0, 2: 4.0}, {1: 2.0, 2: 4.1}, [1, 2]) == pytest.approx(0.025)
    assert runs.worst({1: 2.0}, {1: 2.0, 2: 4.1}, [1, 2]) == math.inf
    assert runs.worst({1: 1.0, 2: 1.0}, {1: 1.0, 2: math.nan}, [1, 2]) == math.inf


def test_the_last_life_of_a_step_counts(tmp_path: Path) -> None:
    events(tmp_path / "a", [{"kind": "log", "step": s, "loss": x} for s, x in ((1, 5.0), (2, 4.0), (2, 4.5))])
    assert runs.losses(tmp_path / "a") == {1: 5.0, 2: 4.5}


def test_the_hash_of_a_step_is_the_sum_over_ranks(tmp_path: Path) -> None:
    run = tmp_path / "a"
    run.mkdir()
    folder.write_run(Run(path=run, spec=RunSpec(), info={"world": 2}))
    for rank, value in enumerate(("ffffffffffffffff", "0000000000000003")):
        events(run, [{"kind": "draws", "step": 1, "hash": value}], rank)
    assert parity.trails(run) == {1: "0000000000000002"}


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({}, True),
        ({"worst_relative": 1.1e-6}, False),
        ({"worst_relative": math.nan}, False),
        ({"draws_equal": False}, False),
        ({"steps": 49}, False),
    ],
)
def test_a_row_of_parity_passes_within_its_bound_only(change: dict[str, Any], good: bool) -> None:
    row = {"precision": "fp32", "layout": "FSDP 2", "worst_relative": 9e-7, "draws_equal": True, "steps": parity.STEPS} | change
    assert parity.passed(row) == good
    assert ("ok" in parity.text_of(row)) == good


def test_every_layout_can_start() -> None:
    from headway.recipes.registry import resolve
    from headway.spec.codec import apply_overrides

    for layout in [*parity.LAYOUTS.values(), *kills.OTHER]:
        words = runs.command("digits", Path("x"), fields=parity.SMALL | layout)
        assert words[:7] == [sys.executable, "-m", "headway", "train", "digits", "--run", "x"]
        spec = require(apply_overrides(resolve("digits"), words[7:]))
        assert spec.mesh.world == layout.get("mesh.dp_shard", 1) * layout.get("mesh.dp_replicate", 1)


def test_every_case_of_truth_can_be_planted() -> None:
    for case in truth.CASES:
        site, _, rank = case.inject.partition(":")
        words = tuple(f"{site}:150@{k}-{k}" + (f":{rank}" if rank else "") for k in truth.DELAYED)
        planted = injections(RunSpec(guard=GuardSpec(inject=words)))
        assert [(p.site, p.ms, p.first, p.last) for p in planted] == [(site, 150.0, k, k) for k in truth.DELAYED]


def step(number: int, ms: float, **buckets: float) -> StepBreakdown:
    ns = {k.replace("_", "."): round(v * 1e6) for k, v in buckets.items()}
    return StepBreakdown(step=number, start_ns=0, wall_ns=round(ms * 1e6), buckets=ns, phases={"input": round(ms * 1e6)})


def test_the_gain_is_what_delayed_steps_have_over_their_neighbours() -> None:
    first, last = truth.WINDOW
    steps = [step(first, 999, idle_input=999)]  # the first of a window warms up
    for k in range(first + 1, last + 1):
        late, drift = k in truth.DELAYED, 0.5 * k  # a machine that becomes slower
        steps.append(step(k, (160.0 if late else 10.0) + drift, idle_input=151.0 if late else 1.0, compute_gemm=9.0 + drift))
    rank = RankBreakdown(rank=0, device="cpu", steps=tuple(steps))
    assert truth.gain(rank, "buckets", "idle.*") == pytest.approx(150.0)
    assert truth.gain(rank, "buckets", "compute.gemm") == pytest.approx(0.0, abs=1e-9)
    assert truth.gain(rank, "phases", "input") == truth.gain(rank, "wall", "") == pytest.approx(150.0)
    assert truth.names(rank, "buckets") == {"idle.input", "compute.gemm"}


def test_planted_ranges_are_looked_up_in_the_timeline() -> None:
    line = Timeline(
        rank=0, device="cpu", steps=(0,), edges=np.array([0, 100]), start=np.array([0, 10, 40, 60]), end=np.array([10, 40, 60, 100]),
        bucket=np.array([0, 1, 0, 1]), phase=np.array([2, 0, 0, 2]), module=np.zeros(4, int), label=np.full(4, -1),
        names=("compute.gemm", "idle.input"), modules=("other",), labels=(),
    )  # fmt: skip
    assert truth.inside(line, [(10, 40)], "buckets", "idle.*") == 1.0
    assert truth.inside(line, [(5, 15), (30, 50)], "buckets", "idle.input") == 15 / 30
    assert truth.inside(line, [(5, 15), (30, 50)], "phases", "input") == 25 / 30
    assert truth.inside(line, [], "buckets", "idle.input") == 0.0


@pytest.mark.parametrize(("bucket", "phase", "good"), [(0.95, None, True), (0.95, 0.96, True), (0.94, 1.0, False), (1.0, 0.9, False)])
def test_a_case_of_truth_passes_in_both_partitions(bucket: float, phase: float | None, good: bool) -> None:
    assert truth.passed({"bucket_share": bucket, "phase_share": phase}) == good


def test_the_ranks_of_a_run_are_found_by_its_folder(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()", str(tmp_path)], stdin=subprocess.PIPE) as process:
        with subprocess.Popen([sys.executable, "-c", "input()", f"{tmp_path}-other"], stdin=subprocess.PIPE) as other:
            assert kills.ranks_of(tmp_path) == [process.pid]
            other.communicate(b"\n")
        process.communicate(b"\n")
    assert kills.ranks_of(tmp_path) == []


def test_a_run_of_a_study_is_no_rank_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.setenv(name, "1")
    environ = runs.environment()
    assert not {"RANK", "WORLD_SIZE", "SLURM_PROCID"} & environ.keys() and environ["OMP_NUM_THREADS"] == "1"
    assert environ["PATH"] == os.environ["PATH"]


def test_a_run_that_fails_is_an_error_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"exit code 2.*did you mean --seed"):
        runs.train("digits", tmp_path / "a", fields={"sead": 1})
