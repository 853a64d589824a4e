"""Ceilings of the machine: plausible, in their shape, within their time."""

from __future__ import annotations

import pytest
import torch

from headway.runtime import ceilings, stopwatch
from headway.runtime.ceilings import BUDGET_S


@pytest.mark.alone
def test_memory_is_measured_within_its_budget() -> None:
    import time

    start = time.process_time()
    found = ceilings.ceilings("cpu", {"fp32": 1e11}, "measured: here")
    assert time.process_time() - start < 0.5 + 2 * BUDGET_S
    assert 1e8 < found["memory_bytes_s"] <= found["cache_bytes_s"] < 1e13
    assert found["flops"] == {"fp32": 1e11} and found["source"].startswith("measured: here; memory by copies of 64 MiB")


def test_a_copy_moves_its_bytes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "BUDGET_S", 0.0)
    monkeypatch.setattr(stopwatch, "cpu_seconds", lambda run: 0.5)
    assert ceilings._copied(8 << 20, torch.device("cpu")) == 2 * (8 << 20) / 0.5
    assert ceilings._copied(1 << 20, torch.device("cpu")) == 2 * (1 << 20) * 4 / 0.5, "several small copies are timed together"
