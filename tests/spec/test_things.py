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
    assert 5e11 < device.memory_bytes_s < 5e13
    assert all(5e12 < flops < 5e16 for flops in peaks.values())
    narrowing = [peaks[f] for f in ("tf32", "bf16", "fp8", "fp4") if f in peaks]
    assert narrowing == sorted(narrowing), "fewer bits are never slower"
    assert "fp16" in peaks or "bf16" in peaks


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Tesla V100-SXM2-32GB", "v100"), ("Tesla V100-PCIE-32GB", "v100-pcie"), ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100-pcie"), ("NVIDIA H200", "h200"),
        ("NVIDIA B200", "b200"), ("NVIDIA GB200", "gb200"), ("AMD Instinct MI210", "mi210"), ("AMD Instinct MI250X", "mi250"),
        ("AMD Instinct MI300X", "mi300x"), ("AMD Instinct MI325X", "mi325x"),
    ],
)  # fmt: skip
def test_a_device_is_found_by_the_name_it_has_in_a_trace(said: str, name: str) -> None:
    assert hardware.find(said) is hardware.DEVICES[name]
    ceilings = hardware.published(said)
    assert ceilings is not None and "data sheet" in ceilings.source


def test_a_device_that_is_not_in_the_table_is_unknown() -> None:
    assert hardware.find("NVIDIA GeForce GTX 1650") is None and hardware.published("") is None


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
