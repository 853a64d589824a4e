"""Reading: exact times, every spelling, broken files, errors that say what to do."""

from __future__ import annotations

import gzip
import json
import random
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.spec.errors import TraceError
from headway.trace.explain import explain
from headway.trace.read.kineto import read
from headway.trace.read.kineto_json import Inexact, nanoseconds
from headway.trace.table import Kind
from tests.trace.drawing import draw, span, write

ONE = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": %s, "dur": %s, "args": {"stream": 7, "device": 0}}'


def text(tmp_path: Path, body: str | bytes, name: str = "t.json") -> Path:
    path = tmp_path / name
    path.write_bytes(body.encode() if isinstance(body, str) else body)
    return path


@pytest.mark.parametrize(
    ("ts", "base", "start"),
    [
        ("1712195495519689.047", 0, 1_712_195_495_519_689_047),  # no double holds this
        ("1712195495519689.047", None, 1_712_195_495_519_689_047),
        ("4212936068816.936", 1_719_853_884_000_000_000, 1_724_066_820_068_816_936),
        ("8796093022207.999", 0, 8_796_093_022_207_999),  # the largest that a double gives back
        ("1623143093496523", 0, 1_623_143_093_496_523_000),
        ("0.001", 0, 1),
        ("1.7e15", 0, 1_700_000_000_000_000_000),
        ('"12.5"', 0, 12_500),
    ],
)
def test_exact_time(tmp_path: Path, ts: str, base: int | None, start: int) -> None:
    fields = f', "baseTimeNanoseconds": {base}' if base is not None else ""
    table = read(text(tmp_path, f'{{"traceEvents": [{ONE % (ts, "63.813")}]{fields}}}'))
    assert (int(table.start[0]), int(table.end[0] - table.start[0])) == (start, 63_813)


@given(st.lists(st.integers(0, (1 << 43) * 1000 - 1), min_size=1, max_size=20))
def test_doubles_give_back_nanoseconds(times: list[int]) -> None:
    decoded = [float(str(Decimal(t) / 1000)) for t in times]
    assert nanoseconds(decoded)[0].tolist() == times


def test_inexact_is_refused() -> None:
    with pytest.raises(Inexact):
        nanoseconds([1712195495519689.047])
    found, usable = nanoseconds([1, None, "x", 2.5, float("nan"), 10**40, True])
    assert found[usable].tolist() == [1000, 2500]
    for lists in ([[]], [[1], [2]], [[1, 2], [3, 4]], [{}]):
        assert not nanoseconds(lists)[1].any()


@pytest.mark.parametrize(
    ("cat", "kind"),
    [
        ("Kernel", Kind.KERNEL), ("kernel", Kind.KERNEL), ("Memcpy", Kind.MEMCPY), ("gpu_memcpy", Kind.MEMCPY),
        ("Memset", Kind.MEMSET), ("gpu_memset", Kind.MEMSET), ("Runtime", Kind.RUNTIME), ("cuda_runtime", Kind.RUNTIME),
        ("cuda_driver", Kind.RUNTIME), ("hip_runtime", Kind.RUNTIME), ("Operator", Kind.OPERATOR), ("cpu_op", Kind.OPERATOR),
        ("user_annotation", Kind.MARK), ("gpu_user_annotation", Kind.DEVICE_MARK), ("cuda_sync", Kind.SYNC),
        ("python_function", Kind.PYTHON), ("overhead", Kind.OTHER),
    ],
)  # fmt: skip
def test_spellings(tmp_path: Path, cat: str, kind: Kind) -> None:
    assert read(write(tmp_path / "t.json", [span(cat, "x", 0, 1)])).kind.tolist() == [kind]


def test_what_the_file_says_of_itself(tmp_path: Path) -> None:
    args = {
        "Collective name": "_allgather_base", "In msg nelems": 1024, "Out msg nelems": 4096, "Group size": 4, "dtype": "BFloat16",
        "Process Group Name": "5", "Process Group Description": "mesh_dp_shard", "Process Group Ranks": "[0, 2, 4, 6]",
    }  # fmt: skip
    groups = [
        {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": list(range(8))},
        {"pg_name": "9", "pg_desc": "undefined", "pg_size": 8, "ranks": [0, 1]},
    ]
    path = write(
        tmp_path / "t.json",
        [span("kernel", "ncclDevKernel_AllGather_RING_LL", 0, 5, pid=2, tid=20, stream=20, **args)],
        distributedInfo={"backend": "nccl", "rank": 2, "world_size": 8, "pg_config": groups},
        deviceProperties=[{"id": 0, "name": "NVIDIA H100"}],
        host_name="node7",
    )
    table = read(path)
    assert (table.rank, table.world, table.host, table.devices, int(table.device[0])) == (2, 8, "node7", ("NVIDIA H100",), 2)
    said = table.collectives[0]
    assert (said.name, said.ranks, said.bytes, said.text) == ("all_gather", (0, 2, 4, 6), 8192, "mesh_dp_shard")
    assert table.groups[1].ranks == ()  # a shortened list of members is no list of members
    step = explain([path]).ranks[0].steps[0]
    assert "comm.all_gather.dp_shard.unsplit" in step.buckets


def test_whole_numbers_of_any_size(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [span("kernel", "k", 0, 1, correlation=10159970886766084423, stream="7", device=0)])
    table = read(path)
    assert (int(table.correlation[0]), int(table.stream[0])) == (-1, 7)


@pytest.mark.parametrize(
    ("body", "mended"),
    [
        (b'{"traceEvents": [%b, {"ph": "X", "cat": "gpu_memcpy", "name": "m", "ts": 9, "dur": 0, "args": {"bw": inf}}]}', "bare inf"),
        (b'{"traceEvents": [%b, {"ph": "X", "cat": "cpu_op", "name": "m", "ts": 9, "dur": 0, "args": {"x": N/A}}]}', "bare inf"),
        (b'{"traceEvents": [%b, {"ph": "X", "cat": "cpu_op", "name": "m", "ts": 9, "dur": NaN}]}', "bare inf"),
        (b'{"traceEvents": [%b, {"ph": "X", "cat": "cpu_op", "name": "a\nb\x01", "ts": 9, "dur": 0}]}', "control characters"),
        (b'{"traceEvents": [%b, {"ph": "X", "cat": "cpu_op", "name": "C:\\Users", "ts": 9, "dur": 0}]}', "lone backslashes"),
        (b'{"traceEvents": [%b, {"ph": "X", "cat": "cpu_op", "name": "\xff\xfe", "ts": 9, "dur": 0}]}', "UTF-8"),
    ],
)
def test_mended(tmp_path: Path, body: bytes, mended: str) -> None:
    table = read(text(tmp_path, body.replace(b"%b", (ONE % ("1", "2")).encode())))
    assert len(table) == 2
    assert any(mended in h.text for h in table.health)


def test_one_event_that_cannot_be_read(tmp_path: Path) -> None:
    body = f'{{"traceEvents": [{ONE % (1, 2)}, {{"ph": "X", "name": "a"b", "ts": 1}}, {ONE % (5, 2)}], "distributedInfo": {{"rank": 3}}}}'
    table = read(text(tmp_path, body))
    assert (len(table), table.rank) == (2, 3)
    assert [(h.what, h.count) for h in table.health] == [("unreadable_events", 1)]


def test_cut_anywhere(tmp_path: Path) -> None:
    """Every whole event before a cut is used, and the loss is said."""
    rows = [ONE % (i, 1) for i in range(20)]
    body = '{"traceEvents": [' + ", ".join(rows) + "]}"
    for cut in range(len('{"traceEvents": [') + len(rows[0]), len(body) - 1, 37):
        table = read(text(tmp_path, body[:cut]))
        assert len(table) == sum(body.index(r) + len(r) <= cut for r in rows)
        assert any(h.what == "truncated" for h in table.health)


def test_gzip(tmp_path: Path) -> None:
    body = '{"traceEvents": [' + ", ".join(ONE % (i, random.Random(i).random()) for i in range(2000)) + "]}"
    packed = gzip.compress(body.encode())
    assert len(read(text(tmp_path, packed, "a.json.gz"))) == 2000
    assert len(read(text(tmp_path, body, "b.json.gz"))) == 2000  # the name lies
    assert len(read(text(tmp_path, packed, "c.json"))) == 2000
    cut = read(text(tmp_path, packed[: len(packed) // 2], "d.json.gz"))
    assert 0 < len(cut) < 2000
    assert any(h.what == "truncated" for h in cut.health)
    broken = bytearray(packed)
    broken[len(packed) // 2 :] = bytes(len(packed) - len(packed) // 2)
    assert 0 < len(read(text(tmp_path, bytes(broken), "e.json.gz"))) < 2000


def test_odd_times(tmp_path: Path) -> None:
    rows = [
        span("kernel", "blank", 0, 0),
        span("cpu_op", "unfinished", 1_700_000_000_000_100, -1),
        span("cpu_op", "a", 1_700_000_000_000_000, 5),
        span("cpu_op", "b", 1_700_000_000_000_010, 5),
        {"ph": "X", "cat": "cpu_op", "name": "no time", "dur": 5},
        {"ph": "B", "cat": "cpu_op", "name": "begin", "ts": 5},
    ]
    table = read(write(tmp_path / "t.json", rows))
    assert {h.what: h.count for h in table.health} == {"begin_end_events": 1, "unusable_time": 1, "blank_time": 1, "unfinished": 1}
    assert len(table) == 3
    assert (np.diff(table.start) >= 0).all()


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "empty"),
        (b"SQLite format 3\x00", "database"),
        (b"{}", "not a trace"),
        (b'{"schema": "headway.run/1"}', "not a trace"),
        (b"hello", "not a trace"),
        (b'{"traceEvents": 5}', "not a trace"),
        (b'{"traceEvents": []}', "no spans"),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name"}]}', "no spans"),
        (b"[1, 2, 3]", "no spans"),
    ],
)
def test_refused(tmp_path: Path, body: bytes, what: str) -> None:
    path = text(tmp_path, body)
    with pytest.raises(TraceError, match=what) as error:
        explain([path])
    assert error.value.where == str(path)
    assert error.value.fix


def test_missing(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(TraceError, match=r"no such trace|no trace in this folder"):
            explain([path])


def test_mutated_files_are_answered(tmp_path: Path) -> None:
    """Flipped bytes and cuts: an answer whose sums hold, or one clear error; never anything else."""
    drawing = """
main [S0                ][S1                  ]
main [L1][load  ][L2]    [L3][W       ]
0.7     [g1    ]
0.9         [n2       ]       [h3   ]
"""
    body = draw(tmp_path / "whole.json", drawing).read_bytes()
    random_ = random.Random(0)
    answered = 0
    for i in range(300):
        data = bytearray(body)
        for _ in range(random_.randint(1, 4)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        if i % 3 == 0:
            del data[random_.randrange(len(data)) :]
        path = text(tmp_path, bytes(data), "mutated.json")
        try:
            result = explain([path])
        except TraceError:
            continue
        answered += 1
        for rank in result.ranks:
            for step in rank.steps:
                step.check()
    assert answered > 200


def test_older_files_are_a_bare_list(tmp_path: Path) -> None:
    table = read(text(tmp_path, json.dumps([span("Operator", "aten::mm", 0, 1, tid="4093687616")])))
    assert (len(table), table.tracks) == (1, (("1", "4093687616"),))


def test_a_folder_of_a_folder_for_each_rank(tmp_path: Path) -> None:
    drawing = """
main [S0      ]
main [L1]
0.7     [g1   ]
"""
    for rank in (0, 1):
        (tmp_path / "set" / f"{rank}").mkdir(parents=True)
        draw(tmp_path / "set" / f"{rank}" / "t.json", drawing, rank=rank, world=2)
    assert [r.rank for r in explain([tmp_path / "set"]).ranks] == [0, 1]
    (tmp_path / "set" / "1" / "run.json").write_text("{}")
    assert [r.rank for r in explain([tmp_path / "set"]).ranks] == [0], "another run is none of its ranks"
