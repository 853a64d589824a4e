"""Five hundred files that went wrong: bytes flipped, tails cut, fields dropped, numbers blown up, events shuffled and doubled.

Each gets an answer whose partitions sum, or one clear error; in time, and never anything else.
"""

from __future__ import annotations

import copy
import gzip
import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.spec.breakdown import Breakdown, to_json
from headway.spec.errors import TraceError
from headway.trace.explain import explain
from tests.trace.drawing import events, span
from tests.trace.test_makes import program

Rows = list[dict[str, Any]]
SHARE, MOST_S = 50, 5.0  # files of each kind of damage; seconds for one
HUGE = (0, -1, 1e18, -1e18, 2**31, 2**63 - 1, 2**64, 10**30, 1e308, 0.1, "7", "x", None, True, [], {}, [[[]]])

DRAWING = """
main [S0                ][S1                  ][S2             ]
main [L1][load  ][L2]    [L3][W       ]        [L4][gc]
auto    [b5   ][b6]         [b5 ]
0.7     [g1    ]                                 [e4 ]
0.9         [n2       ]       [h3   ]
"""


def bases() -> dict[str, Rows]:
    """Small sound traces of several makes."""
    graph = [r for r in program() if not r["name"].startswith("cuda")] + [
        span("cuda_runtime", "cudaGraphLaunch", 2, 4, pid=42, correlation=1)
    ]
    cpu = [
        span("user_annotation", "ProfilerStep#1", 0, 100),
        *(span("cpu_op", "aten::mm", 10 * i, 8, **{"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]}) for i in range(8)),
        span("user_annotation", "gloo:all_reduce", 40, 30, tid=9),
        span("cpu_op", "c10d::allreduce_", 38, 2),
    ]
    memory = {"Bytes": 512, "Addr": 7, "Total Allocated": 512, "Device Type": 1, "Device Id": 0}
    calls = [
        span("python_function", "nn.Module: Net_0", 0, 50, pid=42),
        span("python_function", "nn.Module: Linear_0", 5, 20, pid=42),
        span("cpu_op", "Torch-Compiled Region: 0/0", 0, 30, pid=42),
        {"ph": "i", "name": "[memory]", "pid": 42, "tid": 1, "ts": 6, "args": memory},
    ]
    mtia = [span("mtia_ccp_events", "dma_request", 10 * i, 8, pid=9, tid=801, direction="HOST_TO_DEVICE") for i in range(4)]
    collective = {
        "Collective name": "allreduce",
        "In msg nelems": 64,
        "dtype": "Float",
        "Group size": 2,
        "Process Group Ranks": "[0, 1]",
        "Seq": 3,
    }
    comm = [
        span("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 30, pid=0, tid=9, stream=9, device=0, correlation=2, **collective)
    ]
    pairs = [
        half for r in program() for half in ({**r, "ph": "B"}, {"ph": "E", "pid": r["pid"], "tid": r["tid"], "ts": r["ts"] + r["dur"]})
    ]
    return {
        "drawing": events(DRAWING), "cuda": program() + comm, "hip": program("hip") + calls, "old": program(old=True), "graph": graph,
        "cpu": cpu, "mtia": mtia, "merged": program(pid=1) + program(pid=2, shift=3), "pairs": pairs,
        "absolute": program(shift=1_700_000_000_000_000),
    }  # fmt: skip


def text(rows: Rows) -> bytes:
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}]
    fields = {"distributedInfo": {"rank": 0, "world_size": 2, "pg_config": groups}, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}]}
    return json.dumps({"schemaVersion": 1, **fields, "baseTimeNanoseconds": 10**18, "traceEvents": rows}, indent=1).encode()


# ---- damage ----


def flipped(rows: Rows, rng: random.Random) -> bytes:
    data = bytearray(text(rows))
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def cut(rows: Rows, rng: random.Random) -> bytes:
    data = text(rows)
    return data[: rng.randrange(20, len(data))]


def holed(rows: Rows, rng: random.Random) -> bytes:
    data = text(rows)
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.randint(1, 200) :]


def dropped(rows: Rows, rng: random.Random) -> bytes:
    rows = copy.deepcopy(rows)
    for row in rng.sample(rows, min(len(rows), 5)):
        for part in (row, row.get("args", {})):
            if part and rng.random() < 0.7:
                del part[rng.choice(list(part))]
    return text(rows)


def blown_up(rows: Rows, rng: random.Random) -> bytes:
    rows = copy.deepcopy(rows)
    for row in rng.sample(rows, min(len(rows), 3)):
        part = rng.choice([row, row.get("args") or row])
        part[rng.choice(list(part))] = rng.choice(HUGE)
    return text(rows)


def late(rows: Rows, rng: random.Random) -> bytes:
    """Stamps and lengths that are numbers, and wrong."""
    rows = copy.deepcopy(rows)
    for row in rng.sample(rows, min(len(rows), 4)):
        key = rng.choice([k for k in ("ts", "dur") if k in row])
        row[key] = row[key] + rng.choice((-1, 1)) * 10 ** rng.uniform(0, 14)
    return text(rows)


def shuffled(rows: Rows, rng: random.Random) -> bytes:
    rows = copy.deepcopy(rows) + copy.deepcopy(rng.sample(rows, len(rows) // 2))
    rng.shuffle(rows)
    return text(rows)


def renamed(rows: Rows, rng: random.Random) -> bytes:
    """Categories, names, threads and devices that belong to others."""
    rows = copy.deepcopy(rows)
    for row in rows:
        if rng.random() < 0.3:
            other = rng.choice(rows)
            key = rng.choice(["cat", "name", "pid", "tid", "ph"])
            if key in other:
                row[key] = other[key]
    return text(rows)


def mixed_types(rows: Rows, rng: random.Random) -> bytes:
    data = text(rows)
    for old, new in (
        (b'"X"', b"5"),
        (b'"args": {', b'"args": ['),
        (b'"traceEvents": [', b'"traceEvents": {'),
        (b'"rank": 0', b'"rank": [1]'),
    ):
        if rng.random() < 0.5:
            data = data.replace(old, new, rng.randint(1, 3))
    return data


def unzipped_badly(rows: Rows, rng: random.Random) -> bytes:
    data = bytearray(gzip.compress(text(rows)))
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(2, len(data))] ^= 1 << rng.randrange(8)
    return bytes(data[: rng.randrange(len(data) // 2, len(data))])


DAMAGE: tuple[Callable[[Rows, random.Random], bytes], ...] = (
    flipped, cut, holed, dropped, blown_up, late, shuffled, renamed, mixed_types, unzipped_badly,
)  # fmt: skip


def check(result: Breakdown) -> None:
    """Every partition of every step sums to its wall time; the answer can be written as JSON, without numbers that are none."""
    for rank in result.ranks:
        clock = rank.steps[0].start_ns
        for step in rank.steps:
            step.check()
            assert step.buckets
            assert sum(step.buckets.values()) == sum(step.phases.values()) == step.wall_ns >= 0
            assert step.start_ns == clock
            clock += step.wall_ns
    json.dumps(to_json(result), allow_nan=False)
    assert all(h.count > 0 and h.text for h in result.health)
    for value in result.summary.values():
        assert not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda d: d.__name__)
def test_damaged_files_are_answered(tmp_path: Path, damage: Callable[[Rows, random.Random], bytes]) -> None:
    rng = random.Random(damage.__name__)
    makes = bases()
    answered = 0
    for i in range(SHARE):
        path = tmp_path / f"{i}.json"
        path.write_bytes(damage(list(makes.values())[i % len(makes)], rng))
        begin = time.process_time()
        try:
            result = explain([path])
        except TraceError as error:
            assert error.fix or error.where
            continue
        finally:
            assert time.process_time() - begin < MOST_S
        check(result)
        answered += 1
    assert answered > (0 if damage is mixed_types else SHARE // 5)


def test_a_number_of_any_size_anywhere(tmp_path: Path) -> None:
    """Every field of every make's events, one at a time, as large as it gets."""
    for name, rows in bases().items():
        fields = {(part, key) for row in rows for part in ("event", "args") for key in (row if part == "event" else row.get("args", {}))}
        for part, key in sorted(fields):
            changed = copy.deepcopy(rows)
            for row in changed:
                where = row if part == "event" else row.get("args", {})
                if key in where:
                    where[key] = 10**18 if key in ("ts", "dur") else 2**62 + 1
            path = tmp_path / f"{name}.json"
            path.write_bytes(text(changed))
            try:
                check(explain([path]))
            except TraceError:
                continue


def test_the_sound_ones_are_sound(tmp_path: Path) -> None:
    for name, rows in bases().items():
        path = tmp_path / f"{name}.json"
        path.write_bytes(text(rows))
        result = explain([path])
        check(result)
        assert not {h.what for h in result.health} & {"mended", "unreadable_events", "truncated", "unusable_time", "begin_end_events"}
