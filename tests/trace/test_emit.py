"""Events as they are written: phases of a step sum to its wall time, whatever happens around it."""

from __future__ import annotations

import json
import time
from itertools import count, pairwise
from pathlib import Path

import pytest

from headway.trace.emit import Emitter
from headway.trace.events import read_events


def test_phases_sum_to_the_wall_and_nest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(0, 1_000)  # each look at the clock is a microsecond after the one before
    monkeypatch.setattr("headway.trace.emit.time.perf_counter_ns", lambda: next(clock))
    emit = Emitter(tmp_path / "events.jsonl")
    for step in range(3):
        emit.begin(step)
        with emit.phase("input"):
            pass
        with emit.phase("forward"), emit.phase("encode"):
            time.perf_counter_ns()
            time.perf_counter_ns()
        emit.end(samples=step)
    with emit.phase("checkpoint"):  # after the last step: in no step
        time.perf_counter_ns()
    emit.event("end")
    emit.flush()
    rows = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    steps = [r for r in rows if r["kind"] == "step"]
    for row in steps:
        assert sum(row["phases"].values()) == row["wall_ns"]
        assert set(row["phases"]) == {"other", "input", "forward", "encode"}
        assert (row["phases"]["encode"], row["phases"]["forward"]) == (3_000, 2_000), "time belongs to the innermost phase"
    for before, after in pairwise(steps):
        assert before["start_ns"] + before["wall_ns"] == after["start_ns"], "a step begins where the one before it ended"
    assert [s.step for s in read_events(tmp_path).steps[0]] == [0, 1, 2]


def test_a_disk_that_refuses_is_said_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    emit = Emitter(tmp_path / "file" / "events.jsonl")
    emit.event("run")
    emit.flush()
    assert "cannot be written" in emit.failed
    emit.event("end")
    emit.flush()
