"""A trace that torch.profiler writes here and now, with delays planted in it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headway.spec.event import MODULE_PREFIX, PHASE_PREFIX
from headway.trace.explain import explain

torch = pytest.importorskip("torch")

STEPS, PLANTED_S = 3, 0.02


def test_planted_delays_land_where_they_were_planted(tmp_path: Path) -> None:
    from torch.profiler import profile, record_function

    network = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
    optimizer = torch.optim.AdamW(network.parameters())
    with profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for step in range(STEPS):
            with record_function(f"ProfilerStep#{step + 40}"):
                with record_function(f"{PHASE_PREFIX}input"):
                    batch = torch.randn(256, 256)
                    time.sleep(PLANTED_S)
                with record_function(f"{PHASE_PREFIX}forward"), record_function(f"{MODULE_PREFIX}mlp"):
                    loss = network(batch).square().mean()
                with record_function(f"{PHASE_PREFIX}backward"):
                    loss.backward()
                with record_function(f"{PHASE_PREFIX}optimizer"):
                    optimizer.step()
                    time.sleep(2 * PLANTED_S)
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))

    (rank,) = explain([path]).ranks
    assert [s.step for s in rank.steps] == [40, 41, 42]
    for step in rank.steps:
        assert step.buckets["idle.input"] >= 0.95 * PLANTED_S * 1e9
        assert step.phases["input"] >= PLANTED_S * 1e9
        assert step.phases["optimizer"] >= 2 * PLANTED_S * 1e9
        assert step.buckets["idle.launch"] >= 0.95 * 2 * PLANTED_S * 1e9
        assert step.buckets["compute.gemm"] > 0  # addmm, though it calls views and a copy
        assert step.modules["mlp"] >= step.phases["forward"] * 0.9  # and its backward, by sequence number
        assert step.modules["mlp"] > step.phases["forward"]
