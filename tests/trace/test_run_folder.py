"""A run folder: traces, events and settings together."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from headway.spec.breakdown import to_json
from headway.spec.codec import encode
from headway.spec.errors import TraceError
from headway.spec.event import events_file, trace_file
from headway.spec.parts import CheckpointSpec, MeshSpec
from headway.spec.run import RunSpec
from headway.trace.emit import Emitter
from headway.trace.events import read_events
from headway.trace.explain import explain
from headway.trace.gather import rank_in_name
from tests.trace.drawing import draw

PROFILED = """
main [S2                ][S3                ]
main [load  ][L1]        [load  ][L2]
0.7            [n1   ]            [g2   ]
"""


def step(number: int, wall: int, **phases: int) -> str:
    return json.dumps({"kind": "step", "time_ns": 1, "step": number, "samples": 8, "start_ns": 10, "wall_ns": wall, "phases": phases})


def make(tmp_path: Path, *, torn: bool = False) -> Path:
    """Two ranks, steps 0 to 4 in the events, steps 2 and 3 profiled."""
    run = tmp_path / "digits"
    spec = RunSpec(global_batch=8, mesh=MeshSpec(dp_shard=2), checkpoint=CheckpointSpec(blocking=True))
    info: dict[str, Any] = {"flops_per_sample": 1000.0, "hardware_flops_per_sample": 1250.0, "world": 2, "peak_flops": 1e9, "device": "cpu"}
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"schema": "headway.run/1", "spec": encode(spec), "info": info}))
    for rank in (0, 1):
        draw(run / "traces" / trace_file(rank, 2, 3), PROFILED.strip("\n"), rank=rank, world=2).rename(
            run / "traces" / trace_file(rank, 2, 3).removesuffix(".gz")
        )
        rows = [json.dumps({"kind": "run", "time_ns": 0}), step(0, 900_000, input=100, forward=899_900)]
        rows += [step(k, 20_000, input=4_000, forward=9_000) for k in range(1, 5)]
        rows += [step(4, 30_000, optimizer=30_000)]  # step 4 again, after a restart
        (run / events_file(rank)).write_text("\n".join(rows) + ("\n" + step(5, 9)[:40] if torn else "\n"))
    return run


def test_run(tmp_path: Path) -> None:
    result = explain([make(tmp_path)])
    assert [(r.rank, r.device, [s.step for s in r.steps]) for r in result.ranks] == [(k, "cuda:0", [0, 1, 2, 3, 4]) for k in (0, 1)]
    steps = {s.step: s for s in result.ranks[0].steps}
    assert not steps[1].buckets
    assert steps[1].phases == {"input": 4_000, "forward": 9_000, "other": 7_000}
    assert steps[4].phases == {"optimizer": 30_000, "other": 0}
    assert sum(steps[2].buckets.values()) == steps[2].wall_ns == 20_000
    assert steps[2].buckets["idle.input"] == 8_000
    # 1000 FLOPs x 8 samples / 2 ranks in 20 us at 1e9 FLOP/s
    assert steps[2].flops == 4000
    assert steps[2].mfu == pytest.approx(4000 / (20e-6 * 1e9))
    assert steps[2].hfu == pytest.approx(5000 / (20e-6 * 1e9))
    for s in steps.values():
        s.check()


def test_summary_and_findings(tmp_path: Path) -> None:
    result = explain([make(tmp_path)])
    summary = result.summary
    assert (summary["world"], summary["ranks"], summary["num_steps"], summary["num_profiled"]) == (2, [0, 1], 5, 2)
    assert summary["warmup_steps"] == [0]
    assert summary["step_ns"]["max"] == 900_000  # marked, not hidden
    assert sum(b["total_ns"] for b in summary["buckets"].values()) == summary["wall_ns"] == 80_000
    assert summary["samples_s"] == pytest.approx(8 / (summary["step_ns"]["median"] / 1e9))
    finding = next(f for f in result.findings if f.bucket == "idle.input")
    assert finding.recoverable_ns == 8_000
    assert finding.patch == {"data.workers": 2}
    json.dumps(to_json(result))


def test_torn_line(tmp_path: Path) -> None:
    result = explain([make(tmp_path, torn=True)])
    assert [(h.rank, h.count) for h in result.health if h.what == "torn_lines"] == [(0, 1), (1, 1)]
    assert max(s.step for r in result.ranks for s in r.steps) == 4


def test_without_traces(tmp_path: Path) -> None:
    run = make(tmp_path)
    for path in (run / "traces").iterdir():
        path.unlink()
    result = explain([run])
    assert [(r.rank, r.device, len(r.steps)) for r in result.ranks] == [(0, "cpu", 5), (1, "cpu", 5)]
    assert result.summary["num_profiled"] == 0
    assert result.findings == ()
    for path in run.glob("events*"):
        path.unlink()
    with pytest.raises(TraceError, match="no traces and no steps"):
        explain([run])


def test_two_runs(tmp_path: Path) -> None:
    run = make(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "run.json").write_text((run / "run.json").read_text())
    (other / "events.jsonl").write_text((run / "events.jsonl").read_text())
    with pytest.raises(TraceError, match="two run folders"):
        explain([run, other])


def test_damaged_run_json(tmp_path: Path) -> None:
    run = make(tmp_path)
    (run / "run.json").write_text("{")
    with pytest.raises(TraceError, match=r"run\.json cannot be read"):
        explain([run])


def test_folder_of_files(tmp_path: Path) -> None:
    for rank in (0, 1):
        draw(tmp_path / f"r{rank}.json", PROFILED.strip("\n"), rank=rank, world=2)
    (tmp_path / "notes.json").write_text("{}")
    seen: list[Path] = []
    result = explain([tmp_path], watch=lambda files: nullcontext(seen.append))
    assert [r.rank for r in result.ranks] == [0, 1]
    assert len(seen) == 3
    assert [h.what for h in result.health if h.what == "not_a_trace"] == ["not_a_trace"]


def test_rank_from_the_name(tmp_path: Path) -> None:
    text = json.loads(draw(tmp_path / "x.json", PROFILED.strip("\n")).read_text())
    del text["distributedInfo"]
    paths = [tmp_path / "trace_rank-3.json", tmp_path / "worker1.json", tmp_path / "plain.json"]
    for path in paths:
        path.write_text(json.dumps(text))
    result = explain(paths)
    assert sorted(r.rank for r in result.ranks) == [0, 1, 3]
    assert [h.count for h in result.health if h.what == "rank_unknown"] == [3]


def test_a_log_line_with_a_loss_that_is_not_finite_is_no_torn_line(tmp_path: Path) -> None:
    emit = Emitter(tmp_path / "events.jsonl")
    emit.event("log", step=1, loss=math.nan, grad_norm=math.inf)
    emit.flush()
    read = read_events(tmp_path)
    assert math.isnan(read.logs[0]["loss"]) and read.logs[0]["grad_norm"] == math.inf and not read.health


@pytest.mark.parametrize(
    "line",
    [
        step(10**25, 20_000),
        step(6, 10**19),
        step(6, (1 << 63) - 1),
        step(6, 20_000, forward=10**30),
        step(6, 20_000).replace('"start_ns": 10', f'"start_ns": {(1 << 64) - 1}'),
        json.dumps({"kind": "log", "step": 10**400, "samples": 8, "loss": 1.0}),
        json.dumps({"kind": "log", "step": 6, "samples": 10**400, "loss": 10**400}),
        json.dumps({"kind": "step", "gc_ns": 10**30}),
        "[" * 100_000,
    ],
)
def test_a_line_with_numbers_that_nobody_can_count_is_left_out(tmp_path: Path, line: str) -> None:
    run = make(tmp_path)
    whole = explain([run])
    with (run / events_file(0)).open("a") as file:
        file.write(line + "\n")
    found = explain([run])
    assert [s.step for s in found.ranks[0].steps] == [0, 1, 2, 3, 4]
    assert found.ranks == whole.ranks


def test_settings_that_cannot_be_are_one_paragraph(tmp_path: Path) -> None:
    run = make(tmp_path)
    data = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(data | {"info": data["info"] | {"world": 10**18}}))
    with pytest.raises(TraceError, match=r"info\.world is 1000000000000000000, not a number of ranks"):
        explain([run])


def test_a_file_given_by_two_names_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = next((make(tmp_path) / "traces").iterdir()).rename(tmp_path / "a.json")
    (tmp_path / "b.json").symlink_to(trace)
    monkeypatch.chdir(tmp_path)
    assert explain(["a.json", trace, "b.json"]).ranks == explain(["a.json"]).ranks


def test_a_number_that_is_no_rank_is_not_taken_from_a_name() -> None:
    assert rank_in_name("x/rank-7.json") == 7
    assert rank_in_name(f"rank-{'9' * 60}.json") is None
