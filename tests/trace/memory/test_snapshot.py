"""Snapshots of all versions and in all wrappings read alike; what is broken in one is left out and counted, or is a TraceError."""

from __future__ import annotations

import gzip
import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.spec.errors import TraceError
from headway.spec.memory import MemoryBreakdown, to_json
from headway.trace.explain import explain
from headway.trace.memory.account import account
from headway.trace.read.file import read
from headway.trace.read.snapshot import histories
from tests.trace.memory.allocator import KB, MB, Recorder, frames
from tests.trace.memory.test_growth import train
from tests.trace.memory.test_pins import planted

Change = Callable[[dict[str, Any]], Any]


def of(data: Any) -> tuple[MemoryBreakdown, ...]:
    return tuple(account(h, 0) for h in histories(data, "test"))


def without(*keys: str) -> Change:
    """A snapshot of a version that does not write `keys` into events, segments or blocks."""

    def change(data: dict[str, Any]) -> dict[str, Any]:
        def strip(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [{k: v for k, v in row.items() if k not in keys} for row in rows]

        segments = [{**s, "blocks": strip(s["blocks"])} for s in strip(data["segments"])]
        return {**data, "segments": segments, "device_traces": [strip(t) for t in data["device_traces"]]}

    return change


@pytest.mark.parametrize("name", ["a.pickle", "a.pickle.gz", "a.json", "a.json.gz", "protocol2.pkl"])
def test_every_wrapping_gives_the_same(tmp_path: Path, name: str) -> None:
    data = planted().snapshot()
    raw = json.dumps(data).encode() if "json" in name else pickle.dumps(data, 2 if "2" in name else 4)
    path = tmp_path / name
    path.write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    (found,) = explain([path]).memory
    (expected,) = of(data)
    assert found.parts == expected.parts
    assert found.pins == expected.pins
    assert found.source == str(path)


@pytest.mark.parametrize(
    "change",
    [
        without("time_us"),  # 2.1
        without("segment_pool_id", "is_expandable", "frames", "stream"),
        without("requested_size", "allocated_size", "active_size"),
        lambda data: {k: v for k, v in data.items() if k != "allocator_settings"},
        lambda data: {
            **data,
            "segments": [{**s, "blocks": [{k: v for k, v in b.items() if k != "address"} for b in s["blocks"]]} for s in data["segments"]],
        },
        lambda data: {
            **data,
            "device_traces": [
                [{**e, "compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0), "new": [1]} for e in data["device_traces"][0]]
            ],
            "external_annotations": [],
        },
    ],
)
def test_every_version_gives_the_same_bytes(change: Change) -> None:
    (expected,), (found,) = of(planted().snapshot()), of(change(planted().snapshot()))
    assert (found.reserved_bytes, found.allocated_bytes, found.event) == (expected.reserved_bytes, expected.allocated_bytes, expected.event)
    assert [p.free_bytes for p in found.pins] == [p.free_bytes for p in expected.pins]


def test_a_snapshot_without_history_is_its_own_peak() -> None:
    data = planted().snapshot()
    (found,) = of({**data, "device_traces": [[]]})
    assert found.reserved_bytes == 80 * MB
    assert found.allocated_bytes == 42 * MB
    assert found.num_events == 0


def test_devices_are_told_apart() -> None:
    data, other = planted().snapshot(), train(1).snapshot()
    both = {
        "segments": data["segments"] + [{**s, "device": 2} for s in other["segments"]],
        "device_traces": [data["device_traces"][0], [], other["device_traces"][0]],
    }
    first, second = of(both)
    assert [first.device, second.device] == ["cuda:0", "cuda:2"]
    assert first.parts == of(data)[0].parts
    assert second.parts == of(other)[0].parts


def test_what_the_program_says_of_its_tensors_and_modules_is_believed() -> None:
    recorder = Recorder()
    loose = frames("train.py:3 main")
    weights = recorder.alloc(4 * MB, loose, "w")
    recorder.alloc(8 * MB, loose, "s")
    out = recorder.alloc(2 * MB, frames("model.py:3 forward"), "a")
    at = recorder.clock * 1000
    said = {
        "rank": 5, "device": 0, "named": [[weights.address + 512, MB, "parameters"], [weights.address + 9, 64, "optimizer"], [7, 7, "x"]],
        "modules": [[at - 5000, at + 5000, "blocks.3"]], "step_ends": [[41, at + 9000]],
    }  # fmt: skip
    (history,) = histories(recorder.snapshot(headway=said), "test")
    found = account(history, 0)
    assert history.rank == 5
    assert found.step == 41
    parts = {k: n for k, n in found.parts.items() if not k.startswith("fragmentation")}
    assert parts == {"parameters": 4 * MB, "unknown.frames": 8 * MB, "activations.blocks.3": 2 * MB}
    assert out.requested == 2 * MB


def test_modules_and_steps_from_annotations() -> None:
    recorder = Recorder()
    recorder.alloc(2 * MB, frames("model.py:3 forward"), "a")
    us = recorder.clock
    marks = [
        {"device": 0, "time_us": us - 3, "name": "headway::module::blocks.1", "stage": "START"},
        {"device": 0, "time_us": us + 3, "name": "headway::module::blocks.1", "stage": "END"},
        {"device": 0, "time_us": us + 5, "name": "ProfilerStep#12", "stage": "END"},
    ]
    (found,) = of(recorder.snapshot(external_annotations=marks))
    assert found.parts["activations.blocks.1"] == 2 * MB
    assert (found.step, found.steps_from) == (12, "the snapshot")


def test_requests_that_failed_are_told() -> None:
    data = planted().snapshot()
    data["device_traces"][0].append({"action": "oom", "device_free": 123, "size": 30 * MB, "stream": 0})
    (found,) = of(data)
    (failure,) = found.failures
    assert (failure.requested_bytes, failure.device_free_bytes) == (30 * MB, 123)
    assert (failure.reserved_bytes, failure.allocated_bytes) == (80 * MB, 42 * MB)
    assert failure.largest_free_bytes == 20 * MB, "38 MiB are free, but no 30 in one piece"


def test_rounding_to_powers_of_two_is_that_of_the_allocator() -> None:
    recorder = Recorder()
    block = recorder.alloc(5 * MB, frames("a.py:1 f"), "a")
    recorder.free(block)
    recorder.alloc(100, frames("a.py:2 f"), "a")
    settings = {"roundup_power2_divisions": {str(1 << i): 2 for i in range(16)}}
    (history,) = histories({**recorder.snapshot(), "allocator_settings": settings}, "test")
    assert account(history, 0).allocated_bytes == 6 * MB  # between 4 and 8 MiB in steps of 2


def test_a_run_folder_with_snapshots(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    for rank in (0, 3):
        data = train(rank).snapshot()
        (tmp_path / "traces" / f"memory000007.rank{rank}.pickle").write_bytes(pickle.dumps(data))
    row = {"kind": "step", "time_ns": 1, "step": 7, "samples": 8, "start_ns": 1, "wall_ns": 10, "phases": {"other": 10}}
    (tmp_path / "events.jsonl").write_text(json.dumps(row) + "\n")
    found = explain([tmp_path])
    assert [(m.rank, m.device, m.measured) for m in found.memory] == [(0, "cuda:0", "snapshot"), (3, "cuda:0", "snapshot")]
    assert len(found.ranks) == 1


def test_log_lines_tell_the_peak_and_its_growth(tmp_path: Path) -> None:
    def run(sizes: list[int]) -> MemoryBreakdown:
        step = {"kind": "step", "time_ns": 1, "step": 0, "samples": 8, "start_ns": 1, "wall_ns": 10, "phases": {"other": 10}}
        logs = [{"kind": "log", "time_ns": i + 1, "step": 10 * i, "samples": 80 * i, "memory_bytes": b} for i, b in enumerate(sizes)]
        (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, [step, *logs])) + "\n")
        (found,) = explain([tmp_path]).memory
        found.check()
        return found

    grown = run([10 * MB + i * 100 * KB for i in range(40)])
    assert grown.measured == "counters"
    assert grown.reserved_bytes == 10 * MB + 39 * 100 * KB
    assert grown.growth[0].slope == pytest.approx(10 * KB)
    assert not run([10 * MB] * 10 + [12 * MB] * 30).growth
    wrong = sum(bool(run(np.maximum.accumulate(np.random.default_rng(s).integers(MB, 2 * MB, 40)).tolist()).growth) for s in range(40))
    assert wrong <= 2


def test_json_holds_everything_and_sums(tmp_path: Path) -> None:
    (found,) = of(planted().snapshot())
    data = json.loads(json.dumps(to_json(found)))
    assert data["schema"] == "headway.memory/1"
    assert sum(data["parts"].values()) == data["reserved_bytes"] == 80 * MB


# ---- broken ----


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04}\x94\x8c\x08segmentsK\x01s.",
        b'{"segments": [',
        b'{"segments": []}',
        b'{"segments": {}, "device_traces": 7}',
        b"\x80\x04\x8c\x08segments.",
    ],
)
def test_what_holds_no_memory_is_a_trace_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(data)
    with pytest.raises(TraceError):
        read(path)


def test_a_cut_file_is_a_trace_error(tmp_path: Path) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(planted().snapshot())[:-200])
    with pytest.raises(TraceError, match="broken or cut"):
        read(path)


VALUES: list[Any] = [None, -1, 0, 1, 1 << 70, -(1 << 70), 1.5, float("nan"), "x", [], {}, True, (1, 2), 1 << 61]


def mutate(value: Any, rng: random.Random) -> Any:
    """`value` with about one in twenty of its parts dropped, doubled or replaced by anything."""
    if rng.random() < 0.004:
        return rng.choice(VALUES)
    if isinstance(value, dict):
        return {k: mutate(v, rng) for k, v in value.items() if rng.random() > 0.004}
    if isinstance(value, list):
        return [mutate(v, rng) for v in value for _ in range(1 if rng.random() > 0.01 else rng.choice([0, 2]))]
    return value


@pytest.mark.parametrize("seed", range(150))
def test_mutated_snapshots_never_crash_and_always_sum(seed: int) -> None:
    rng = random.Random(seed)
    recorder = planted() if seed % 2 else train(seed, steps=6)
    try:
        found = of(mutate(recorder.snapshot(), rng))
    except TraceError:
        return
    for memory in found:
        memory.check()
        json.dumps(to_json(memory), allow_nan=False)


@pytest.mark.parametrize("seed", range(150))
def test_flipped_bytes_never_crash(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(pickle.dumps(planted().snapshot()) if seed % 3 else json.dumps(planted().snapshot()).encode())
    for _ in range(rng.choice([1, 3, 20])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path = tmp_path / "a.pickle"
    path.write_bytes(bytes(data[: rng.randrange(len(data))]) if seed % 5 == 0 else bytes(data))
    try:
        found = explain([path])
    except TraceError:
        return
    for memory in found.memory:
        memory.check()
