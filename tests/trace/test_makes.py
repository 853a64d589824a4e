"""Files of every make and every way they come broken: each kind by its cause, read to the same numbers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from headway.spec.breakdown import Breakdown, group
from headway.trace.explain import explain
from headway.trace.read.file import read
from tests.trace.drawing import span, write

BASE_US = 1_700_000_000_000_000  # of a writer without baseTimeNanoseconds


def program(maker: str = "cuda", *, old: bool = False, shift: float = 0, pid: int = 42, device_pid: int = 0) -> list[dict[str, Any]]:
    """A step of 100 us: two kernels of 20 and 30 us on one stream, a copy to the device of 10, launched by calls of one thread."""
    kernel, copy, runtime, operator = (
        ("Kernel", "Memcpy", "Runtime", "Operator") if old else ("kernel", "gpu_memcpy", f"{maker}_runtime", "cpu_op")
    )
    launch = {"cuda": "cudaLaunchKernel", "hip": "hipLaunchKernel", "xpu": "urEnqueueKernelLaunch"}.get(maker, "launchKernel")
    device: dict[str, Any] = {"pid": device_pid, "tid": 7, "device": 0, "stream": 7}
    rows = [
        span("user_annotation", "ProfilerStep#5", 0, 100, pid=pid),
        span(operator, "aten::mm", 0, 10, pid=pid),
        span(runtime, launch, 2, 4, pid=pid, correlation=1),
        span(runtime, launch, 8, 4, pid=pid, correlation=2),
        span(runtime, f"{maker}MemcpyAsync", 14, 4, pid=pid, correlation=3),
        span(kernel, "gemm_kernel", 10, 20, correlation=1, **device),
        span(kernel, "gemm_kernel", 35, 30, correlation=2, **device),
        span(copy, "Memcpy HtoD (Pinned -> Device)", 70, 10, correlation=3, **device),
    ]
    return [{**row, "ts": row["ts"] + shift} for row in rows]


def heads(result: Breakdown, rank: int = 0) -> dict[str, int]:
    return group(result.ranks[rank].steps[0].buckets)


RIGHT = {"compute": 50_000, "copy": 10_000, "idle": 40_000}


# ---- sound files ----


@pytest.mark.parametrize("maker", ["cuda", "hip", "xpu", "mtia", "privateuse1"])
def test_makers(tmp_path: Path, maker: str) -> None:
    result = explain([write(tmp_path / "t.json", program(maker))])
    assert heads(result) == RIGHT
    assert result.ranks[0].device == ("cuda:0" if maker in ("cuda", "hip") else f"{maker}:0")
    assert not result.health


def test_spellings_of_2021(tmp_path: Path) -> None:
    assert heads(explain([write(tmp_path / "t.json", program(old=True))])) == RIGHT


@pytest.mark.parametrize("unit", ["ms", "ns", "us"])
def test_the_unit_of_display_is_not_the_unit_of_stamps(tmp_path: Path, unit: str) -> None:
    """displayTimeUnit says how a viewer prints; stamps are microseconds always."""
    assert heads(explain([write(tmp_path / "t.json", program(), displayTimeUnit=unit)])) == RIGHT


@pytest.mark.parametrize("base", [None, 0, 1_719_853_884_000_000_000])
def test_bases_of_time(tmp_path: Path, base: int | None) -> None:
    fields = {} if base is None else {"baseTimeNanoseconds": base}
    result = explain([write(tmp_path / "t.json", program(), **fields)])
    assert heads(result) == RIGHT
    assert result.ranks[0].steps[0].start_ns == (base or 0)


def test_absolute_stamps_with_fractions(tmp_path: Path) -> None:
    """1.7e15 us with nanoseconds behind the point: no double holds them; the text does."""
    rows = program()
    text = json.dumps({"traceEvents": rows})
    for row in rows:
        text = text.replace(f'"ts": {row["ts"]},', f'"ts": {BASE_US + row["ts"]}.001,')
    (tmp_path / "t.json").write_text(text)
    result = explain([tmp_path / "t.json"])
    assert heads(result) == RIGHT
    assert result.ranks[0].steps[0].start_ns == BASE_US * 1000 + 1


def test_begin_and_end_events(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for row in program():
        length = row.pop("dur")
        rows += [{**row, "ph": "B"}, {"ph": "E", "pid": row["pid"], "tid": row["tid"], "ts": row["ts"] + length}]
    assert heads(explain([write(tmp_path / "t.json", rows)])) == RIGHT


def test_mtia_has_its_own_category_and_no_streams(tmp_path: Path) -> None:
    rows = [
        span("user_annotation", "ProfilerStep#1", 0, 100),
        span("mtia_ccp_events", "fc-dtype_Float", 10, 20, pid=9, tid=801),
        span("mtia_ccp_events", "add-dtype_Float", 35, 30, pid=9, tid=801),
        span("mtia_ccp_events", "dma_request", 70, 10, pid=9, tid=801, direction="HOST_TO_DEVICE"),
    ]
    step = explain([write(tmp_path / "t.json", rows)]).ranks[0].steps[0]
    assert step.buckets["compute.gemm"] == 20_000
    assert step.buckets["compute.elementwise"] == 30_000
    assert step.buckets["copy.h2d"] == 10_000


def test_triton_rows_of_the_host_with_a_stream_are_no_work_of_the_device(tmp_path: Path) -> None:
    rows = [*program(), span("cpu_op", "triton_poi_fused_add_0", 80, 15, pid=42, stream=7, device=0)]
    assert heads(explain([write(tmp_path / "t.json", rows)])) == RIGHT


def test_waits_drawn_on_a_device_are_no_work(tmp_path: Path) -> None:
    for cat, name in (("cuda_sync", "Stream Sync"), ("cuda_sync", "Event Sync"), ("xpu_sync", "Stream Wait Event")):
        rows = [*program(), span(cat, name, 80, 20, pid=0, tid=7, stream=7, device=0)]
        assert heads(explain([write(tmp_path / "t.json", rows)])) == RIGHT


def test_a_graph_launch_stands_for_all_its_kernels(tmp_path: Path) -> None:
    rows = [r for r in program() if not r["name"].startswith("cuda")] + [
        span("cuda_runtime", "cudaGraphLaunch", 2, 4, pid=42, correlation=1)
    ]
    for row in rows:
        row["args"] = {**row["args"], **({"correlation": 1} if row["cat"] in ("kernel", "gpu_memcpy") else {})}
    result = explain([write(tmp_path / "t.json", rows)])
    assert heads(result) == RIGHT
    assert {h.what for h in result.health} == {"graph_launches"}


def test_a_gpu_only_trace(tmp_path: Path) -> None:
    rows = [r for r in program() if r["cat"] in ("kernel", "gpu_memcpy")]
    result = explain([write(tmp_path / "t.json", rows)])
    assert heads(result) == {"compute": 50_000, "copy": 10_000, "idle": 10_000}  # from the first span to the last
    assert {"no_step_marks", "no_host_rows"} <= {h.what for h in result.health}


# ---- several processes in one file ----


def merged(tmp_path: Path, *, own_devices: bool) -> Breakdown:
    """Two ranks of the same program, whose correlation ids are the same; the second runs 3 us later and its first kernel is 25 us late."""
    first, second = program(pid=100), program(pid=200, shift=3, device_pid=1000 if own_devices else 0)
    second[5] = {**second[5], "dur": 25}
    return explain([write(tmp_path / "t.json", first + second)])


def test_merged_ranks_whose_ids_were_made_different(tmp_path: Path) -> None:
    """In any order of rows: the ids tell them apart."""
    first, second = program(pid=100), program(pid=200, shift=3, device_pid=1000)
    for row in second:
        row["args"] = {**row["args"], **({"correlation": row["args"]["correlation"] + 1000} if "correlation" in row["args"] else {})}
    result = explain([write(tmp_path / "t.json", sorted(first + second, key=lambda e: e["ts"]))])
    assert [heads(result, i) for i in (0, 1)] == [RIGHT, RIGHT]


@pytest.mark.parametrize("own_devices", [True, False])
def test_merged_ranks_whose_ids_collide_are_linked_each_within_itself(tmp_path: Path, own_devices: bool) -> None:
    result = merged(tmp_path, own_devices=own_devices)
    assert [r.rank for r in result.ranks] == [0, 1]
    assert heads(result, 0) == RIGHT
    assert heads(result, 1) == {"compute": 55_000, "copy": 10_000, "idle": 35_000}
    assert next(h for h in result.health if h.what == "merged_processes").count == 2
    assert all(s.unlinked == 0 for r in result.ranks for s in r.steps)


def test_merged_ranks_of_cpus(tmp_path: Path) -> None:
    rows = [span("cpu_op", "aten::mm", 10 * p, 5, pid=p) for p in (1, 2, 3)]
    assert [t.rank for t in read(write(tmp_path / "t.json", rows)).tables] == [0, 1, 2]


def test_rows_of_nobody_make_no_process(tmp_path: Path) -> None:
    rows = [*program(), span("Trace", "PyTorch Profiler (0)", 0, 100, pid="Spans"), span("python_function", "x.py(1): f", 0, 9, pid=77)]
    assert len(read(write(tmp_path / "t.json", rows)).tables) == 1


# ---- broken files: each as its cause made it ----

BROKEN = {
    "inf where a copy took no time": (b'"x": 1}', b'"x": inf}'),
    "minus infinity": (b'"x": 1}', b'"x": -Infinity}'),
    "nan": (b'"x": 1}', b'"x": nan}'),
    "N/A without quotes": (b'"x": 1}', b'"x": N/A}'),
    "a backslash of Windows": (b"aten::mm", b"C:\\Users\\new.py(3): f"),
    "source text of several lines as a name": (b"aten::mm", b"def f(x):\n\treturn x"),
    "control characters of a generated name": (b"aten::mm", b"triton_\x01\x02\x1b"),
    "a name in another encoding": (b"aten::mm", b"\xb2\xe2\xca\xd4"),
    "an integer over 64 bits": (b'"x": 1}', b'"x": 101599708867660844230000000}'),
    "an integer over 64 bits as an id": (b'"x": 1}', b'"correlation": 101599708867660844230000000}'),
    "a key twice": (b'"x": 1}', b'"x": 1, "x": 2}'),
    "quotes that are not escaped": (b"aten::mm", b'print("hello")'),
    "a lost quote": (b'"name": "odd"', b'"name": "odd'),
    "the same list twice": (b'"traceEvents": [', b'"traceEvents": [], "traceEvents": ['),
}


@pytest.mark.parametrize("cause", BROKEN)
@pytest.mark.parametrize("packed", [False, True])
def test_broken(tmp_path: Path, cause: str, packed: bool) -> None:
    """Device numbers are the same: what breaks is beside them, and is lost alone or not at all."""
    odd = span("cpu_op", "odd", 90, 5, pid=42, x=1)
    whole = json.dumps({"schemaVersion": 1, "traceEvents": [*program(), odd], "distributedInfo": {"rank": 3}}).encode()
    old, new = BROKEN[cause]
    assert old in whole
    data = whole.replace(old, new, 1)
    path = tmp_path / ("t.json.gz" if packed else "t.json")
    path.write_bytes(gzip.compress(data) if packed else data)
    result = explain([path])
    assert heads(result) == RIGHT
    assert result.ranks[0].rank == 3


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9, 0.99])
@pytest.mark.parametrize("packed", [False, True])
def test_a_tail_that_is_missing(tmp_path: Path, keep: float, packed: bool) -> None:
    """Whole events are used; that something is missing is said, and idle time, which the rest would have filled, is not shown."""
    data = json.dumps({"traceEvents": program()}).encode()
    if packed:
        data = gzip.compress(data, 0)
    path = tmp_path / ("t.json.gz" if packed else "t.json")
    path.write_bytes(data[: int(keep * len(data))])
    result = explain([path])
    assert next(h for h in result.health if h.what == "truncated").withholds == ("idle",)
    assert result.summary["busy_share"] is None


def test_records_without_a_time(tmp_path: Path) -> None:
    """A thousand kernels at time 0 of length 0: a profiler that ran out of records."""
    blank = [span("kernel", "k", 0, 0, pid=0, tid=7, device=0, stream=7) for _ in range(1000)]
    result = explain([write(tmp_path / "t.json", [*program(shift=BASE_US), *blank, *program(shift=BASE_US + 100)])])
    assert next(h for h in result.health if h.what == "blank_time").count == 1000


def test_ends_of_zero_make_no_negative_time(tmp_path: Path) -> None:
    rows = [*program(), span("cpu_op", "unfinished", 50, -1, pid=42), span("kernel", "k", 66, -1e9, pid=0, tid=7, device=0, stream=7)]
    result = explain([write(tmp_path / "t.json", rows)])
    assert heads(result) == RIGHT
    assert next(h for h in result.health if h.what == "unfinished").count == 2


def test_no_word_about_ranks(tmp_path: Path) -> None:
    for info in (
        {},
        {"backend": "undefined"},
        {"rank": "?"},
        {"rank": -1, "world_size": "x", "pg_config": [3, {}]},
        {"pg_config": 5},
        None,
        5,
    ):
        assert heads(explain([write(tmp_path / "t.json", program(), distributedInfo=info)])) == RIGHT
