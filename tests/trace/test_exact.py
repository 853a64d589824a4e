"""To the nanosecond: the windows, the busy time and the sums by head of every real trace equal those of a plain walk over its events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.spec.breakdown import group
from headway.spec.errors import TraceError
from headway.trace.classify import is_collective
from headway.trace.explain import explain
from headway.trace.read.kineto import read
from headway.trace.sweep import covered, measure, union
from headway.trace.table import DEVICE_WORK, Kind
from tests.trace import brute
from tests.trace.test_files import BIG, NOT_TRACES, files
from tests.trace.test_sums import traces

REFUSED = ("impossible_duration", "unusable_time", "far_time")  # the brute force believes everything


def compare(path: Path, events: list[dict[str, Any]]) -> bool:
    """Hold our answer against the plain walk; whether there is anything to compare."""
    work = brute.spans(events)
    result = explain([path])
    if not work or any(h.what in REFUSED for h in result.health):
        return False
    for rank in result.ranks:
        mine = [s for s in work if s.device == int(rank.device.rpartition(":")[2])]
        expected = brute.windows(events, mine)
        assert [(s.start_ns, s.start_ns + s.wall_ns) for s in rank.steps] == expected
        for step, (begin, end) in zip(rank.steps, expected, strict=True):
            assert {h: n for h, n in group(step.buckets).items() if n} == brute.heads(mine, begin, end)
            for parts in (step.buckets, step.phases, step.modules or step.phases, step.graphs or step.phases):
                assert sum(parts.values()) == end - begin
    return True


def verified(path: Path) -> bool:
    if path.name.startswith(NOT_TRACES):
        return False
    try:
        events = brute.load(path)
    except ValueError:
        return False  # not sound: its own tests say what is read of it
    return compare(path, events)


def test_every_file(shared: Path) -> None:
    assert sum(verified(p) for p in files(shared) if p.stat().st_size < BIG) > 50


@pytest.mark.slow
def test_every_large_file(shared: Path) -> None:
    assert sum(verified(p) for p in files(shared) if p.stat().st_size >= BIG) > 3


@given(traces(gpu=True))
def test_any_events(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.mktemp("exact") / "t.json"
    path.write_text(json.dumps({"traceEvents": rows}))
    compare(path, brute.load(path))


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**5)), min_size=1, max_size=30))
def test_nanoseconds_survive(tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]]) -> None:
    """Stamps of single nanoseconds after 2024: busy time is what integers give."""
    base = 1_712_195_495_519_689_047
    text = ", ".join(
        f'{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": {i}, "ts": {(base + a) // 1000}.{(base + a) % 1000:03d}, '
        f'"dur": {n // 1000}.{n % 1000:03d}, "args": {{"stream": {i}, "device": 0}}}}'
        for i, (a, n) in enumerate(spans)
    )
    path = tmp_path_factory.mktemp("exact") / "t.json"
    path.write_text(f'{{"traceEvents": [{text}]}}')
    covered, reach = 0, 0
    for a, b in sorted((a, a + n) for a, n in spans):
        covered += max(0, b - max(a, reach))
        reach = max(reach, b)
    (step,) = explain([path]).ranks[0].steps
    assert group(step.buckets).get("compute", 0) == covered


# ---- against a peer where the peer is exact ----


def test_eight_ranks_of_dlrm_as_the_peer_counts_them(shared: Path) -> None:
    """Whole microseconds and one step: what HolisticTraceAnalysis 0.5.0 gives for idle, compute, the rest and the overlap."""
    told = json.loads((shared / "traces" / "peer_outputs" / "hta" / "dlrm_8rank_v100.json").read_text())
    overlap = {row["rank"]: row["comp_comm_overlap_pctg"] for row in told["comm_comp_overlap"]}
    for row in told["temporal_breakdown"]:
        path = shared / "traces" / told["files"][str(row["rank"])]
        table = read(path)
        work, kernels = table.rows(*DEVICE_WORK), table.rows(Kind.KERNEL)
        comm = table.named(is_collective)[kernels]
        sets = {
            "work": union(table.start[work], table.end[work]),
            "compute": union(table.start[kernels[~comm]], table.end[kernels[~comm]]),
            "comm": union(table.start[kernels[comm]], table.end[kernels[comm]]),
        }
        span = int(table.end[work].max() - table.start[work].min())
        busy, compute = measure(sets["work"]), measure(sets["compute"])
        assert span == row["kernel_time(us)"] * 1000
        assert span - busy == row["idle_time(us)"] * 1000
        assert compute == row["compute_time(us)"] * 1000
        assert busy - compute == row["non_compute_time(us)"] * 1000
        begin, end = (covered(sets["compute"], side) for side in sets["comm"])
        assert round(100 * (end - begin).sum() / measure(sets["comm"]), 2) == overlap[row["rank"]]
        (step,) = explain([path]).ranks[0].steps
        assert step.wall_ns - group(step.buckets)["idle"] == busy  # and the step holds all of it
        refused = [h for h in explain([path]).health if h.what in REFUSED]
        assert not refused


def test_what_is_no_trace_is_refused(shared: Path) -> None:
    for path in files(shared):
        if path.name.startswith(NOT_TRACES):
            with pytest.raises(TraceError, match="not a trace"):
                explain([path])
