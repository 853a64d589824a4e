"""Cliffs of generated runs: each planted cause is found in its steps, on its rank, with what it cost; a calm run has none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.spec.cliff import Cliff
from headway.spec.event import events_file
from headway.trace.cliff.find import cliffs
from headway.trace.events import read_events

MS = 1_000_000
Row = dict[str, Any]


def write(
    path: Path, change: Callable[[int, int, Row], None], *, ranks: int = 2, steps: int = 300, seed: int = 0, clock: Any = None
) -> Path:
    """Events of steps of about 100 ms; `change(rank, step, row)` plants something. Ranks wait for the slowest in the backward."""
    rng = np.random.default_rng(seed)
    rows: list[list[Row]] = [[{"kind": "run", "time_ns": 0}] for _ in range(ranks)]
    for k in range(steps):
        made = []
        for r in range(ranks):
            phases = {"input": 2, "forward": 30, "backward": 60, "optimizer": 8}
            row: Row = {
                "kind": "step",
                "step": k,
                "phases": {p: int(ms * MS * (1 + 0.02 * rng.standard_normal())) for p, ms in phases.items()},
            }
            if k == 0:
                row["shape"] = "64x3x32x32"
                row["phases"]["forward"] += 900 * MS
            change(r, k, row)
            made.append(row)
        slowest = max(sum(row["phases"].values()) for row in made)
        for r, row in enumerate(made):
            row["phases"]["backward"] += slowest - sum(row["phases"].values())
            row |= {"wall_ns": slowest, "start_ns": k * 200 * MS, "time_ns": k}
            rows[r].append(row)
        if clock is not None and k % 10 == 9:
            rows[0].append({"kind": "log", "time_ns": k, "step": k + 1, "samples": k, "loss": 1.0, "clock_mhz": clock(k)})
    path.mkdir(exist_ok=True)
    for r in range(ranks):
        (path / events_file(r)).write_text("\n".join(map(json.dumps, rows[r])) + "\n")
    return path


def found(path: Path) -> tuple[Cliff, ...]:
    return cliffs(read_events(path))


def at(steps: set[int], rank: int, **more: int) -> Callable[[int, int, Row], None]:
    """Plants milliseconds in phases (or fields) of one rank in some steps."""

    def change(r: int, k: int, row: Row) -> None:
        if r == rank and k in steps:
            for name, ms in more.items():
                if name in ("gc_ns", "compiles", "retries", "switches"):
                    row[name] = ms * MS if name == "gc_ns" else ms
                else:
                    row["phases"][name] = row["phases"].get(name, 0) + ms * MS

    return change


SPIKES = {50, 120, 121, 250}


@pytest.mark.parametrize(
    ("cause", "plant"),
    [
        ("input", {"input": 150}),
        ("checkpoint", {"checkpoint": 400}),
        ("evaluate", {"evaluate": 400}),
        ("gc", {"forward": 200, "gc_ns": 195}),
        ("recompile", {"forward": 900, "compiles": 1}),
        ("allocator", {"backward": 120, "retries": 2}),
        ("machine", {"forward": 120, "switches": 300}),
        ("unknown", {"forward": 150}),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_spikes(tmp_path: Path, cause: str, plant: dict[str, int], rank: int) -> None:
    (cliff,) = found(write(tmp_path / "run", at(SPIKES, rank, **plant)))
    extra = sum(ms for name, ms in plant.items() if name in ("input", "checkpoint", "evaluate", "forward", "backward"))
    assert (cliff.kind, cliff.cause, set(cliff.steps)) == ("spike", cause, SPIKES)
    assert cliff.rank == rank or cause == "unknown"
    assert cliff.lost_ns == pytest.approx(len(SPIKES) * extra * MS, rel=0.05)


@pytest.mark.parametrize(
    ("cause", "plant"), [("input", {"input": 40}), ("unknown", {"forward": 40}), ("machine", {"forward": 40, "switches": 90})]
)
def test_shifts(tmp_path: Path, cause: str, plant: dict[str, int]) -> None:
    (cliff,) = found(write(tmp_path / "run", at(set(range(180, 300)), 1, **plant)))
    assert (cliff.kind, cliff.cause) == ("shift", cause)
    assert abs(cliff.steps[0] - 180) <= 1
    assert cliff.lost_ns == pytest.approx(120 * 40 * MS, rel=0.1)
    assert cliff.after_ns - cliff.before_ns == pytest.approx(40 * MS, rel=0.1)


def test_a_new_shape(tmp_path: Path) -> None:
    def change(r: int, k: int, row: Row) -> None:
        if k == 150:
            row["shape"] = "64x3x48x48"
        if k >= 150:
            row["phases"]["forward"] += 60 * MS

    (cliff,) = found(write(tmp_path / "run", change))
    assert (cliff.kind, cliff.cause) == ("shift", "shape")
    assert "64x3x48x48 instead of 64x3x32x32" in cliff.evidence[0]


def test_a_lower_clock(tmp_path: Path) -> None:
    def change(r: int, k: int, row: Row) -> None:
        if k >= 150:
            for phase in row["phases"]:
                row["phases"][phase] = int(row["phases"][phase] * 1.4)

    (cliff,) = found(write(tmp_path / "run", change, clock=lambda k: 1410 if k >= 150 else 1980))
    assert (cliff.kind, cliff.cause) == ("shift", "clocks")


def test_traced_steps_are_named_as_such(tmp_path: Path) -> None:
    def change(r: int, k: int, row: Row) -> None:
        if 40 <= k < 45:
            row["traced"] = True
            row["phases"]["forward"] += 120 * MS

    (cliff,) = found(write(tmp_path / "run", change))
    assert (cliff.cause, cliff.steps) == ("profiler", (40, 41, 42, 43, 44))


def test_regular_spikes_say_their_distance(tmp_path: Path) -> None:
    (cliff,) = found(write(tmp_path / "run", at(set(range(50, 300, 50)), 0, checkpoint=300)))
    assert "every 50 steps" in cliff.evidence


def test_a_calm_run_has_none(tmp_path: Path) -> None:
    assert [c for seed in range(10) for c in found(write(tmp_path / "run", lambda r, k, row: None, seed=seed))] == []


def test_a_resumed_run_warms_up_twice(tmp_path: Path) -> None:
    path = write(tmp_path / "run", at({150}, 0, forward=2000), ranks=1)
    rows = (path / "events.jsonl").read_text().splitlines()
    rows.insert(151, json.dumps({"kind": "run", "time_ns": 0}))
    (path / "events.jsonl").write_text("\n".join(rows) + "\n")
    assert found(path) == ()


@pytest.mark.parametrize("steps", [0, 1, 19])
def test_short_runs_say_nothing(tmp_path: Path, steps: int) -> None:
    assert found(write(tmp_path / "run", at({10}, 0, input=500), steps=steps)) == ()


def test_strange_fields_are_ignored(tmp_path: Path) -> None:
    def change(r: int, k: int, row: Row) -> None:
        row |= {"gc_ns": "much", "compiles": -3, "retries": True, "switches": 1 << 70, "shape": 7, "traced": "yes"}

    assert found(write(tmp_path / "run", change, clock=lambda k: "fast")) == ()
