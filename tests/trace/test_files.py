"""Real traces of every make: read, sums exact, the same busy time as a plain count; the known answers of the small wrong-case files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headway.spec.breakdown import Breakdown, group
from headway.spec.errors import TraceError
from headway.trace.explain import explain
from headway.trace.read.kineto import read
from headway.trace.table import DEVICE_WORK

BIG = 1_500_000  # bytes; what is larger is left to the slow run
NOT_TRACES = ("cpu_op_map", "dlrm_eg_")


def files(shared: Path) -> Iterator[Path]:
    for path in sorted((shared / "traces").rglob("*.json*")):
        if "peer_outputs" not in path.parts:
            yield path


def busy_ns(path: Path) -> dict[int, int]:
    """Device -> nanoseconds in which it runs anything, by a plain walk over its work in order of start."""
    table = read(path)
    out: dict[int, int] = {}
    for device in np.unique(table.device[table.rows(*DEVICE_WORK)]).tolist():
        reach = total = 0
        for row in table.rows(*DEVICE_WORK).tolist():
            if table.device[row] == device:
                start, end = int(table.start[row]), int(table.end[row])
                total += max(0, end - max(start, reach))
                reach = max(reach, end)
        out[device] = total
    return out


def verify(path: Path) -> None:
    if path.name.startswith(NOT_TRACES):
        with pytest.raises(TraceError, match="not a trace"):
            explain([path])
        return
    result = explain([path])
    refused = any(h.what in ("impossible_duration", "truncated") for h in result.health)
    whole = any(h.what == "no_step_marks" for h in result.health)
    count = busy_ns(path)
    for rank in result.ranks:
        for step in rank.steps:
            step.check()
            assert step.buckets
            assert sum(step.buckets.values()) == sum(step.phases.values()) == step.wall_ns
        if rank.device != "cpu" and not refused:
            busy = sum(s.wall_ns - group(s.buckets).get("idle", 0) for s in rank.steps)
            limit = count[int(rank.device.rpartition(":")[2])]
            assert busy == limit if whole else busy <= limit


def test_every_file(shared: Path) -> None:
    seen = [path for path in files(shared) if path.stat().st_size < BIG]
    for path in seen:
        verify(path)
    assert len(seen) > 50


@pytest.mark.slow
def test_every_large_file(shared: Path) -> None:
    seen = [path for path in files(shared) if path.stat().st_size >= BIG]
    for path in seen:
        verify(path)
    assert len(seen) > 5


# ---- the small files with known answers ----


def edge(shared: Path, name: str) -> Breakdown:
    return explain([shared / "traces" / "edge" / f"{name}.json"])


def heads(result: Breakdown, device: int = 0, step: int = 0) -> dict[str, int]:
    return group(result.ranks[device].steps[step].buckets)


def warned(result: Breakdown) -> dict[str, int]:
    return {h.what: h.count for h in result.health}


def test_uncorrelated(shared: Path) -> None:
    result = edge(shared, "A_uncorrelated")
    assert warned(result)["unlinked"] == 100
    assert [s.wall_ns for s in result.ranks[0].steps] == [1_000_000, 1_000_000]
    assert result.ranks[0].steps[0].unlinked == 100


def test_two_devices(shared: Path) -> None:
    result = edge(shared, "B_two_devices")
    assert heads(result, 0) == {"compute": 500_000, "idle": 500_000}
    assert heads(result, 1) == {"compute": 500_000, "idle": 502_000}


def test_symmetric_memory(shared: Path) -> None:
    step = edge(shared, "C_symm_mem_comm").ranks[0].steps[0]
    assert group(step.buckets) == {"compute": 600_000, "comm": 90_000, "idle": 310_000}
    assert step.hidden_comm_ns == 410_000
    assert step.hidden_comm_by_axis_ns == {"world": 410_000}


def test_hip(shared: Path) -> None:
    assert heads(edge(shared, "D_hip_compute"))["compute"] == 500_000


def test_sync_rows(shared: Path) -> None:
    result = edge(shared, "E_sync_masks_idle")
    assert heads(result) == {"compute": 100_000, "idle": 900_000}
    assert result.ranks[0].steps[0].buckets["idle.sync"] == 840_000


def test_head_stall(shared: Path) -> None:
    buckets = edge(shared, "F_head_stall").ranks[0].steps[0].buckets
    assert buckets == {"compute.gemm": 200_000, "idle.input": 600_000, "idle.launch": 200_000}


@pytest.mark.parametrize("name", ["G_infinity", "G2_inf_bare", "K_ctrl"])
def test_mended(shared: Path, name: str) -> None:
    assert warned(edge(shared, name))["mended"] == 1


def test_infinity_keeps_its_event(shared: Path) -> None:
    assert edge(shared, "G2_inf_bare").ranks[0].steps[0].unlinked == 2


def test_truncated(shared: Path) -> None:
    result = edge(shared, "H_truncated")
    assert "truncated" in warned(result)
    assert heads(result, 0)["compute"] == 500_000


def test_below_a_microsecond(shared: Path) -> None:
    assert heads(edge(shared, "J_sub_us"))["compute"] == 70_000


def test_overflow(shared: Path) -> None:
    result = edge(shared, "L_overflow")
    assert warned(result)["impossible_duration"] == 1
    assert result.ranks[0].steps[0].wall_ns == 1_000_000
    assert heads(result)["compute"] == 50_000


# ---- ranks of one run ----


def test_eight_ranks(shared: Path) -> None:
    """Every collective of the eight ranks is matched; the rank with the least waiting is the one that others wait for."""
    folder = shared / "traces" / "facebookresearch_param" / "et_replay" / "tests" / "inputs" / "dlrm_kineto"
    result = explain([folder])
    names = {n for r in result.ranks for n in r.steps[0].buckets if n.startswith("comm.")}
    assert not any(n.endswith(".unsplit") for n in names)
    assert {n.split(".")[1] for n in names} == {"all_to_all", "all_reduce"}
    wait = {r.rank: sum(v for n, v in r.steps[0].buckets.items() if n.endswith(".wait")) for r in result.ranks}
    assert min(wait, key=lambda r: wait[r]) == 7
    finding = next(f for f in result.findings if f.bucket == "comm.wait")
    assert finding.evidence[0].startswith("rank 7 ")


def test_two_ranks_one_late(shared: Path) -> None:
    """Collectives take 0.27 ms on rank 0 and 48.4 ms on rank 1: the difference is waiting."""
    folder = shared / "traces" / "NVIDIA_Megatron-LM" / "tp2" / "result"
    result = explain(sorted(folder.rglob("*.json")))
    wait = {r.rank: sum(v for n, v in r.steps[0].buckets.items() if n.endswith(".wait")) for r in result.ranks}
    assert wait[0] < 100_000
    assert 47_900_000 < wait[1] < 48_400_000
