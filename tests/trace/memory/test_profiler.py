"""Memory events of Kineto traces: found in any order of keys, exact against a plain replay, attributed by phase, module and operator."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.trace.explain import explain
from headway.trace.memory.account import account
from headway.trace.memory.lives import allocated, lives
from headway.trace.part import of_table
from headway.trace.read.file import read

MIB = 1 << 20


def span(name: str, start: float, end: float, cat: str = "cpu_op", tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": start, "dur": end - start, "args": args}


def event(ts: float, size: int, address: int, total: int, reserved: int, *, tid: int = 1, kind: int = 1) -> dict[str, Any]:
    args = {"Total Reserved": reserved, "Total Allocated": total, "Bytes": size, "Device Id": 0, "Device Type": kind, "Addr": address}
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 9, "tid": tid, "ts": ts, "args": args}


def trace(*more: dict[str, Any]) -> dict[str, Any]:
    """One step: a forward in blocks.0, a backward on another thread, an optimizer."""
    spans = [
        span("ProfilerStep#4", 0, 1000, "user_annotation"),
        span("headway::phase::forward", 0, 300, "user_annotation"),
        span("headway::module::blocks.0", 10, 200, "user_annotation"),
        span("aten::linear", 20, 60),
        span("aten::addmm", 25, 55),
        span("aten::empty", 30, 40),
        span("headway::phase::backward", 300, 600, "user_annotation"),
        span("headway::phase::optimizer", 600, 900, "user_annotation"),
        span("k", 30, 90, "kernel", tid=7, stream=7, device=0),
    ]
    return {"traceEvents": [*spans, *more], "baseTimeNanoseconds": 10**18}


PLANTED = (
    event(35, 4 * MIB, 1000, 14 * MIB, 40 * MIB),  # 10 MiB from before
    event(400, 8 * MIB, 2000, 22 * MIB, 40 * MIB, tid=2),
    event(700, 2 * MIB, 3000, 24 * MIB, 40 * MIB),
    event(750, -5 * MIB, 77, 19 * MIB, 40 * MIB),  # one of those from before
    event(800, -4 * MIB, 1000, 15 * MIB, 40 * MIB),
    event(801, 64, 1, 64, 0, kind=0),  # host memory
)


def write(path: Path, data: dict[str, Any]) -> Path:
    path.write_bytes(gzip.compress(json.dumps(data).encode()) if path.suffix == ".gz" else json.dumps(data).encode())
    return path


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_the_peak_by_phase_module_and_operator(tmp_path: Path, name: str) -> None:
    (found,) = explain([write(tmp_path / name, trace(*PLANTED))]).memory
    assert (found.device, found.measured, found.step) == ("cuda:0", "profiler", None)
    assert (found.reserved_bytes, found.allocated_bytes) == (40 * MIB, 24 * MIB)
    assert found.parts == {
        "fragmentation.unseen": 16 * MIB,
        "unknown.before": 10 * MIB,
        "gradients": 8 * MIB,
        "activations.blocks.0": 4 * MIB,
        "optimizer": 2 * MIB,
    }
    assert found.time_ns == 10**18 + 700_000
    assert {h.where for h in found.held} >= {"blocks.0 aten::addmm"}


def test_the_host_is_shown_where_there_is_no_device(tmp_path: Path) -> None:
    data = trace(event(35, 4 * MIB, 1000, 4 * MIB, 0, kind=0))
    data["traceEvents"] = [e for e in data["traceEvents"] if e["name"] != "k"]
    (found,) = explain([write(tmp_path / "a.json", data)]).memory
    assert (found.device, found.reserved_bytes, found.parts) == ("cpu", 4 * MIB, {"activations.blocks.0": 4 * MIB})


def test_events_are_found_whatever_stands_around_them(tmp_path: Path) -> None:
    rows = [
        event(1.5, 512, 10, 512, 2048),
        {"args": {"Bytes": -512, "Addr": 10, "Device Type": 1, "Device Id": 3}, "name": "[memory]", "ts": 2, "ph": "i"},
        {"ph": "X", "name": "a [memory] b", "ts": 3, "dur": 1, "args": {}},
        {"ph": "i", "name": "[memory]", "ts": "N/A", "args": {"Bytes": 1}},
        {"ph": "i", "name": "[memory]", "ts": 4, "args": {"Bytes": "x"}},
        {"ph": "i", "name": "[memory]", "ts": 5},
    ]
    for text in (json.dumps(rows), json.dumps(rows, indent=2), json.dumps(rows)[:-1]):
        path = tmp_path / "t.json"
        path.write_text(f'{{"baseTimeNanoseconds": 7, "traceEvents": {text}}}')
        found = read(path).tables[0].allocations
        assert found is not None
        assert found.time.tolist() == [1507, 2007]
        assert found.size.tolist() == [512, -512]
        assert found.devices == ("cuda:0", "cuda:3")
    (table,) = read(write(tmp_path / "t.json", {"traceEvents": [span("[memory]", 1, 2)]})).tables
    assert table.allocations is None


REAL = (
    "facebookresearch_HTA/tests/data/df_index_resolver/df_index_resolver.json.gz",
    "AMD-AGI_TraceLens/tests/traces/h100/facebook_timesformer-base-finetuned-k400__1016002.json.gz",
    "AMD-AGI_TraceLens/tests/traces/h100/Falconsai_nsfw_image_detection__1016002.json.gz",
    "AMD-AGI_TraceLens/tests/traces/mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "pytorch_ao/trace.json",
)


@pytest.mark.parametrize("name", REAL)
def test_real_traces_sum_and_agree_with_a_plain_replay(shared: Path, name: str) -> None:
    (table,) = read(shared / "traces" / name).tables
    histories = of_table(table).memory
    for history in histories:
        account(history, 0).check()
        live: dict[int, int] = {}
        totals = []
        for size, address, given in zip(history.size.tolist(), history.address.tolist(), (history.action == 1).tolist(), strict=True):
            if given:
                live[address] = size
            else:
                live.pop(address, None)
            totals.append(sum(live.values()))
        known = allocated(lives(history), len(history))[1:]
        before = known - np.array(totals)  # what was freed here and given before
        assert (before >= 0).all() and (np.diff(before) <= 0).all()
        assert (known <= history.allocated).all()
    if name.startswith(("facebook", "AMD-AGI_TraceLens/tests/traces/h100", "pytorch_ao")):
        assert histories
