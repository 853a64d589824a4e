"""Run folders: settings by kind, losses, batch, steps that were not traced, memory by counters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.spec.codec import encode
from headway.spec.errors import TraceError
from headway.spec.run import RunSpec
from headway.trace.diff.diff import diff


def run_folder(
    path: Path, *, walls: list[int], batch: int = 64, world: int = 1, losses: dict[int, float] | None = None, **fields: Any
) -> Path:
    """A run whose events tell one step a wall time, and a log line a loss; `fields` are settings by dotted name, with _ for the dot."""
    path.mkdir(parents=True)
    spec = encode(RunSpec(global_batch=batch, name=path.name))
    for name, value in fields.items():
        part, _, key = name.partition("_")
        spec[part][key] = value
    info = {"world": world, "device": "cpu", "versions": {"torch": fields.get("x", "2.13")}}
    (path / "run.json").write_text(json.dumps({"schema": "headway.run/1", "spec": spec, "info": info}))
    rows: list[dict[str, Any]] = [{"kind": "run", "time_ns": 0, "world": world}]
    for i, wall in enumerate(walls):
        phases = {"input": wall // 10, "forward": wall - wall // 10}
        rows.append({"kind": "step", "time_ns": 0, "step": i, "samples": 0, "start_ns": 0, "wall_ns": wall, "phases": phases})
    rows += [{"kind": "log", "time_ns": 0, "samples": s, "step": s, "loss": v, "memory_bytes": s << 20} for s, v in (losses or {}).items()]
    (path / "events.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def walls(seed: int, mean: float, n: int = 40) -> list[int]:
    return np.rint(np.random.default_rng(seed).normal(mean, mean * 0.02, n)).astype(int).tolist()


def test_settings_are_told_by_kind_and_the_name_of_a_run_is_none(tmp_path: Path) -> None:
    a = run_folder(tmp_path / "a", walls=walls(0, 1e8), losses={64: 1.0, 128: 0.5})
    b = run_folder(
        tmp_path / "b", walls=walls(1, 1e8), losses={64: 1.0, 128: 0.25, 192: 0.1}, model_width=32, optim_lr=0.5, mesh_dp_shard=2
    )
    found = diff(a, b)
    told = {s.name: s.kind for s in found.settings}
    assert list(told.items()) == [("model.width", "identity"), ("mesh.dp_shard", "layout"), ("optim.lr", "stage")]
    assert found.loss == {"samples": 128.0, "a": 0.5, "b": 0.25}


def test_steps_without_a_trace_are_compared_by_phase(tmp_path: Path) -> None:
    a, b = (run_folder(tmp_path / n, walls=walls(i, m)) for i, (n, m) in enumerate((("a", 1e8), ("b", 1.1e8))))
    found = diff(a, b)
    assert found.buckets == () and found.kernels == () and {c.name for c in found.phases} == {"input", "forward"}
    assert sum(c.delta for c in found.phases) == found.step.delta and found.step.verdict == "real"
    assert found.step.delta == pytest.approx(1e7, rel=0.1)


def test_noise_says_how_many_steps_it_would_take(tmp_path: Path) -> None:
    a, b = (run_folder(tmp_path / n, walls=walls(i, m, 8)) for i, (n, m) in enumerate((("a", 1e8), ("b", 1.005e8))))
    found = diff(a, b)
    assert found.step.verdict == "noise" and found.steps_needed is not None and found.steps_needed > 8
    assert "It would take about" in found.text


def test_another_batch_is_said_and_a_sample_has_its_time(tmp_path: Path) -> None:
    a = run_folder(tmp_path / "a", walls=walls(0, 1e8), batch=64)
    b = run_folder(tmp_path / "b", walls=walls(1, 1.5e8), batch=128)
    found = diff(a, b)
    assert any("different batches: 64 and 128" in w for w in found.warnings)
    assert found.a.sample_ns == round(found.a.step_ns / 64) and found.b.sample_ns == round(found.b.step_ns / 128)
    assert found.b.sample_ns < found.a.sample_ns


def test_memory_adds_up(tmp_path: Path) -> None:
    a, b = (run_folder(tmp_path / n, walls=walls(0, 1e8), losses={s: 1.0}) for n, s in (("a", 64), ("b", 96)))
    found = diff(a, b)
    assert found.memory_total is not None and sum(c.delta for c in found.memory) == found.memory_total.delta == 32 << 20


def judged(path: Path, share: float, low: float, high: float, guidance: float = 2.0) -> None:
    interval = {"estimate": share, "low": low, "high": high}
    said = {
        "num": 200,
        "guidance": guidance,
        "agreement": {"agree": 1, "interval": interval},
        "copies": interval,
        "ratio": share,
        "text": "x",
    }
    (path / "evaluate.json").write_text(json.dumps(said))


def test_quality_is_compared_by_its_intervals(tmp_path: Path) -> None:
    a, b = (run_folder(tmp_path / n, walls=walls(0, 1e8)) for n in "ab")
    assert diff(a, b).quality == ()
    judged(a, 0.9, 0.85, 0.94)
    judged(b, 0.92, 0.88, 0.95)
    assert [(q.name, q.verdict) for q in diff(a, b).quality] == [("agreement", "noise"), ("copies", "noise"), ("ratio", "unknown")]
    judged(b, 0.99, 0.97, 1.0, guidance=1.0)
    found = diff(a, b)
    assert [q.verdict for q in found.quality] == ["real", "real", "unknown"]
    assert any("judged in different ways: guidance 2.0 and 1.0" in w for w in found.warnings)
    (b / "evaluate.json").write_text("{")
    assert diff(a, b).quality == ()


def test_a_run_without_steps_is_refused(tmp_path: Path) -> None:
    a, b = run_folder(tmp_path / "a", walls=walls(0, 1e8)), run_folder(tmp_path / "b", walls=[])
    with pytest.raises(TraceError, match="no steps"):
        diff(a, b)
