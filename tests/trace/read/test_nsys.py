"""Nsight Systems exports: the same account as of a Kineto trace of the same program; the input untouched; what is broken said."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.spec.breakdown import Breakdown, group
from headway.spec.errors import TraceError
from headway.trace.classify import is_collective
from headway.trace.explain import explain
from headway.trace.read.file import read
from headway.trace.read.nvtx import told
from headway.trace.table import DEVICE_WORK, Kind
from tests.trace.drawing import events
from tests.trace.drawing import write as kineto
from tests.trace.read.nsys_file import SCHEMA, process, tables, write

DRAWING = """
main [S0                       ][S1                         ][S2             ]
main [fwd   ][bwd  ][opt ]      [load  ][fwd ][bwd  ][W    ] [L6][gc]
main  [L1]    [L2]               [M    ][L3][L4]  [L5]
0.7     [g1    ]     [e2    ]               [g3 ]   [e5   ]       [g6]
0.9         [n1           ]                   [n4          ]
0.11      [h1    ]                [d3  ]
"""
FIXTURES = "traces/GindaChen_nsys-ai/tests/fixtures"


def steps(b: Breakdown) -> list[Any]:
    return [(s.step, s.start_ns, s.wall_ns, dict(s.buckets), dict(s.phases), s.num_kernels) for r in b.ranks for s in r.steps]


def test_same_account_as_kineto(tmp_path: Path) -> None:
    found = explain([write(tmp_path / "a.sqlite", tables(events(DRAWING)))])
    assert steps(found) == steps(explain([kineto(tmp_path / "a.json", events(DRAWING))]))
    assert len(found.ranks[0].steps) == 3
    assert found.ranks[0].device == "cuda:0"
    for step in found.ranks[0].steps:
        step.check()


def test_input_is_untouched(tmp_path: Path) -> None:
    """A peer of ours grows its input: it writes indexes into it."""
    path = write(tmp_path / "a.sqlite", tables(events(DRAWING)))
    os.utime(path, ns=(1, 1))
    before, stat = path.read_bytes(), path.stat()
    explain([path])
    assert path.read_bytes() == before
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (stat.st_mtime_ns, stat.st_ino)
    assert [p.name for p in tmp_path.iterdir()] == ["a.sqlite"]


def test_name_that_a_uri_would_misread_and_gzip(tmp_path: Path) -> None:
    path = write(tmp_path / "a?mode=rw#%20.sqlite", tables(events(DRAWING)))
    packed = tmp_path / "b.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert steps(explain([path])) == steps(explain([packed]))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a?mode=rw#%20.sqlite", "b.sqlite.gz"]


def test_name_says_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", tables(events(DRAWING)))
    assert len(read(path).tables) == 1


# ---- processes ----


def test_ids_hold_within_a_process(tmp_path: Path) -> None:
    """Two processes with the same correlation ids: each launch is linked within its own."""
    first, second = tables(events(DRAWING), pid=7), tables([{**e, "ts": e["ts"] + 3} for e in events(DRAWING)], pid=9)
    both = {name: [*first[name], *second[name]] for name in first}
    found = explain([write(tmp_path / "rank5_of_two.sqlite", both)])
    alone = [explain([write(tmp_path / f"{i}.sqlite", t)]) for i, t in enumerate((first, second))]
    assert [r.rank for r in found.ranks] == [0, 1]  # a number in the name of a file of two says nothing
    assert steps(found) == [row for b in alone for row in steps(b)]


def test_process_without_device_work_is_no_rank(tmp_path: Path) -> None:
    mine, worker = tables(events(DRAWING)), tables([e for e in events(DRAWING) if e["cat"] == "user_annotation"], pid=9)
    found = read(write(tmp_path / "a.sqlite", {name: [*mine[name], *worker[name]] for name in mine}))
    assert len(found.tables) == 1
    assert len(found.tables[0]) == len(events(DRAWING))


def test_old_export_without_processes(tmp_path: Path) -> None:
    """No globalPid: work goes to the process whose launches know it."""
    schema = {name: text.replace(", globalPid INTEGER", "") for name, text in SCHEMA.items()}
    two = [tables(events(DRAWING), pid=pid) for pid in (7, 9)]
    rows = {
        name: [
            r[:5] + r[6:] if "globalPid" in SCHEMA[name] else r for t in two for r in (t[name] if t is two[0] or "RUNTIME" in name else [])
        ]
        for name in two[0]
    }
    found = read(write(tmp_path / "a.sqlite", {**rows, "NVTX_EVENTS": two[0]["NVTX_EVENTS"]}, schema=schema)).tables
    assert sum(len(t.rows(*DEVICE_WORK)) for t in found) == sum(e["cat"].startswith(("kernel", "gpu_mem")) for e in events(DRAWING))


def test_rows_without_a_process(tmp_path: Path) -> None:
    """Of the only process there is; where there are two, left out and said."""
    one, two = tables(events(DRAWING), pid=7), tables(events(DRAWING), pid=9)
    one["CUPTI_ACTIVITY_KIND_KERNEL"][0][5] = None
    alone = read(write(tmp_path / "a.sqlite", one)).tables
    assert [len(t) for t in alone] == [len(events(DRAWING))]
    both = read(write(tmp_path / "b.sqlite", {name: [*one[name], *two[name]] for name in one})).tables
    assert [len(t) for t in both] == [len(events(DRAWING)) - 1, len(events(DRAWING))]
    assert {h.what: h.count for h in both[0].health}["no_process"] == 1


def test_process_that_is_damage(tmp_path: Path) -> None:
    """A kernel of a process that the export does not list and that called nothing is no rank."""
    schema = {**SCHEMA, "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT"}
    rows = {**tables(events(DRAWING), pid=7), "PROCESSES": [[process(7), 7, "python"]]}
    rows["CUPTI_ACTIVITY_KIND_KERNEL"][0][5] ^= 1 << 40
    assert len(read(write(tmp_path / "a.sqlite", rows, schema=schema)).tables) == 1


def test_database_that_is_still_written(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", tables(events(DRAWING)))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE more (a INTEGER)")
        db.commit()
        found = explain([path])
        names = sorted(p.name for p in tmp_path.iterdir())
    assert "unfinished_database" in {h.what for h in found.health}
    assert names == ["a.sqlite", "a.sqlite-shm", "a.sqlite-wal"]
    assert len(found.ranks[0].steps) == 3


# ---- NVTX ----


@pytest.mark.parametrize(
    ("text", "name", "sequence", "kind"),
    [
        ("aten::mm, seq = 7, op_id = 12, sizes = [[2, 3], [3, 4]]", "aten::mm", 7, Kind.OPERATOR),
        ("aten::copy_, op_id = 991065", "aten::copy_", -1, Kind.OPERATOR),
        ("autograd::engine::x: MmBackward0, seq = 3, op_id = 2", "autograd::engine::x: MmBackward0", 3, Kind.OPERATOR),
        ("headway::phase::forward, op_id = 4", "headway::phase::forward", -1, Kind.MARK),
        ("loss, seq. 3", "loss, seq. 3", -1, Kind.MARK),
        ("aten::mm", "aten::mm", -1, Kind.OPERATOR),
    ],
)  # fmt: skip
def test_texts_of_torch(text: str, name: str, sequence: int, kind: Kind) -> None:
    assert told(text) == (name, sequence, kind)


def ranged(*spans: tuple[str, int, int], event: int = 59, tid: int = 1) -> list[list[Any]]:
    return [[start, end, event, process(7) | tid, text, None, 0] for text, start, end in spans]


WORK = tables(events("\nmain [L1]   [L2]    [L3]\n0.7    [g1 ]  [g2  ]   [g3 ]"))


@pytest.mark.parametrize(
    ("ranges", "numbers"),
    [
        ([("step 4", 0, 5000), ("step 5", 5000, 12000)], [4, 5]),
        ([("Iteration: 4", 0, 5000), ("Iteration: 5", 5000, 12000)], [4, 5]),
        ([("sample_0", 0, 5000), ("sample_1", 6000, 12000)], [0, 1]),
        ([("train_step", 0, 5000), ("train_step", 6000, 12000)], [0, 1]),
        ([("ProfilerStep#8", 0, 5000), ("step 1", 0, 5000)], [8]),
        ([("step 1", 0, 9000), ("batch 0", 0, 4000), ("batch 1", 4000, 9000)], [1]),
        ([("step 1", 0, 9000), ("step 2", 4000, 9500), ("iteration 7", 0, 9000)], [7]),  # ranges that overlap are no steps
        (
            [("optimizer step 12 of 20", 0, 5000), ("stepper 3", 0, 5000), ("time_step_embedding 4", 1, 2)],
            [0],
        ),  # a number in a text is none
        ([("train_step", 0, 5000)], [0]),  # once, without a number: the whole is one window
    ],
)
def test_which_ranges_are_steps(tmp_path: Path, ranges: list[tuple[str, int, int]], numbers: list[int]) -> None:
    found = explain([write(tmp_path / "a.sqlite", {**WORK, "NVTX_EVENTS": ranged(*ranges)})])
    assert [s.step for s in found.ranks[0].steps] == numbers


def test_single_moments_are_no_spans_and_open_ranges_are_said(tmp_path: Path) -> None:
    rows = [*ranged(("step 0", 0, 20000)), *ranged(("a mark", 3, 3), event=34), [5, None, 59, process(7) | 1, "forward", None, 0]]
    table = read(write(tmp_path / "a.sqlite", {**WORK, "NVTX_EVENTS": rows})).tables[0]
    assert "a mark" not in {table.names[i] for i in table.name.tolist()}
    assert {h.what: h.count for h in table.health}["unclosed_ranges"] == 1


def test_texts_by_number(tmp_path: Path) -> None:
    rows = [[0, 9000, 59, process(7) | 1, None, 77, 0]]
    path = write(tmp_path / "a.sqlite", {**WORK, "NVTX_EVENTS": rows})
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO StringIds VALUES (77, 'step 3')")
        db.commit()
    assert [s.step for s in explain([path]).ranks[0].steps] == [3]


# ---- other tables ----


def test_graphs_traced_as_a_whole(tmp_path: Path) -> None:
    rows = {**WORK, "CUPTI_ACTIVITY_KIND_KERNEL": [], "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [[2000, 9000, 0, 7, 1, process(7), 4]]}
    found = explain([write(tmp_path / "a.sqlite", rows)])
    assert found.ranks[0].steps[0].buckets["compute.other"] == 7000
    assert "graphs_as_a_whole" in {h.what for h in found.health}


def test_copies(tmp_path: Path) -> None:
    schema = {**SCHEMA, "CUPTI_ACTIVITY_KIND_MEMCPY": SCHEMA["CUPTI_ACTIVITY_KIND_MEMCPY"] + ", srcDeviceId INTEGER, dstDeviceId INTEGER"}
    copies = [(1, 0, 2, 0, 0), (2, 2, 1, 0, 0), (8, 2, 2, 0, 0), (8, 2, 2, 0, 1), (10, 2, 2, 0, 1), (99, 9, 9, 0, 0), (12, 4, 0, 0, 0)]
    rows = [[1000 * i, 1000 * i + 500, 0, 7, 0, process(7), *row] for i, row in enumerate(copies)]
    table = read(write(tmp_path / "a.sqlite", {**WORK, "CUPTI_ACTIVITY_KIND_MEMCPY": rows}, schema=schema)).tables[0]
    names = [table.names[i] for i in table.name[table.rows(Kind.MEMCPY)].tolist()]
    assert names == [
        "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)", "Memcpy DtoD (Device -> Device)",
        "Memcpy PtoP (Device -> Device)", "Memcpy PtoP (Device -> Device)", "Memcpy of unknown way", "Memcpy DtoH (Managed -> Pageable)",
    ]  # fmt: skip


def test_names_that_are_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", WORK)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE StringIds")
        db.commit()
    found = explain([path])
    assert found.ranks[0].steps[0].buckets["compute.other"] > 0
    assert {h.what: h.count for h in found.health}["unnamed"] == 6


def test_kernels_named_by_text(tmp_path: Path) -> None:
    schema = {**SCHEMA, "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, name TEXT, demangledName TEXT"}
    rows = {**WORK, "CUPTI_ACTIVITY_KIND_KERNEL": []}
    path = write(tmp_path / "a.sqlite", rows, schema=schema)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, shortName TEXT)")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (2000, 9000, 'volta_sgemm_128x64_nn')")
        db.commit()
    assert explain([path]).ranks[0].steps[0].buckets["compute.gemm"] == 7000


# ---- broken files ----


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"SQLite format 3\0" + bytes(84), "database"),
        (b"SQLite format 3\0", "database"),
        (b"SQLite format 3\0" + b"\xff" * 5000, "database"),
    ],
)
def test_no_database(tmp_path: Path, data: bytes, what: str) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=what):
        explain([path])


def test_database_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE users (name TEXT)")
        db.commit()
    with pytest.raises(TraceError, match="no export of Nsight Systems"):
        explain([path])


def test_empty_export(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no export|no spans"):
        explain([write(tmp_path / "a.sqlite", {})])
    path = write(tmp_path / "b.sqlite", WORK)
    with closing(sqlite3.connect(path)) as db:
        for table in WORK:
            db.execute(f"DELETE FROM {table}") if WORK[table] else None
        db.commit()
    with pytest.raises(TraceError, match="no spans"):
        explain([path])


def test_wrong_types(tmp_path: Path) -> None:
    """Text, fractions and numbers over 62 bits where integers belong: the row is left out and said, or the field is unknown."""
    good = WORK["CUPTI_ACTIVITY_KIND_KERNEL"]
    bad = [
        ["x", 9, *good[0][2:]],
        [None, 9, *good[0][2:]],
        [1.5, 9, *good[0][2:]],
        [1 << 62, 9, *good[0][2:]],
        [*good[0][:2], "a", b"b", "c", *good[0][5:]],
    ]
    table = read(write(tmp_path / "a.sqlite", {**WORK, "CUPTI_ACTIVITY_KIND_KERNEL": [*good, *bad]})).tables[0]
    assert {h.what: h.count for h in table.health}["unusable_time"] == 4
    assert len(table.rows(Kind.KERNEL)) == len(good) + 1


def test_damaged_page_keeps_what_comes_before(tmp_path: Path) -> None:
    rows = {"CUPTI_ACTIVITY_KIND_KERNEL": [[i * 100, i * 100 + 50, 0, 7, 0, process(7), "gemm", "gemm", None] for i in range(20_000)]}
    path = write(tmp_path / "a.sqlite", rows)
    data = bytearray(path.read_bytes())
    page = int.from_bytes(data[16:18], "big")
    where = (len(data) // page * 2 // 3) * page
    data[where : where + page] = b"\xff" * page
    path.write_bytes(data)
    table = read(path).tables[0]
    assert 1000 < len(table) < 20_000
    assert (np.diff(table.start) == 100).all()  # the first ones, none between left out
    assert "damaged_tables" in {h.what for h in table.health}
    assert explain([path]).summary["busy_share"] is None or "idle" in explain([path]).summary["withheld"]


def test_cut_file_keeps_what_comes_before(tmp_path: Path) -> None:
    rows = {"CUPTI_ACTIVITY_KIND_KERNEL": [[i * 100, i * 100 + 50, 0, 7, 0, process(7), "gemm", "gemm", None] for i in range(20_000)]}
    path = write(tmp_path / "a.sqlite", rows)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    packed = tmp_path / "b.sqlite.gz"
    packed.write_bytes(gzip.compress(whole)[:-30_000])
    for cut in (path, packed):
        table = read(cut).tables[0]
        assert 1000 < len(table) < 20_000
        assert (np.diff(table.start) == 100).all()
        assert "damaged_tables" in {h.what for h in table.health}


# ---- real files ----


def sweep(rows: list[tuple[int, int]]) -> int:
    busy, reach = 0, -(1 << 62)
    for start, end in sorted(rows):
        busy += max(0, end - max(start, reach))
        reach = max(reach, end)
    return busy


@pytest.mark.parametrize("name", ["h100_2gpu_1s", "mfu_2gpu_before", "healthy_1pct", "healthy_judged_1pct", "mock", "13d76c0_healthy_1pct"])
def test_real_files(shared: Path, name: str) -> None:
    """Busy time, kernels and collectives of each device as plain SQL and a walk count them; the file as it was."""
    path = shared / FIXTURES / f"{name}.sqlite"
    before = path.read_bytes()
    found = explain([path])
    assert path.read_bytes() == before
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        present = {n for (n,) in db.execute("SELECT name FROM sqlite_master")}
        work = [f"CUPTI_ACTIVITY_KIND_{k}" for k in ("KERNEL", "MEMCPY", "MEMSET") if f"CUPTI_ACTIVITY_KIND_{k}" in present]
        for device, row in enumerate(found.ranks):
            spans = [r for t in work for r in db.execute(f"SELECT start, end FROM {t} WHERE deviceId = {device}")]
            kernels = db.execute(
                "SELECT k.start, k.end, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName "
                f"WHERE deviceId = {device}"
            ).fetchall()
            heads = {h: sum(group(s.buckets).get(h, 0) for s in row.steps) for h in ("compute", "comm", "copy", "idle")}
            assert heads["compute"] + heads["comm"] + heads["copy"] == sweep(spans)
            assert sum(heads.values()) == sum(s.wall_ns for s in row.steps)
            assert sum(k.count for k in row.kernels) == len(spans)
            comm = [k for k in kernels if is_collective(k[2])]
            assert sum(k.count for k in row.kernels if k.kind.startswith("comm.")) == len(comm)
            assert sum(k.total_ns for k in row.kernels if k.kind.startswith("comm.")) == sum(e - s for s, e, _ in comm)


def test_peer_counts_copies_as_idle(shared: Path) -> None:
    """nsys-ai calls a device "cpu-bound, 97.7 % idle" that is busy for 95 % of the time with copies from the host: it counts kernels only.

    Its sum of kernels, and its communication of the other file, are ours.
    """
    peers = shared / "traces/peer_outputs/nsys_ai"
    theirs = json.loads((peers / "h100_2gpu_1s_overlap_breakdown.json").read_text())[0]
    ours = explain([shared / FIXTURES / "h100_2gpu_1s.sqlite"]).ranks[0]
    buckets = group(ours.steps[0].buckets)
    assert theirs["idle_ms"] > 0.97 * theirs["total_ms"]
    assert buckets["copy"] > 0.94 * ours.steps[0].wall_ns
    assert buckets["idle"] < 0.01 * ours.steps[0].wall_ns
    kernels = sum(k.total_ns for k in ours.kernels if not k.name.startswith(("Memcpy", "Memset")))
    assert abs(kernels / 1e6 - theirs["compute_only_ms"]) < 0.1
    theirs = json.loads((peers / "mfu_2gpu_before_overlap_breakdown.json").read_text())[0]
    ours = explain([shared / FIXTURES / "mfu_2gpu_before.sqlite"]).ranks[0]
    assert round(group(ours.steps[0].buckets)["comm"] / 1e6, 2) == theirs["nccl_only_ms"]
    assert sum(k.count for k in ours.kernels if k.kind.startswith("comm.")) == theirs["nccl_kernels"]
