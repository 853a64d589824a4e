"""Findings: their patches act on fields that exist, their words, their confidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.spec.codec import encode, flag_names
from headway.spec.run import RunSpec
from headway.trace import patches
from headway.trace.explain import explain
from headway.trace.findings import CAUSES
from tests.trace.drawing import draw
from tests.trace.simulate import Cluster, simulate, write

SPEC: dict[str, Any] = encode(RunSpec())


def spec(**fields: Any) -> dict[str, Any]:
    out = encode(RunSpec())
    for name, value in fields.items():
        head, _, leaf = name.rpartition("__")
        (out[head] if head else out)[leaf] = value
    return dict(out)


@pytest.mark.parametrize(
    ("patch", "settings", "share", "expected"),
    [
        (patches.workers, spec(), 0.3, {"data.workers": 2}),
        (patches.workers, spec(data__workers=3), 0.3, {"data.workers": 6}),
        (patches.workers, spec(), 0.8, {"data.workers": 4}),
        (patches.workers, spec(), 0.999, {"data.workers": 8}),
        (patches.workers, spec(data__workers=8), 0.5, None),
        (patches.checkpoint, spec(checkpoint__blocking=True), 0.1, {"checkpoint.blocking": False}),
        (patches.checkpoint, spec(checkpoint__every=256), 0.1, {"checkpoint.every": 512}),
        (patches.checkpoint, spec(), 0.1, None),
        (patches.log_less, spec(observe__log_every=1), 0.1, {"observe.log_every": 10}),
        (patches.log_less, spec(), 0.1, None),
        (patches.larger, spec(accumulate=4), 0.1, {"accumulate": 2}),
        (patches.larger, spec(accumulate=3, guard__trail=True), 0.1, {"guard.trail": False}),
        (patches.larger, spec(), 0.1, None),
        (patches.keep_gathered, spec(mesh__dp_shard=2), 0.1, {"mesh.reshard": False}),
        (patches.keep_gathered, spec(mesh__dp_shard=2, mesh__reshard=False), 0.1, None),
        (patches.keep_gathered, spec(), 0.1, None),
        (patches.less_memory, spec(), 0.1, {"accumulate": 2}),
        (patches.less_memory, spec(accumulate=128), 0.1, {"remat.mode": "full"}),
        (patches.less_memory, spec(accumulate=128, remat__mode="full"), 0.1, None),
    ],
)
def test_patches(patch: patches.Patch, settings: dict[str, Any], share: float, expected: dict[str, Any] | None) -> None:
    found = patch(settings, share)
    assert found == expected
    assert set(found or ()) <= set(flag_names(RunSpec()))


def test_settings_of_another_shape_have_no_patch() -> None:
    assert all(cause.patch({}, 0.5) is None and cause.patch({"data": 3, "mesh": None}, 0.5) is None for cause in CAUSES.values())


def test_what_takes_less_than_a_hundredth_is_no_finding(tmp_path: Path) -> None:
    drawing = "main [S0" + " " * 1000 + "]\nmain [L1] [gc]\n0.7    [g1" + " " * 1000 + "]"
    assert explain([draw(tmp_path / "t.json", drawing)]).findings == ()


def test_the_late_rank_is_named_even_when_its_cause_is_counted_elsewhere(tmp_path: Path) -> None:
    result = explain(write(simulate(Cluster(input_ns=0.0, late_input_ns={1: 4e6}, noise=0.02)), tmp_path))
    first = result.findings[0]
    assert first.bucket == "idle.input" and any(line.startswith("rank 1 ") for line in first.evidence)
    late = next(f for f in result.findings if f.bucket == "comm.wait")
    assert "rank 1" in late.action and late.recoverable_ns < 0.1 * first.recoverable_ns


def test_confidence_grows_with_steps(tmp_path: Path) -> None:
    def first(steps: int) -> float:
        run = simulate(Cluster(input_ns=0.0, late_input_ns={0: 4e6, 1: 4e6}, steps=steps))
        return explain(write(run, tmp_path / str(steps))).findings[0].confidence

    assert first(2) < first(8) <= 0.9


def test_slow_links_are_named(tmp_path: Path) -> None:
    result = explain(write(simulate(Cluster(mesh={"dp": 2, "tp": 2}, slow_link={3: 8.0}, noise=0.02)), tmp_path))
    assert "among ranks 1, 3" in result.findings[0].evidence[0] and "times as long" in result.findings[0].evidence[0]
