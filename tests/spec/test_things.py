"""Hardware, events, graphs."""

from __future__ import annotations

import json

import pytest

from headway.spec import graph, hardware
from headway.spec.codec import decode
from headway.spec.event import PHASES, events_file, trace_file
from headway.spec.graph import Op, OpGraph


@pytest.mark.parametrize("name", hardware.DEVICES)
def test_a_device_is_plausible_and_says_its_source(name: str) -> None:
    device = hardware.DEVICES[name]
    assert len(device.source) > 10
    peaks = device.peak_flops
    assert 1e12 < device.memory_bytes_s < 5e13
    assert all(1e13 < flops < 5e16 for flops in peaks.values())
    narrowing = [peaks[f] for f in ("tf32", "bf16", "fp8", "fp4") if f in peaks]
    assert narrowing == sorted(narrowing), "fewer bits are never slower"
    assert "bf16" in peaks


def test_names_of_files() -> None:
    assert [events_file(0), events_file(12)] == ["events.jsonl", "events.rank12.jsonl"]
    assert trace_file(1, 20, 24) == "steps000020-000024.rank1.json.gz"
    assert sorted([trace_file(0, 100, 101), trace_file(0, 9, 10)])[0] == trace_file(0, 9, 10)


def test_phases_are_those_of_the_design() -> None:
    assert PHASES == ("input", "encode", "forward", "backward", "reduce", "clip", "optimizer", "ema", "checkpoint", "evaluate", "other")


def test_a_graph_counts_and_comes_back() -> None:
    op = Op(kind="gemm", name="aten.mm", phase="forward", module="blocks.0", shapes=((4, 8), (8, 2)), flops=128, bytes=320)
    whole = OpGraph(ops=(op, op), batch=4, num_parameters=16, saved_bytes={"blocks.0": 64}, axes={"w": ("embed", "mlp")})
    assert (whole.flops, whole.flops_per_sample) == (256, 64.0)
    data = json.loads(json.dumps(graph.to_json(whole)))
    assert (data.pop("schema"), data.pop("flops")) == (graph.SCHEMA, 256)
    assert decode(OpGraph, data) == whole
