"""Simulated pairs with one planted cause: the right bucket first, the right amount, and nothing where nothing was planted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.spec.diff import Diff
from headway.spec.errors import TraceError
from headway.trace.diff.diff import diff
from tests.trace.simulate import Cluster, simulate, write

BASE = Cluster(mesh={"dp": 2}, steps=6, noise=0.002, seed=1)
PLANTED: dict[str, tuple[dict[str, Any], str]] = {  # what is changed -> the bucket that must come first
    "a slower kernel": ({"kernel_ns": 260_000}, "compute.gemm"),
    "a slower optimizer": ({"optimizer_ns": 900_000}, "compute.optimizer"),
    "an input stall": ({"input_ns": 3_000_000}, "idle.input"),
    "more kernels": ({"kernels": 6}, "compute.gemm"),
    "a slower link": ({"bandwidth": 20e9}, "comm.all_reduce.dp.transfer"),
    "more time to launch": ({"launch_ns": 300_000}, "idle.launch"),
}


def compared(a: Cluster, b: Cluster, folder: Path) -> tuple[Diff, float]:
    """The difference, and the true one a step."""
    runs = simulate(a), simulate(b)
    for run, name in zip(runs, "ab", strict=True):
        write(run, folder / name)
    return diff(folder / "a", folder / "b"), runs[1].step_ns - runs[0].step_ns


@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_cause_comes_first_with_its_amount(cause: str, tmp_path: Path) -> None:
    fields, bucket = PLANTED[cause]
    found, truth = compared(BASE, replace(BASE, seed=2, **fields), tmp_path)
    assert found.buckets[0].name == bucket, found.buckets[:3]
    assert found.buckets[0].verdict == "real" and found.step.verdict == "real"
    assert found.step.delta == pytest.approx(truth, rel=0.05)
    assert sum(c.delta for c in found.buckets) == sum(c.delta for c in found.phases) == found.step.delta


def test_more_syncs_are_idle_time(tmp_path: Path) -> None:
    found, truth = compared(replace(BASE, launch_ns=60_000), replace(BASE, launch_ns=60_000, syncs=4, seed=2), tmp_path)
    assert found.buckets[0].name in ("idle.launch", "idle.sync")
    assert found.step.delta == pytest.approx(truth, rel=0.05)


def test_more_launches_are_an_effect_of_count_and_longer_ones_of_length(tmp_path: Path) -> None:
    more, _ = compared(BASE, replace(BASE, kernels=6, seed=2), tmp_path / "more")
    first = more.kernels[0]
    assert first.what == "more calls" and first.count_b == pytest.approx(first.count_a * 1.5)
    assert first.count_ns == pytest.approx(first.delta_ns, rel=0.01)
    longer, _ = compared(BASE, replace(BASE, kernel_ns=260_000, seed=2), tmp_path / "longer")
    assert longer.kernels[0].what == "slower" and longer.kernels[0].duration_ns == longer.kernels[0].delta_ns
    for d in (more, longer):
        assert d.kernel_time is not None and d.overlap is not None and d.busy is not None
        assert sum(k.delta_ns for k in d.kernels) == d.kernel_time.delta
        assert d.kernel_time.delta - d.overlap.delta == d.busy.delta


def test_a_run_against_its_copy_is_no_difference(tmp_path: Path) -> None:
    found, _ = compared(BASE, BASE, tmp_path)
    assert found.text == "No difference." and found.step.verdict == "same"
    assert all(c.delta == 0 for c in (*found.buckets, *found.phases)) and all(k.delta_ns == 0 and k.what == "same" for k in found.kernels)


def test_two_runs_with_other_noise_are_noise(tmp_path: Path) -> None:
    """Ten pairs here; 200 of step times alone are in test_steps."""
    noisy = replace(BASE, noise=0.05, mesh={"dp": 1}, layers=2, kernels=2)
    found = [compared(replace(noisy, seed=i), replace(noisy, seed=i + 100), tmp_path / str(i))[0].step.verdict for i in range(10)]
    assert found.count("noise") >= 9


def test_devices_and_ranks_that_differ_are_said(tmp_path: Path) -> None:
    found, _ = compared(BASE, replace(BASE, mesh={"dp": 4}), tmp_path)
    assert any("different world sizes: 2 and 4" in w for w in found.warnings)
    assert any("different ranks in the input: 0, 1 and 0, 1, 2 and 1 more" in w or "ranks in the input" in w for w in found.warnings)


def test_the_same_path_twice_is_refused(tmp_path: Path) -> None:
    path = write(simulate(replace(BASE, steps=2)), tmp_path)[0]
    with pytest.raises(TraceError, match="A and B are the same"):
        diff(path, tmp_path / "." / path.name)
