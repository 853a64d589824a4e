"""XSpaces of JAX and TensorFlow: the same account as of a Kineto trace of the same program; loops counted once; exact times."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.spec.breakdown import group
from headway.spec.errors import TraceError
from headway.trace.classify import is_collective
from headway.trace.explain import explain
from headway.trace.read.file import read
from headway.trace.read.protobuf import Loss, fields, signed
from headway.trace.read.xspace import planes
from headway.trace.table import Kind
from tests.trace.drawing import events
from tests.trace.drawing import write as kineto
from tests.trace.read.test_nsys import steps
from tests.trace.read.xspace_file import drawn, plane, put, space, varint

DRAWING = """
main [S0                       ][S1                         ][S2             ]
main [fwd   ][bwd  ][opt ]      [load  ][fwd ][bwd  ]        [L6][gc]
main  [L1]    [L2]                     [L3][L4]  [L5]
0.7     [g1    ]     [e2    ]               [g3 ]   [e5   ]       [g6]
0.9         [n1           ]                   [n4          ]
"""
FILES = "traces/openxla_xprof"
PS = 1000  # picoseconds of a nanosecond


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_same_account_as_kineto(tmp_path: Path) -> None:
    found = explain([write(tmp_path / "a.xplane.pb", drawn(DRAWING))])
    assert steps(found) == steps(explain([kineto(tmp_path / "a.json", events(DRAWING))]))
    assert len(found.ranks[0].steps) == 3
    packed = write(tmp_path / "b.xplane.pb.gz", gzip.compress(drawn(DRAWING)))
    assert steps(explain([packed])) == steps(found)


def test_name_says_nothing(tmp_path: Path) -> None:
    assert len(read(write(tmp_path / "profile", drawn(DRAWING))).tables) == 1
    assert len(explain([write(tmp_path / "a.json", drawn(DRAWING))]).ranks) == 1


# ---- times ----


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**5)), min_size=1, max_size=20), st.integers(0, 1 << 60))
def test_rounding_keeps_neighbours_apart(gaps: list[tuple[int, int]], base: int) -> None:
    """Begin and end are rounded down alike: what does not overlap in picoseconds does not in nanoseconds, and no nanosecond is lost."""
    begin, specs = 0, []
    for length, gap in gaps:
        specs.append(("op", begin, length, {}))
        begin += length + gap
    (line,) = next(planes(space(plane("/device:TPU:0", {"XLA Ops": specs}, base_ns=base)), Loss()))[0].lines
    for event, (_, start, length, _) in zip(line.events, specs, strict=True):
        assert event.start == base + start // 1000
        assert event.end == base + (start + length) // 1000
    assert all(a.end <= b.start for a, b in zip(line.events, line.events[1:], strict=False))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints(value: int) -> None:
    (found,) = fields(put(3, value), Loss())
    assert found[0] == 3
    assert isinstance(found[1], int)
    assert signed(found[1]) == value


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    loss = Loss()
    found = fields(data, loss)
    assert len(found) <= len(data)
    list(planes(data, loss))


def test_unknown_fields_are_skipped() -> None:
    loss = Loss()
    more = varint(99 << 3 | 1) + bytes(8) + varint(98 << 3 | 5) + bytes(4) + put(97, "text") + put(96, 1 << 63)
    found = list(planes(more + space(more + plane("/host:CPU", {"main": [("a", 0, 5 * PS, {})]})) + more, loss))
    assert [p.name for p, _ in found] == ["/host:CPU"]
    assert loss.count == 0


# ---- TPUs ----


def tpu(device: int, shift: int = 0, **lines: Any) -> bytes:
    """A loop of 40 us that contains its body twice, then a fusion; the module runs from 0 to 60 us."""
    ns = 1_000_000 + shift
    ops = [
        ("while.1", ns, 40_000), ("fusion.1", ns + 1_000, 10_000), ("all-reduce.2", ns + 12_000, 8_000),
        ("fusion.1", ns + 21_000, 10_000), ("all-reduce.2", ns + 32_000, 8_000), ("add_fusion", ns + 45_000, 5_000),
    ]  # fmt: skip
    told = {
        "fusion.1": {"hlo_category": "convolution fusion", "tf_op": "jit(step)/jit(main)/dot_general:"},
        "add_fusion": {"hlo_category": "loop fusion", "tf_op": "jit(step)/jit(main)/add:"},
        "all-reduce.2": {"hlo_category": "all-reduce"},
        "while.1": {"hlo_category": "while"},
    }
    made = {
        "XLA Modules": [("jit_step(77)", ns * PS, 60_000 * PS, {"run_id": 5})],
        "XLA Ops": [(name, begin * PS, length * PS, {}) for name, begin, length in ops],
        "Async XLA Ops": [("copy-start.9", ns * PS, 55_000 * PS, {})],
        "Framework Ops": [("dot", ns * PS, 50_000 * PS, {})],
        **lines,
    }
    return plane(f"/device:TPU:{device}", made, told=told)


def host() -> bytes:
    launches = [("DoEnqueueProgram", (900_000 + d) * PS, 9_000 * PS, {"run_id": 5, "device_ordinal": d}) for d in (0, 1)]
    done = [("CompleteCallbacks", 1_070_000 * PS, 1_000 * PS, {"run_id": 5, "device_ordinal": 0})]
    marks = [("train", 800_000 * PS, 300_000 * PS, {"step_num": 41}), ("train", 1_100_000 * PS, 100_000 * PS, {"step_num": 42})]
    return plane("/host:CPU", {"main": [*marks, *launches, *done], "python": [("$train.py:12 step", 800_000 * PS, 10 * PS, {})]})


def test_loop_counts_once(tmp_path: Path) -> None:
    found = explain([write(tmp_path / "a.xplane.pb", space(host(), tpu(0), tpu(1, shift=500)))])
    assert [r.device for r in found.ranks] == ["tpu:0", "tpu:1"]
    for row in found.ranks:
        assert [s.step for s in row.steps] == [41, 42]
        first = row.steps[0]
        first.check()
        assert {k: v for k, v in first.buckets.items() if not k.startswith("idle")} == {
            "compute.gemm": 20_000, "compute.elementwise": 5_000, "comm.all_reduce.world.unsplit": 16_000,
        }  # fmt: skip
        assert first.num_kernels == 3
        assert first.unlinked == 0
        assert first.modules["jit_step"] > 0
        assert {k.module for k in row.kernels} == {"jit_step"}
    assert "asynchronous_ops" in {h.what for h in found.health}


def test_asynchronous_collective_is_hidden_communication(tmp_path: Path) -> None:
    lines = {"Async XLA Ops": [("all-gather-start.3", 1_001_000 * PS, 9_000 * PS, {})]}
    row = explain([write(tmp_path / "a.xplane.pb", space(host(), tpu(0, **lines)))]).ranks[0]
    assert row.steps[0].hidden_comm_ns == 9_000
    assert row.steps[0].buckets["compute.gemm"] == 20_000


def test_steps_of_devices(tmp_path: Path) -> None:
    """Without marks of the host, each device has its own steps."""
    lines = [{"Steps": [(str(n), (950_000 + 100_000 * n + d) * PS, 90_000 * PS, {"step_name": str(n)}) for n in (0, 1)]} for d in (0, 7)]
    data = space(*(tpu(d, **line) for d, line in enumerate(lines)))
    found = explain([write(tmp_path / "a.xplane.pb", data)])
    assert [(r.rank, r.device, [s.step for s in r.steps], r.steps[0].start_ns) for r in found.ranks] == [
        (0, "tpu:0", [0, 1], 950_000), (1, "tpu:1", [0, 1], 950_007),
    ]  # fmt: skip


def test_without_a_device_threads_are_one(tmp_path: Path) -> None:
    """JAX on a CPU: ops with their module on threads of XLA; a loop that holds its body counts once."""
    op = {"hlo_op": "while.5", "hlo_module": "jit_step"}
    ops = [("while.5", 0, 900, op)] + [(n, b, 100, {**op, "hlo_op": n}) for n, b in (("dot.3", 100), ("wrapped_tanh", 300), ("dot.3", 500))]
    other = [("dot.3", 350, 100, {**op, "hlo_op": "dot.3"})]
    lines = {
        "python": [("train", 0, 1000 * PS, {"step_num": 3})],
        "tf_XLAPjRtCpuClient/7": [
            (n, b * PS, d * PS, o) for n, b, d, o in [*ops, ("Execute (wait for completion)", 0, 900, {"run_id": 7})]
        ],
        "tf_XLAEigen/8": [(n, b * PS, d * PS, o) for n, b, d, o in other],
    }
    (row,) = explain([write(tmp_path / "a.xplane.pb", space(plane("/host:CPU", lines)))]).ranks
    assert (row.device, [s.step for s in row.steps]) == ("cpu:0", [3])
    heads = {k: v for k, v in row.steps[0].buckets.items() if k.startswith("compute")}
    assert heads == {"compute.gemm": 300, "compute.elementwise": 50}


def test_times_that_cannot_be(tmp_path: Path) -> None:
    lines = {"XLA Ops": [("fusion", 0, 5 * PS, {}), ("fusion", 1 << 62, 1 << 62, {})]}
    data = space(host(), plane("/device:TPU:0", lines, base_ns=1_000_000), plane("/device:TPU:1", lines, base_ns=(1 << 63) - 1))
    found = explain([write(tmp_path / "a.xplane.pb", data)])
    assert sum(s.buckets.get("compute.other", 0) for r in found.ranks for s in r.steps) == 5


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("all-reduce.2", True), ("%all-gather-start.1", True), ("all-gather-done (all-gather-done)", True), ("collective-permute.7", True),
        ("reduce-scatter (reduce-scatter)", True), ("all-reduce-scatter-fusion.3 (fusion)", True), ("send.1", True), ("recv-done", True),
        ("reduce.7", False), ("scatter.2", False), ("gather_fusion", False), ("received_fusion", False), ("sender", False),
    ],
)  # fmt: skip
def test_collectives_of_xla(name: str, told: bool) -> None:
    assert is_collective(name) is told


# ---- files that are none, or broken ----


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\n\xef\xbf\xbd\xef\xbf\xbd\x06\x08\x02\x12\r/device:TPU:0" + b"\xef\xbf\xbd" * 50, "text converter"),
        (b"\n\x80", "no plane"),
        (b"\n" + b"\xff" * 100, "no plane"),
        (space(plane("/host:CPU", {})), "no events"),
        (space(plane("/host:CPU", {"main": []}), plane("/device:TPU:0", {"XLA Ops": []})), "no events"),
    ],
)
def test_refused(tmp_path: Path, data: bytes, what: str) -> None:
    with pytest.raises(TraceError, match=what):
        explain([write(tmp_path / "a.xplane.pb", data)])


def test_cut_file_keeps_what_is_whole(tmp_path: Path) -> None:
    whole = drawn(DRAWING)
    table = read(write(tmp_path / "a.xplane.pb", whole[: len(whole) * 2 // 3])).tables[0]
    assert "damaged_messages" in {h.what for h in table.health}
    assert len(table) > 5


def test_sums_of_many_have_no_place(tmp_path: Path) -> None:
    counted = put(2, "/host:CPU") + put(3, put(2, "main") + put(4, put(1, 1) + put(5, 300) + put(3, 10**9)))
    found = explain([write(tmp_path / "a.xplane.pb", space(counted, host(), tpu(0)))])
    assert {h.what: h.count for h in found.health}["aggregated_events"] == 1


# ---- real files ----


def sweep(rows: list[tuple[int, int]]) -> int:
    busy, reach = 0, -(1 << 62)
    for start, end in sorted(rows):
        busy += max(0, end - max(start, reach))
        reach = max(reach, end)
    return busy


def test_four_tpus(shared: Path) -> None:
    path = shared / FILES / "xprof/convert/test_xplanes/2cc1243_tpu_inference_2.xplane.pb"
    found = explain([path])
    assert [r.device for r in found.ranks] == [f"tpu:{i}" for i in range(4)]
    all_planes = {p.name: p for p, _ in planes(path.read_bytes(), Loss())}
    for i, row in enumerate(found.ranks):
        (step,) = row.steps
        step.check()
        ops = [e for line in all_planes[f"/device:TPU:{i}"].lines if line.name == "XLA Ops" for e in line.events]
        heads = group(step.buckets)
        assert heads["compute"] + heads["comm"] == sweep([(e.start, e.end) for e in ops])
        assert sum(k.count for k in row.kernels) == len(ops)
        assert step.unlinked == 0
        assert "impossible_duration" not in {h.what for h in found.health}
    with pytest.raises(TraceError, match="text converter"):
        explain([path.with_name("tpu_inference_2.xplane.pb")])


def test_gpus_of_tensorflow(shared: Path) -> None:
    (path,) = (shared / FILES / "demo/plugins/profile/GPU-multi-worker").glob("*.pb")
    found = explain([path])
    assert [r.device for r in found.ranks] == ["cuda:1", "cuda:4", "cuda:6"]
    tables = {int(t.device[t.rows(Kind.KERNEL, Kind.MEMCPY)].max()): t for t in read(path).tables}
    for device, table in tables.items():
        work = table.rows(Kind.KERNEL, Kind.MEMCPY)
        assert len(work) == {1: 19, 4: 759, 6: 778}[device]
        calls = set(table.correlation[table.rows(Kind.RUNTIME)].tolist())
        assert set(table.correlation[work].tolist()) <= calls
    for row in found.ranks:
        for step in row.steps:
            step.check()
