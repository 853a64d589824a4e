"""What a finding promises in a planted run, held against the steps beside the delayed ones."""

from __future__ import annotations

import dataclasses

import pytest

from headway.spec.breakdown import Breakdown, RankBreakdown, StepBreakdown
from headway.spec.finding import Finding
from headway.study import truth


def steps() -> RankBreakdown:
    rows = []
    for k in range(truth.WINDOW[0], truth.WINDOW[1] + 1):
        late = 150_000_000 * (k in truth.DELAYED)
        buckets = {"idle.input": late, "compute.gemm": 100_000_000}
        rows.append(StepBreakdown(step=k, start_ns=0, wall_ns=100_000_000 + late, buckets=buckets, phases={}))
    return RankBreakdown(rank=0, device="cpu", steps=tuple(rows))


def test_promised_against_measured() -> None:
    case = next(c for c in truth.CASES if c.alone)
    first = Finding(what="input", bucket="idle.input", recoverable_ns=70_000_000, confidence=0.9)
    found = truth.promised(case, Breakdown(ranks=(steps(),), findings=(first,)), steps())
    assert found["first_finding"] == "idle.input" and found["predicted_gain_ms"] == 70
    assert found["measured_gain_ms"] == pytest.approx(150 * len(truth.DELAYED) / len(steps().steps))
    assert truth.promised(case, Breakdown(ranks=(steps(),)), steps())["predicted_gain_ms"] == 0
    assert truth.promised(dataclasses.replace(case, alone=False), Breakdown(ranks=(steps(),)), steps()) == {}
