from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.spec.breakdown import SCHEMA, Breakdown, Health, RankBreakdown, StepBreakdown, add, group, to_json
from headway.spec.codec import decode
from headway.spec.finding import Finding

STEP = StepBreakdown(
    step=3,
    start_ns=100,
    wall_ns=60,
    buckets={"compute.gemm": 30, "comm.all_reduce.dp_shard.wait": 10, "idle.input": 20},
    phases={"forward": 40, "input": 20},
)


def test_a_step_that_adds_up_passes() -> None:
    STEP.check()
    replace(STEP, buckets={}, modules={"blocks.0": 60}).check()  # not profiled: phases alone


@pytest.mark.parametrize(
    "change",
    [
        {"buckets": {"compute.gemm": 59}},
        {"phases": {"forward": 61}},
        {"modules": {"a": 70, "b": -10}},
        {"wall_ns": 59},
    ],
    ids=str,
)
def test_a_step_that_does_not_add_up_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="of step 3 sum to"):
        replace(STEP, **change).check()


parts = st.dictionaries(st.sampled_from(["compute.gemm", "compute.norm", "comm.all_gather.tp.unsplit", "idle.gc"]), st.integers(0, 1 << 60))


@given(st.lists(parts, max_size=5))
def test_adding_and_grouping_keep_the_sum(tables: list[dict[str, int]]) -> None:
    total = sum(sum(t.values()) for t in tables)
    assert sum(add(list(tables)).values()) == total
    assert sum(group(add(list(tables))).values()) == total
    assert set(group(add(list(tables)))) <= {"compute", "comm", "copy", "idle"}


def test_json_carries_the_schema_and_comes_back() -> None:
    whole = Breakdown(
        ranks=(RankBreakdown(rank=0, device="cuda:0", steps=(STEP,), source="a.json"),),
        health=(Health(what="clock", count=2, rank=0),),
        summary={"steps": 1},
        findings=(Finding(what="slow input", bucket="idle.input", recoverable_ns=20, confidence=0.9, patch={"data.workers": 2}),),
    )
    data = json.loads(json.dumps(to_json(whole)))
    assert data.pop("schema") == SCHEMA
    assert decode(Breakdown, data) == whole
    assert set(data["ranks"][0]["steps"][0]) >= {"step", "start_ns", "wall_ns", "buckets", "phases", "hidden_comm_ns"}
