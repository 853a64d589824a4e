"""The simulator is a cluster: time obeys launches, streams and collectives, and taking a planted cause away makes steps shorter by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headway.trace.explain import explain
from tests.trace.simulate import COMPUTE, Cluster, simulate, write

MESHES = ({"dp": 2}, {"dp_shard": 4}, {"dp": 2, "tp": 2}, {"pp": 2, "dp": 2}, {"dp_replicate": 2, "dp_shard": 2})


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("overlap", (True, False))
def test_files_are_explained_and_steps_take_the_time_that_was_simulated(tmp_path: Path, mesh: dict[str, int], overlap: bool) -> None:
    run = simulate(Cluster(mesh=mesh, overlap=overlap, steps=3, layers=2, noise=0.02, offset_ns={1: 30_000.0}))
    result = explain(write(run, tmp_path))
    assert [r.rank for r in result.ranks] == list(range(run.cluster.world))
    for row in result.ranks:
        ends = np.array([s.start_ns + s.wall_ns for s in row.steps])
        assert np.diff(ends) == pytest.approx(np.diff(run.step_end[:, row.rank]), abs=2)
        heads = {name.rpartition(".")[0] for s in row.steps for name in s.buckets if name.startswith("comm.")}
        assert {h.split(".")[2] for h in heads} <= set(mesh)


def test_streams_are_serial_and_collectives_wait_for_the_last() -> None:
    run = simulate(Cluster(mesh={"dp": 2, "tp": 2}, noise=0.05, steps=2))
    for rank in range(4):
        for stream in (COMPUTE, 20, 21):
            mine = [s for s in run.spans if s.stream == stream and s.where[rank]]
            begin, end = (np.array([getattr(s, side)[rank] for s in mine]) for side in ("start", "end"))
            assert (begin[1:] >= end[:-1]).all() and (end > begin).all()
    for moved in run.moved:
        assert (moved.end >= moved.last)[moved.where].all() and (moved.last >= moved.begin)[moved.where].all()


@pytest.mark.parametrize(
    ("planted", "gain_ns"),
    (
        ({"late_input_ns": {1: 2e6}}, 2e6),
        ({"gc_ns": {0: 15e6}}, 12.4e6),  # partly under the forward that was issued before it
        ({"slow_compute": {1: 1.5}}, 0.5 * (48 * 200e3 + 4 * 100e3)),
        ({"overlap": False}, 3 * (64 * 2**20 / 200e9 * 1e9 + 8e3)),  # three of four gradients can be hidden
    ),
    ids=lambda p: str(p),
)  # fmt: skip
def test_what_removing_a_cause_gains(planted: dict[str, object], gain_ns: float) -> None:
    good = Cluster()
    slow = simulate(replace(good, **planted))  # type: ignore[arg-type]
    assert slow.step_ns - simulate(good).step_ns == pytest.approx(gain_ns, rel=0.05)
