"""Where other tools are wrong, each named after the cause: their formula in a few lines gives a wrong number, and ours is right.

The formulas are those of HolisticTraceAnalysis 0.5.0 (and its main branch, where said) and of TraceLens.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from headway.spec.breakdown import Breakdown, group
from headway.trace.explain import explain
from tests.trace.drawing import span, write

Row = dict[str, Any]


def launch(ts: float, number: int, pid: int = 1) -> Row:
    return span("cuda_runtime", "cudaLaunchKernel", ts, 2, pid=pid, correlation=number)


GEMM = "volta_sgemm_128x64_nn"


def kernel(ts: float, dur: float, number: int = 0, *, name: str = GEMM, stream: int = 7, device: int = 0, cat: str = "kernel") -> Row:
    return span(cat, name, ts, dur, pid=device, tid=stream, device=device, stream=stream, correlation=number)


def step(ts: float, dur: float, number: int = 1) -> Row:
    return span("user_annotation", f"ProfilerStep#{number}", ts, dur)


def ours(tmp_path: Path, rows: list[Row]) -> Breakdown:
    return explain([write(tmp_path / "t.json", rows)])


def heads(result: Breakdown, device: int = 0, at: int = 0) -> dict[str, int]:
    return group(result.ranks[device].steps[at].buckets)


def union(spans: list[tuple[float, float]]) -> float:
    """Microseconds that any of the spans covers."""
    total, reach = 0.0, -math.inf
    for a, b in sorted(spans):
        total += max(0.0, b - max(a, reach))
        reach = max(reach, b)
    return total


def times(rows: list[Row]) -> list[tuple[float, float]]:
    return [(r["ts"], r["ts"] + r["dur"]) for r in rows]


def with_stream(rows: list[Row]) -> list[Row]:
    """What one peer takes for work of a device: every row with a stream."""
    return [r for r in rows if r["args"].get("stream", -1) != -1]


def peer_idle(rows: list[Row]) -> float:
    """Idle time of the peer: from the first to the last of those rows, less what they cover."""
    spans = times(with_stream(rows))
    return max(b for _, b in spans) - min(a for a, _ in spans) - union(spans)


# ---- HolisticTraceAnalysis ----


def test_rounding_to_microseconds_loses_short_kernels(tmp_path: Path) -> None:
    """Starts are rounded up and ends down: a hundred kernels of 0.7 us vanish."""
    kernels = [kernel(10 * i + 0.2, 0.7, i + 1) for i in range(100)]
    rounded = [(math.ceil(a), math.floor(b)) for a, b in times(kernels)]
    assert union([s for s in rounded if s[1] > s[0]]) == 0
    rows = [step(0, 1000), *(launch(10 * i - 5 if i else 0, i + 1) for i in range(100)), *kernels]
    assert heads(ours(tmp_path, rows))["compute"] == 70_000


def test_rows_of_the_host_with_a_stream_count_as_work(tmp_path: Path) -> None:
    rows = [step(0, 100), launch(0, 1), kernel(10, 20, 1), kernel(90, 10, 1), span("cpu_op", "triton_poi_fused_add_0", 40, 50, stream=7)]
    assert peer_idle(rows) == 10
    assert heads(ours(tmp_path, rows)) == {"compute": 30_000, "idle": 70_000}


def test_waits_drawn_on_a_stream_count_as_work(tmp_path: Path) -> None:
    rows = [step(0, 1000), launch(0, 1), launch(950, 2), kernel(10, 50, 1), kernel(950, 50, 2)]
    rows.append(span("cuda_sync", "Stream Sync", 60, 890, pid=0, tid=7, stream=7, device=0))
    assert peer_idle(rows) == 0
    assert heads(ours(tmp_path, rows)) == {"compute": 100_000, "idle": 900_000}


def test_time_before_the_first_and_after_the_last_kernel_is_not_seen(tmp_path: Path) -> None:
    load = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    rows = [step(0, 1000), span("user_annotation", load, 0, 600), launch(610, 1), kernel(620, 200, 1)]
    assert peer_idle(rows) == 0
    buckets = ours(tmp_path, rows).ranks[0].steps[0].buckets
    assert buckets == {"compute.gemm": 200_000, "idle.input": 600_000, "idle.launch": 200_000}


def test_the_last_step_is_dropped_and_steps_are_pooled(tmp_path: Path) -> None:
    rows = [r for i in range(3) for r in (step(100 * i, 100, i), launch(100 * i, i + 1), kernel(100 * i + 10, 20 + 20 * i, i + 1))]
    last = max(r["ts"] for r in rows if r["name"].startswith("ProfilerStep"))
    starts = {r["args"]["correlation"]: r["ts"] for r in rows if r["cat"] == "cuda_runtime"}
    kept = [r for r in with_stream(rows) if starts[r["args"]["correlation"]] < last]
    assert union(times(kept)) == 20 + 40
    assert [s.buckets["compute.gemm"] for s in ours(tmp_path, rows).ranks[0].steps] == [20_000, 40_000, 60_000]


def test_two_devices_are_one_timeline(tmp_path: Path) -> None:
    rows = [step(0, 1000), launch(0, 1), launch(490, 2), kernel(0, 500, 1), kernel(500, 500, 2, device=1)]
    assert peer_idle(rows) == 0
    result = ours(tmp_path, rows)
    assert [heads(result, d) for d in (0, 1)] == [{"compute": 500_000, "idle": 500_000}] * 2


@pytest.mark.parametrize(
    "name", ["void multimem_all_reduce_kernel<float>(...)", "nvshmemi_transfer_rma_put", "void deep_ep::internode::dispatch<true>(...)"]
)
def test_collectives_of_other_libraries_count_as_compute(tmp_path: Path, name: str) -> None:
    communication = re.compile(r"(^nccl.*)|(^hip)|(^hccl)|(.*ncclKernel.*)")
    assert communication.match(name) is None
    rows = [step(0, 200), launch(0, 1), launch(2, 2), kernel(10, 100, 1), kernel(50, 100, 2, name=name, stream=9)]
    result = ours(tmp_path, rows)
    assert heads(result) == {"compute": 100_000, "comm": 40_000, "idle": 60_000}
    assert result.ranks[0].steps[0].hidden_comm_ns == 60_000


def test_kernels_whose_names_begin_with_hip_count_as_communication(tmp_path: Path) -> None:
    """On the main branch of the peer."""
    communication = re.compile(r"(^nccl.*)|(^hip)|(^hccl)|(.*ncclKernel.*)")
    name = "hipcub_block_reduce_kernel"
    assert communication.match(name)
    assert heads(ours(tmp_path, [step(0, 100), launch(0, 1), kernel(10, 50, 1, name=name)])) == {"compute": 50_000, "idle": 50_000}


def test_a_duration_that_overflowed_makes_a_device_busy(tmp_path: Path) -> None:
    rows = [step(0, 1000), *(launch(100 * i, i + 1) for i in range(10)), *(kernel(100 * i + 10, 10, i + 1) for i in range(10))]
    rows[11]["dur"] = 100_000
    assert peer_idle(rows) == 0
    result = ours(tmp_path, rows)
    assert heads(result)["compute"] == 190_000
    assert result.ranks[0].steps[0].wall_ns == 1_000_000
    assert any(h.what == "impossible_duration" for h in result.health)
    assert result.summary["busy_share"] is None


def test_columns_too_narrow_for_what_comes_later(tmp_path: Path) -> None:
    """Small integers seen first decide a column's width."""
    column = np.array([7, 9], np.int8)
    with pytest.raises(OverflowError):
        column[0] = 70_000
    rows = [step(0, 100), launch(0, 1), launch(5, 70_000), kernel(10, 10, 1, stream=7), kernel(30, 10, 70_000, stream=70_000)]
    assert heads(ours(tmp_path, rows)) == {"compute": 20_000, "idle": 80_000}


def test_gaps_of_streams_added_up_exceed_the_time_there_was(tmp_path: Path) -> None:
    kernels = [kernel(a, 10, i + 1, stream=s) for i, (a, s) in enumerate([(0, 7), (90, 7), (20, 8), (70, 8), (30, 9), (60, 9)])]
    gaps = 0.0
    for stream in (7, 8, 9):
        mine = sorted(times([k for k in kernels if k["args"]["stream"] == stream]))
        gaps += sum(b[0] - a[1] for a, b in pairwise(mine))
    assert gaps == 140
    rows = [step(0, 100), *(launch(0, i + 1) for i in range(6)), *kernels]
    assert heads(ours(tmp_path, rows)) == {"compute": 60_000, "idle": 40_000}


# ---- TraceLens ----


def test_kernels_without_a_launch_vanish(tmp_path: Path) -> None:
    rows = [step(0, 100), launch(0, 1), kernel(10, 20, 1), kernel(40, 20, 99)]
    linked = {r["args"]["correlation"] for r in rows if r["cat"] == "cuda_runtime"}
    assert union(times([r for r in with_stream(rows) if r["args"]["correlation"] in linked])) == 20
    result = ours(tmp_path, rows)
    assert heads(result)["compute"] == 40_000
    assert next(h for h in result.health if h.what == "unlinked").count == 1


def test_spellings_of_2021_are_no_gpu_events(tmp_path: Path) -> None:
    rows = [step(0, 100), {**launch(0, 1), "cat": "Runtime"}, kernel(10, 20, 1, cat="Kernel")]
    assert not [r for r in rows if r["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert heads(ours(tmp_path, rows)) == {"compute": 20_000, "idle": 80_000}


def test_steps_and_devices_are_one_window(tmp_path: Path) -> None:
    rows = [r for i in range(2) for r in (step(100 * i, 100, i), launch(100 * i, i + 1), kernel(100 * i + 10, 20, i + 1, device=i))]
    work = times(with_stream(rows))
    assert (max(b for _, b in work) - min(a for a, _ in work), union(work)) == (120, 40)
    result = ours(tmp_path, rows)
    assert [[group(s.buckets).get("compute", 0) for s in r.steps] for r in result.ranks] == [[20_000, 0], [0, 20_000]]


def test_infinity_makes_a_file_unreadable(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json", [step(0, 100), launch(0, 1), {**kernel(10, 20, 1), "args": {"bw": math.inf, "stream": 7, "device": 0}}]
    )
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(path.read_bytes())
    result = explain([path])
    assert heads(result)["compute"] == 20_000
    assert any(h.what == "mended" for h in result.health)


def test_durations_of_one_stream_that_overlap_are_added(tmp_path: Path) -> None:
    rows = [step(0, 100), launch(0, 1), launch(2, 2), kernel(10, 20, 1), kernel(25, 20, 2)]
    assert sum(r["dur"] for r in with_stream(rows)) == 40
    result = ours(tmp_path, rows)
    assert heads(result)["compute"] == 35_000
    assert next(h for h in result.health if h.what == "same_stream_overlap").count == 1


def test_ids_of_merged_ranks_collide(tmp_path: Path) -> None:
    """One table of launches for the whole file: the second rank's kernels hang on the launches of whichever rank was read last."""
    first = [step(0, 100), launch(0, 1), kernel(10, 20, 1)]
    second = [{**step(0, 300), "pid": 2}, launch(200, 1, pid=2), kernel(210, 20, 1, device=8)]
    launches = {r["args"]["correlation"]: r["pid"] for r in first + second if r["cat"] == "cuda_runtime"}
    assert launches[1] == 2
    result = ours(tmp_path, first + second)
    assert [r.steps[0].wall_ns for r in result.ranks] == [100_000, 300_000]
    assert [heads(result, i)["compute"] for i in (0, 1)] == [20_000, 20_000]


def test_clearing_memory_counts_as_computation(tmp_path: Path) -> None:
    rows = [step(0, 100), launch(0, 1), launch(3, 2), kernel(10, 20, 1), kernel(40, 30, 2, name="Memset (Device)", cat="gpu_memset")]
    assert union(times([r for r in rows if r["cat"] in ("kernel", "gpu_memset")])) == 50
    buckets = ours(tmp_path, rows).ranks[0].steps[0].buckets
    assert (buckets["compute.gemm"], buckets["compute.copy"]) == (20_000, 30_000)
