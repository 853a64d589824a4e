"""On random event sets: every partition sums to the wall time, and busy time equals a count that shares no code with the sweep."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headway.spec.breakdown import group
from headway.trace.explain import explain
from tests.trace.drawing import span, write

KERNELS = (
    "volta_sgemm_128x64_nn", "void at::native::elementwise_kernel<1>", "ncclDevKernel_AllReduce_Sum_f32", "flash_fwd_kernel",
    "ncclDevKernel_SendRecv", "odd",
)  # fmt: skip
HOST = (
    "headway::phase::input", "headway::phase::forward", "headway::phase::backward", "headway::phase::checkpoint", "headway::module::a",
    "headway::module::a.b", "headway::comm::tp", "Optimizer.step#SGD.step", "gc", "cudaDeviceSynchronize",
)  # fmt: skip
OPERATORS = ("aten::mm", "aten::add", "aten::view", "aten::copy_", "c10d::allreduce_", "autograd::engine::evaluate_function: MulBackward0")
times = st.integers(0, 400).map(lambda t: t / 8)
lengths = st.integers(0, 200).map(lambda t: t / 8)


@st.composite
def traces(draw: st.DrawFn, *, gpu: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    edges = draw(st.lists(st.integers(0, 60), min_size=0, max_size=4, unique=True).map(sorted))
    for k, (a, b) in enumerate(pairwise(edges)):
        rows.append(span("user_annotation", f"ProfilerStep#{k + 3}", a, max(0, b - a - draw(st.integers(0, 3)))))
    for i in range(draw(st.integers(0, 10))):
        rows.append(span("user_annotation", draw(st.sampled_from(HOST)), draw(times), draw(lengths), tid=draw(st.integers(1, 2)), x=i))
    for _ in range(draw(st.integers(0 if gpu else 1, 10))):
        extra = {"Sequence number": draw(st.integers(0, 3)), "Fwd thread id": draw(st.integers(0, 1))} if draw(st.booleans()) else {}
        rows.append(span("cpu_op", draw(st.sampled_from(OPERATORS)), draw(times), draw(lengths), tid=draw(st.integers(1, 2)), **extra))
    if not gpu:
        for _ in range(draw(st.integers(0, 3))):
            rows.append(span("user_annotation", "gloo:all_reduce", draw(times), draw(lengths), tid=9))
        return rows
    for i in range(draw(st.integers(1, 14))):
        device, stream = draw(st.integers(0, 1)), draw(st.integers(7, 9))
        cat = draw(st.sampled_from(("kernel", "kernel", "kernel", "gpu_memcpy", "gpu_memset")))
        name = draw(st.sampled_from(KERNELS if cat == "kernel" else ("Memcpy HtoD", "Memcpy DtoH", "Memcpy DtoD", "Memcpy PtoP")))
        rows.append(span(cat, name, draw(times), draw(lengths), pid=device, tid=stream, device=device, stream=stream, correlation=i))
        if draw(st.booleans()):
            rows.append(span("cuda_runtime", "cudaLaunchKernel", draw(times), 1, tid=draw(st.integers(1, 2)), correlation=i))
    return rows


def busy_ns(rows: list[dict[str, Any]], device: int, begin: int, end: int) -> int:
    """Nanoseconds of [begin, end) in which the device runs anything: count starts and ends in order of time (a plain sweep)."""
    moments: list[tuple[int, int]] = []
    for row in rows:
        if row["cat"] in ("kernel", "gpu_memcpy", "gpu_memset") and row["args"]["device"] == device:
            a, b = max(begin, round(row["ts"] * 1000)), min(end, round((row["ts"] + row["dur"]) * 1000))
            if a < b:
                moments += [(a, 1), (b, -1)]
    total, running, last = 0, 0, begin
    for time, change in sorted(moments):
        total += (time - last) * (running > 0)
        running, last = running + change, time
    return total


@given(traces(gpu=True))
def test_devices(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        result = explain([write(Path(folder) / "t.json", rows, distributedInfo={"rank": 0, "world_size": 2})])
    refused = any(h.what == "impossible_duration" for h in result.health)
    for rank in result.ranks:
        clock = rank.steps[0].start_ns
        for step in rank.steps:
            step.check()
            assert sum(step.buckets.values()) == sum(step.phases.values()) == step.wall_ns
            assert step.start_ns == clock  # windows leave no gap
            clock += step.wall_ns
            if not refused:
                begin, end = step.start_ns, step.start_ns + step.wall_ns
                assert step.wall_ns - group(step.buckets).get("idle", 0) == busy_ns(rows, int(rank.device.rpartition(":")[2]), begin, end)


@given(traces(gpu=False))
def test_cpus(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        result = explain([write(Path(folder) / "t.json", rows)])
    for rank in result.ranks:
        assert rank.device == "cpu"
        for step in rank.steps:
            step.check()
            assert sum(step.buckets.values()) == sum(step.phases.values()) == step.wall_ns
