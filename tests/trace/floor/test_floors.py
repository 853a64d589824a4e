"""Floors of worked cases: which operator a kernel belongs to, which ceiling binds, where ceilings come from, what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.spec.breakdown import Breakdown
from headway.spec.errors import TraceError
from headway.spec.hardware import Ceilings
from headway.trace.explain import explain
from headway.trace.floor.ceiling import ceilings_file
from tests.trace.drawing import span, write

GEMM, POINT = "volta_sgemm_128x64_nn", "void at::native::vectorized_elementwise_kernel<4>"
CEILINGS = Ceilings(flops={"fp32": 1e12}, memory_bytes_s=1e11, source="a test")


def op(name: str, ts: float, dur: float, dims: list[Any], types: list[str], **more: Any) -> dict[str, Any]:
    return span("cpu_op", name, ts, dur, **{"Input Dims": dims, "Input type": types, **more})


def launched(kernel: str, call: float, ts: float, dur: float, number: int) -> list[dict[str, Any]]:
    return [
        span("cuda_runtime", "cudaLaunchKernel", call, 2, correlation=number),
        span("kernel", kernel, ts, dur, pid=0, tid=7, device=0, stream=7, correlation=number),
    ]


def trace(tmp_path: Path, rows: list[dict[str, Any]], name: str = "NVIDIA Some GPU") -> Path:
    mark = span("user_annotation", "ProfilerStep#3", 0, 1000)
    return write(tmp_path / "t.json", [mark, *rows], deviceProperties=[{"id": 0, "name": name}])


def explained(tmp_path: Path, rows: list[dict[str, Any]], ceilings: Ceilings | None = CEILINGS, **more: Any) -> Breakdown:
    return explain([trace(tmp_path, rows, **more)], ceilings=ceilings)


MM = op("aten::mm", 10, 20, [[100, 1000], [1000, 500]], ["float", "float"])  # 1e8 FLOPs: 100 us at 1 TFLOP/s; 2.6 MB: 26 us


def test_the_ceiling_that_binds(tmp_path: Path) -> None:
    add = op("aten::add", 40, 20, [[1000, 1000], [1000, 1000], []], ["float", "float", "Scalar"])  # 12 MB: 120 us at 100 GB/s
    result = explained(tmp_path, [MM, *launched(GEMM, 15, 50, 250, 1), add, *launched(POINT, 45, 300, 200, 2)])
    (step,) = result.ranks[0].steps
    assert step.floors == {"gemm": 100_000, "elementwise": 120_000}
    assert step.recoverable == {"gemm": 150_000, "elementwise": 80_000}
    assert step.floor_coverage == 1.0
    assert result.summary["recoverable_ns"] == step.recoverable and result.summary["ceilings"]["NVIDIA Some GPU"]["source"] == "a test"
    assert not [h for h in result.health if h.what == "floor_above_measured"]


def test_kernels_of_one_operator_share_its_cost(tmp_path: Path) -> None:
    rows = [MM, *launched(GEMM, 12, 50, 150, 1), *launched("splitKreduce_kernel", 16, 200, 50, 2)]
    (step,) = explained(tmp_path, rows).ranks[0].steps
    assert step.floors == {"gemm": 100_000} and step.recoverable == {"gemm": 100_000}


def test_the_innermost_operator_with_a_cost_counts_and_the_rest_is_unknown(tmp_path: Path) -> None:
    outer = op("aten::linear", 5, 40, [[100, 1000], [500, 1000]], ["float", "float"])
    own = op("mylib::thing", 60, 20, [[4, 4]], ["float"])
    (step,) = explained(tmp_path, [outer, MM, *launched(GEMM, 15, 50, 250, 1), own, *launched(GEMM, 65, 300, 250, 2)]).ranks[0].steps
    assert step.floors == {"gemm": 100_000}
    assert step.recoverable == {"gemm": 150_000}, "a kernel of unknown cost wins nothing"
    assert step.floor_coverage == 0.5


def test_a_floor_above_the_measured_time_is_said_and_wins_nothing(tmp_path: Path) -> None:
    result = explained(tmp_path, [MM, *launched(GEMM, 15, 50, 60, 1)])
    (step,) = result.ranks[0].steps
    assert step.floors == {"gemm": 60_000} and step.recoverable == {"gemm": 0}
    (note,) = [h for h in result.health if h.what == "floor_above_measured"]
    assert "0.04 ms" in note.text


def test_a_convolution_takes_its_result_from_its_backward(tmp_path: Path) -> None:
    x, w, y = [1, 10, 100, 100], [20, 10, 1, 1], [1, 20, 50, 50]
    types = ["float", "float"]
    rows = [
        op("aten::cudnn_convolution", 10, 20, [x, w], types, **{"Sequence number": 5, "Fwd thread id": 0}),
        *launched("implicit_convolve_sgemm", 15, 50, 40, 1),
        op("ConvolutionBackward0", 100, 20, [y], ["float"], **{"Sequence number": 5, "Fwd thread id": 1}),
    ]
    (step,) = explained(tmp_path, rows).ranks[0].steps
    moved = 4 * (100_000 + 200 + 50_000)
    assert step.floors == {"conv": pytest.approx(moved / 1e11 * 1e9, abs=1)}


def test_only_time_of_its_own_counts(tmp_path: Path) -> None:
    rows = [MM, *launched(GEMM, 15, 50, 200, 1)]
    mul = op("aten::mul", 40, 20, [[1000, 1000], []], ["float", "Scalar"])  # 8 MB: 80 us, but half of its time a product runs as well
    late = span("kernel", POINT, 150, 200, pid=0, tid=9, device=0, stream=9, correlation=2)
    (step,) = explained(tmp_path, [*rows, mul, span("cuda_runtime", "cudaLaunchKernel", 45, 2, correlation=2), late]).ranks[0].steps
    assert step.buckets["compute.elementwise"] == 100_000
    assert step.floors["elementwise"] == 40_000 and step.recoverable["elementwise"] == 60_000


def test_without_ceilings_the_best_of_the_trace_counts(tmp_path: Path) -> None:
    rows = [MM, *launched(GEMM, 15, 50, 125, 1), {**MM, "ts": 40}, *launched(GEMM, 45, 200, 250, 2)]
    result = explained(tmp_path, rows, None)
    said = result.summary["ceilings"]["NVIDIA Some GPU"]
    assert said["flops"] == {"fp32": pytest.approx(8e11)} and "at least" in said["source"]
    assert result.ranks[0].steps[0].recoverable == {"gemm": 125_000}


def test_a_trace_far_below_the_data_sheet_is_held_against_it(tmp_path: Path) -> None:
    result = explained(tmp_path, [MM, *launched(GEMM, 15, 50, 125, 1)], None, name="NVIDIA A100-SXM4-80GB")
    said = result.summary["ceilings"]["NVIDIA A100-SXM4-80GB"]
    assert said["flops"]["fp32"] == 19.5e12 and said["source"].startswith("data sheet: NVIDIA A100")


def test_no_shapes_no_floors(tmp_path: Path) -> None:
    result = explained(tmp_path, launched(GEMM, 15, 50, 125, 1))
    (step,) = result.ranks[0].steps
    assert step.floors == {} and step.floor_coverage is None and result.summary["floor_coverage"] is None


def test_ceilings_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"flops": {"bf16": 8e14, "fp8": None}, "memory_bytes_s": 3e12, "source": "a bench"}))
    assert ceilings_file(path) == Ceilings(flops={"bf16": 8e14}, memory_bytes_s=3e12, source="a bench")


@pytest.mark.parametrize(
    "text", ["", "[1]", "{}", '{"flops": {"bf16": -1}}', '{"flops": 3}', '{"schema": "other/1", "flops": {"bf16": 1e12}}']
)
def test_a_file_that_holds_no_ceilings_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=r"ceilings.*memory_bytes_s"):
        ceilings_file(path)


def test_real_traces_have_floors(shared: Path) -> None:
    result = explain([shared / "traces/pytorch_kineto/tb_plugin/samples/resnet50_num_workers_0/worker0.1623143566756.pt.trace.json.gz"])
    assert result.summary["floor_coverage"] > 0.99
    for step in result.ranks[0].steps:
        assert all(ns >= 0 for ns in step.recoverable.values())
        assert all(step.floors[c] + step.recoverable[c] <= step.buckets[f"compute.{c}"] for c in step.floors)
    assert 0.2 < result.summary["floors"]["conv"] / (result.summary["floors"]["conv"] + result.summary["recoverable_ns"]["conv"]) < 0.9
