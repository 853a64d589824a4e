"""Peaks: published ones by name, measured ones within the budget."""

from __future__ import annotations

import time

import pytest
import torch

from headway.runtime import peak
from headway.runtime.peak import peak_flops
from headway.spec.errors import SpecError


def test_published_peaks() -> None:
    value, source = peak_flops("h200", "cuda", "bf16")
    assert value == 989.4e12 and source.startswith("h200 bf16: NVIDIA H200")
    assert peak_flops("a100", "cpu", "fp32")[0] == 19.5e12


def test_fp32_means_tf32_where_torch_may_use_it() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert peak_flops("a100", "cuda", "fp32")[0] == 156e12
        assert peak_flops("mi300x", "cuda", "fp32")[0] == 163.4e12  # has no TF32
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("name", "compute", "message"),
    [("b200", "fp64", "b200: no published figure for fp64"), ("h900", "bf16", "'h900' is not known. Use measured or one of v100")],
)
def test_refusals(name: str, compute: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        peak_flops(name, "cpu", compute)


@pytest.mark.parametrize("compute", ["fp32", "fp64", "bf16"])
def test_measured_within_its_budget(compute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "BUDGET_S", 0.05)
    state, start = torch.get_rng_state(), time.process_time()
    value, source = peak_flops("measured", "cpu", compute)
    assert time.process_time() - start < 0.5
    assert 1e8 < value < 1e14 and source.startswith(f"measured: {compute} matmul of edge ")
    assert source.endswith(f"on cpu, {torch.get_num_threads()} threads")
    assert torch.equal(torch.get_rng_state(), state)


def test_the_best_edge_counts_and_slow_devices_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    edges: list[int] = []
    cost = {512: 2e-3, 1024: 0.01, 2048: 0.2}  # a device that is best at 1024

    def seconds(a: torch.Tensor) -> float:
        edges.append(len(a))
        return cost[len(a)]

    monkeypatch.setattr(peak, "_seconds", seconds)
    value, source = peak_flops("measured", "cpu", "fp32")
    assert value == 2 * 1024**3 / 0.01 and "edge 1024" in source
    assert max(edges) == 1024 and sum(map(cost.__getitem__, edges)) < 0.4, "2048 would not fit the budget"


def test_one_slow_try_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def seconds(a: torch.Tensor) -> float:  # the first timed try meets a pause of the machine
        tries.append(len(a))
        return 0.05 if len(tries) == 2 else 2 * len(a) ** 3 / 200e9

    monkeypatch.setattr(peak, "_seconds", seconds)
    assert peak_flops("measured", "cpu", "fp32")[0] == pytest.approx(200e9)
    assert max(tries) > 512
