"""Simulated clusters and run folders at several sizes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headway.spec.codec import encode
from headway.spec.errors import TraceError
from headway.spec.run import RunSpec
from headway.trace.scaling.scale import scale
from tests.trace.simulate import Cluster, simulate, write

BASE = Cluster(steps=5, layers=3, kernels=3, noise=0.005, norm=False, overlap=False, bandwidth=50e9, hop_ns=50_000)


def clusters(folder: Path, base: Cluster, *, strong: bool = False, sizes: Sequence[int] = (2, 4, 8)) -> list[Path]:
    """Traces of so many ranks, a folder each."""
    paths = []
    for n in sizes:
        kernel = base.kernel_ns * 2 / n if strong else base.kernel_ns
        write(simulate(replace(base, mesh={"dp": n}, kernel_ns=kernel, seed=n)), folder / f"n{n}")
        paths.append(folder / f"n{n}")
    return paths


def test_traces_of_a_weak_ladder(tmp_path: Path) -> None:
    (ladder,) = scale(clusters(tmp_path / "dit", BASE)).ladders
    assert (ladder.name, ladder.kind, ladder.why) == ("dit", "weak", "compute a step is constant")
    assert [r.size for r in ladder.rungs] == [2, 4, 8]
    last = ladder.rungs[-1]
    assert next(iter(last.lost)).startswith("comm.all_reduce.dp"), "the cost of the ring is what grows"
    assert sum(last.lost.values()) == sum(last.buckets.values()) - sum(ladder.rungs[0].buckets.values())
    assert last.efficiency < ladder.rungs[1].efficiency < 1 and "comm.all_reduce" in ladder.limits


def test_a_prediction_is_what_the_larger_cluster_takes(tmp_path: Path) -> None:
    (ladder,) = scale(clusters(tmp_path / "dit", replace(BASE, noise=0.002), sizes=(1, 2, 4, 8))).ladders
    truth = simulate(replace(BASE, noise=0.002, mesh={"dp": 16}, seed=99)).step_ns / 1e9
    twice = ladder.predictions[0]
    assert twice.size == 16 and twice.time == pytest.approx(truth, rel=0.05)


def test_traces_of_a_strong_ladder(tmp_path: Path) -> None:
    (ladder,) = scale(clusters(tmp_path / "dit", replace(BASE, kernel_ns=4_000_000, optimizer_ns=1), strong=True)).ladders
    assert ladder.kind == "strong" and ladder.rungs[-1].efficiency < 1


def test_two_families_side_by_side(tmp_path: Path) -> None:
    paths = [*clusters(tmp_path / "image", BASE), *clusters(tmp_path / "video", replace(BASE, kernel_ns=900_000))]
    found = scale(paths)
    assert sorted(s.name.partition(",")[0] for s in found.ladders) == ["image", "video"]


def run_folder(path: Path, world: int, batch: int, step_ns: int, *, width: int = 64) -> Path:
    """A run whose events tell 12 steps."""
    path.mkdir(parents=True)
    spec = encode(RunSpec(global_batch=batch))
    spec["model"]["width"] = width
    spec["mesh"]["dp_shard"] = world
    (path / "run.json").write_text(json.dumps({"schema": "headway.run/1", "spec": spec, "info": {"world": world, "device": "cpu"}}))
    rows: list[dict[str, object]] = [{"kind": "run", "time_ns": 0, "world": world}]
    for i in range(12):
        wall = step_ns + (i % 3) * 1000
        times = {"time_ns": 0, "start_ns": i * step_ns, "wall_ns": wall, "phases": {"forward": wall}}
        rows.append({"kind": "step", "step": i, "samples": batch * (i + 1), **times})
    (path / "events.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_runs_are_grouped_by_their_settings(tmp_path: Path) -> None:
    paths = [run_folder(tmp_path / f"n{n}", n, 32 * n, round(1e7 * (1 + n / 100))) for n in (1, 2, 4)]
    paths += [run_folder(tmp_path / f"wide{n}", n, 32 * n, round(3e7 * (1 + n / 100)), width=128) for n in (1, 2)]
    found = scale(paths)
    assert [(len(s.rungs), s.kind) for s in found.ladders] == [(3, "weak"), (2, "weak")]
    first = found.ladders[0]
    assert first.rungs[0].throughput == pytest.approx(32 / (1.01e7 + 1000) * 1e9, rel=1e-3)
    assert first.rungs[0].low is not None and first.law is not None
    assert found.ladders[1].law is None and any("not enough sizes" in n for n in found.ladders[1].notes)


def test_a_path_twice_is_refused(tmp_path: Path) -> None:
    path = run_folder(tmp_path / "a", 2, 64, 10**7)
    with pytest.raises(TraceError, match="given twice"):
        scale([path, tmp_path / "b" / ".." / "a"])
    with pytest.raises(TraceError, match="one size only"):
        scale([path])
    with pytest.raises(TraceError, match="no path given"):
        scale([])
