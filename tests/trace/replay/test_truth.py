"""Planted causes: the first finding is the right one for every seed, and its predicted gain is what a run without the cause gains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.trace.explain import explain
from tests.trace.simulate import Cluster, simulate, write

PAIR, SQUARE = {"dp": 2}, {"dp": 2, "tp": 2}
BOTH = dict.fromkeys(range(2), 1.0)
# cause -> (a run without it, what is planted, the bucket of the first finding, words of it)
CASES: dict[str, tuple[Cluster, dict[str, Any], str, str]] = {
    "input": (Cluster(input_ns=0.0), {"late_input_ns": {0: 4e6, 1: 4e6}}, "idle.input", "for input"),
    "input of one rank": (Cluster(input_ns=0.0), {"late_input_ns": {1: 4e6}}, "idle.input", "for input"),
    "launch": (Cluster(), {"slow_host": {0: 40.0, 1: 40.0}}, "idle.launch", "to issue work"),
    "small kernels": (
        Cluster(kernel_ns=12_000, optimizer_ns=12_000, kernels=40, gradient_bytes=1 << 20, launch_ns=4_000),
        {"launch_ns": 24_000},
        "idle.launch",
        "many small kernels",
    ),
    "sync": (
        Cluster(layers=8, kernels=1, kernel_ns=110_000, launch_ns=60_000, input_ns=0.0, gradient_bytes=1 << 20, syncs=0),
        {"syncs": 9},
        "idle.sync",
        "the host waits",
    ),
    "slow link": (Cluster(mesh=SQUARE), {"slow_link": {3: 8.0}}, "comm", "slower than others of their size"),
    "slow rank": (Cluster(), {"slow_compute": {1: 1.5}}, "comm.wait", "Rank 1 computes slower"),
    "missing overlap": (Cluster(gradient_bytes=256 << 20, layers=8), {"overlap": False}, "comm", "compute could hide"),
    "checkpoint": (Cluster(), {"save_ns": {0: 18e6, 1: 18e6}}, "idle.checkpoint", "for a checkpoint"),
    "fragmentation": (Cluster(), {"retries": 3}, "idle.allocator", "free memory is in pieces"),
    "full memory": (Cluster(), {"retries": 3, "free_bytes": 1 << 28}, "idle.allocator", "its memory is full"),
    "garbage collection": (Cluster(), {"gc_ns": {0: 18e6}}, "idle.gc", "garbage collector"),
}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("cause", CASES)
def test_the_first_finding_is_the_planted_cause_and_its_gain_is_real(tmp_path: Path, cause: str, seed: int) -> None:
    good, planted, bucket, words = CASES[cause]
    good = replace(good, noise=0.02, seed=seed)
    bad = simulate(replace(good, **planted))
    gained = bad.step_ns - simulate(good).step_ns
    assert gained > 0.05 * bad.step_ns, "the planted cause must matter"
    first = explain(write(bad, tmp_path)).findings[0]
    assert (first.bucket, words in first.what) == (bucket, True), first
    assert first.recoverable_ns == pytest.approx(gained, rel=0.15)


def test_nothing_planted_nothing_large_is_found(tmp_path: Path) -> None:
    result = explain(write(simulate(Cluster(input_ns=0.0, noise=0.02)), tmp_path))
    step = result.summary["step_ns"]["median"]
    causes = [f for f in result.findings if not f.bucket.startswith("compute.")]
    assert all(f.recoverable_ns < 0.05 * step for f in causes)


def test_input_of_a_loader_without_workers_is_named_first(shared: Path) -> None:
    folder = shared / "traces/pytorch_kineto/tb_plugin/samples/resnet50_num_workers_0"
    result = explain([folder / "worker0.1623143566756.pt.trace.json.gz"])
    assert result.findings[0].bucket == "idle.input"
    assert sum(f.recoverable_ns for f in result.findings) < result.summary["profiled_step_ns"]["max"]


def test_ranks_that_never_meet_are_not_slower_than_each_other(tmp_path: Path) -> None:
    alone = Cluster(mesh={"dp": 1})
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, cluster in zip(folders, (alone, replace(alone, slow_compute={0: 1.5})), strict=True):
        folder.mkdir()
        write(simulate(cluster), folder)
    assert not [f.what for f in explain(folders).findings if "computes slower" in f.what]


@pytest.mark.parametrize("seed", range(4))
def test_a_rank_that_is_slower_by_chance_is_no_finding(tmp_path: Path, seed: int) -> None:
    result = explain(write(simulate(Cluster(kernels=2, layers=2, noise=0.5, seed=seed)), tmp_path))
    assert not result.stragglers
    assert not [f.what for f in result.findings if "computes slower" in f.what]


def test_a_gain_beyond_the_bucket_and_all_waits_is_said_to_be(tmp_path: Path) -> None:
    good, planted, *_ = CASES["launch"]
    result = explain(write(simulate(replace(good, **planted)), tmp_path))
    steps = [s for r in result.ranks for s in r.steps]
    waits = sum(ns for s in steps for n, ns in s.buckets.items() if n.endswith(".wait")) / len(steps)
    for f in result.findings:
        assert f.bucket_ns is not None
        rest = f.recoverable_ns - f.bucket_ns - (0 if f.bucket == "comm.wait" else waits)
        assert any("outside of its bucket" in e for e in f.evidence) == (rest > 0.02 * f.recoverable_ns), f
