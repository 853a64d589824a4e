"""Who was late, what it was doing meanwhile, and how fast data moved when all were there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.spec.breakdown import Breakdown, to_json
from headway.trace.explain import explain
from headway.trace.ranks.late import told
from tests.trace.drawing import draw
from tests.trace.simulate import Cluster, simulate, write


def _rows(result: Breakdown, key: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = list(result.summary[key])
    return rows


def test_a_drawn_wait(tmp_path: Path) -> None:
    """Rank 0 waits 9 us for rank 1: of those 5 in its loader, 4 before its window ends the launch."""
    early = """
main [S0                      ]
main [L1]
0.7      [n1                ]
"""
    late = """
main [S0                      ]
main  [load ][ax  ]
main          [L1]
0.7               [n1       ]
"""
    result = explain([draw(tmp_path / "r0.json", early, world=2), draw(tmp_path / "r1.json", late, rank=1, world=2)])
    axis_of_rank_1 = {n for n in result.ranks[1].steps[0].buckets if n.startswith("comm.")}
    assert axis_of_rank_1 == {"comm.all_reduce.dp_shard.unsplit"}  # only one of them says the axis: they are not the same collective
    both = [draw(tmp_path / f"s{r}.json", d.replace("[ax  ]", "      "), rank=r, world=2) for r, d in enumerate((early, late))]
    (row,) = _rows(explain(both), "lateness")
    assert row == {
        "rank": 1,
        "wait_ns": 9_000,
        "exposed_ns": 9_000,
        "excess_ns": 0,  # they had not met before
        "excess": {},
        "share": 1.0,
        "buckets": {"idle.launch": 5_000, "idle.input": 4_000},
        "phases": {"other": 5_000, "input": 4_000},
        "modules": {},
        "waiting": {"0": 9_000},
    }


@pytest.mark.parametrize(
    ("planted", "rank", "bucket"),
    (({"late_input_ns": {2: 2e6}}, 2, "idle.input"), ({"gc_ns": {1: 30e6}}, 1, "idle.gc"), ({"slow_compute": {3: 1.4}}, 3, "compute.gemm")),
    ids=str,
)
def test_a_planted_cause_is_what_makes_a_rank_late(tmp_path: Path, planted: dict[str, Any], rank: int, bucket: str) -> None:
    """Since two ranks last met, the late one took longer by just the wait: the difference is the cause."""
    result = explain(write(simulate(Cluster(mesh={"dp": 4}, overlap=False, steps=4, noise=0.001, **planted)), tmp_path))
    first = _rows(result, "lateness")[0]
    assert (first["rank"], next(iter(first["excess"]))) == (rank, bucket)
    assert first["excess"][bucket] > 0.9 * first["excess_ns"]
    assert first["excess_ns"] > 0.7 * first["wait_ns"]  # of all but the first wait
    assert any(f"since the ranks last met, {bucket} took it" in line for line in told(first))
    for row in _rows(result, "lateness"):
        assert sum(row["excess"].values()) == row["excess_ns"] <= row["wait_ns"]
    assert first["share"] > 0.8
    assert sum(first["buckets"].values()) == sum(first["phases"].values()) == first["wait_ns"] == sum(first["waiting"].values())
    exposed = sum(ns for r in result.ranks for s in r.steps for n, ns in s.buckets.items() if n.endswith(".wait"))
    assert sum(r["exposed_ns"] for r in _rows(result, "lateness")) == exposed


def test_bus_bandwidth_without_the_wait(tmp_path: Path) -> None:
    """A late rank makes collectives long; the bandwidth of the link is what was simulated all the same."""
    cluster = Cluster(mesh={"dp": 4}, overlap=False, steps=4, slow_compute={2: 1.5}, hop_ns=0.0, bandwidth=123e9)
    result = explain(write(simulate(cluster), tmp_path))
    rows = {r["size_bytes"][0]: r for r in _rows(result, "collectives")}
    large = rows[cluster.gradient_bytes]
    assert (large["collective"], large["axis"], large["num_ranks"], large["size_bytes"]) == ("all_reduce", "dp", 4, [64 << 20, 128 << 20])
    assert large["count"] == large["split"] == 4 * 4 * cluster.layers
    assert large["bus_bytes_s"]["median"] == pytest.approx(123e9, rel=1e-3)
    assert large["wait_ns"] > 0.3 * large["total_ns"]
    alone = explain([write(simulate(cluster), tmp_path)[0]])
    (row, *_) = [r for r in _rows(alone, "collectives") if r["size_bytes"][0] == cluster.gradient_bytes]
    assert row["split"] == 0 and row["wait_ns"] == 0
    assert row["bus_bytes_s"]["median"] < 110e9  # whole durations: all there is


def test_clocks_in_the_answer(tmp_path: Path) -> None:
    cluster = Cluster(mesh={"dp": 4}, ranks_per_host=2, steps=30, layers=2, kernels=2, offset_ns={2: 3e6, 3: 3e6}, end_jitter_ns=500.0)
    data = to_json(explain(write(simulate(cluster), tmp_path)))
    rows = data["ranks"]
    assert [r["clock_source"] for r in rows] == ["host", "host", "collectives", "collectives"]
    assert [r["clock_interval_ns"] for r in rows[:2]] == [0, 0]
    for row in rows[2:]:
        assert row["clock_offset_ns"] == pytest.approx(3e6, abs=row["clock_interval_ns"])
        assert 0 < row["clock_interval_ns"] < 20_000 and abs(row["clock_drift_ppm"]) < 20
    assert any(h["what"] == "clocks" and "+-" in h["text"] for h in data["health"])


# ---- real traces ----


def test_megatron_waits_for_rank_0(shared: Path) -> None:
    folder = shared / "traces/NVIDIA_Megatron-LM/tp2/result"
    result = explain(sorted(folder.glob("*/*.json")))
    (row,) = _rows(result, "lateness")
    assert row["rank"] == 0 and row["wait_ns"] >= 48_100_000
    assert list(row["waiting"]) == ["1"]
    assert list(row["buckets"])[:3] == ["idle.launch", "idle.sync", "idle.input"]  # issuing work, blocked on its device, loading
    assert row["buckets"]["idle.launch"] > 0.5 * row["wait_ns"]
    assert list(row["phases"])[:2] == ["forward", "backward"]
    communication = sum(ns for n, ns in result.ranks[1].steps[0].buckets.items() if n.startswith("comm."))
    assert row["exposed_ns"] > 0.99 * communication
    assert row["excess"]["idle.launch"] > 0.9 * row["excess_ns"]  # the host of rank 0 issues its work later


def test_dlrm_waits_for_rank_7(shared: Path) -> None:
    folder = shared / "traces/facebookresearch_param/et_replay/tests/inputs/dlrm_kineto"
    result = explain(sorted(folder.glob("*.json")))
    rows = _rows(result, "lateness")
    assert rows[0]["rank"] == 7 and rows[0]["share"] > 0.7
    assert next(iter(rows[0]["buckets"])) == "idle.launch"
    exchanges = [r for r in _rows(result, "collectives") if r["collective"] == "all_to_all"]
    assert sum(r["split"] for r in exchanges) == sum(r["count"] for r in exchanges) == 40
    reduces = [r for r in _rows(result, "collectives") if r["collective"] == "all_reduce" and r["size_bytes"][0] == 1 << 20]
    assert 20e9 < reduces[0]["bus_bytes_s"]["median"] < 130e9  # NVLink of a V100, for one MiB
    assert result.stragglers == ()  # one step proves nothing
