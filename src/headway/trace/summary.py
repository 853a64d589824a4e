"""A breakdown in a few numbers: totals and medians over steps, shares, exposed communication, MFU, spread."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from headway.spec.breakdown import RankBreakdown, StepBreakdown, add, group

_SLOW_FIRST = 1.5  # a first step this much slower than the median of the others is marked as warm-up


def summarise(ranks: Sequence[RankBreakdown], world: int | None) -> dict[str, Any]:
    """The `summary` of a Breakdown. Nothing is left out of it: a warm-up step is named, not hidden. Times are nanoseconds."""
    steps = [s for r in ranks for s in r.steps]
    profiled = [s for s in steps if s.buckets]
    walls = [s.wall_ns for s in steps]
    total = sum(s.wall_ns for s in profiled)
    heads = group(add([s.buckets for s in profiled]))
    return {
        "world": world,
        "ranks": sorted({r.rank for r in ranks}),
        "devices": [f"{r.rank}:{r.device}" for r in ranks],
        "num_steps": len({s.step for s in steps}),
        "num_profiled": len({s.step for s in profiled}),
        "step_ns": _spread(walls),
        "profiled_step_ns": _spread([s.wall_ns for s in profiled]),
        "warmup_steps": _warmup(ranks),
        "wall_ns": total,
        "heads": {k: {"total_ns": v, "share": v / total} for k, v in sorted(heads.items(), key=lambda kv: -kv[1])} if total else {},
        "buckets": _parts([s.buckets for s in profiled], total),
        "phases": _parts([s.phases for s in steps], sum(walls)),
        "busy_share": 1 - heads.get("idle", 0) / total if total else None,
        "exposed_comm_ns": heads.get("comm", 0) if profiled else None,
        "exposed_comm_share": heads.get("comm", 0) / total if total else None,
        "hidden_comm_ns": sum(s.hidden_comm_ns for s in profiled),
        "hidden_comm_by_axis_ns": add([s.hidden_comm_by_axis_ns for s in profiled]),
        **_floors(profiled),
        "flops": _median([float(s.flops) for s in steps if s.flops is not None]),
        "mfu": _median([s.mfu for s in steps if s.mfu is not None]),
        "hfu": _median([s.hfu for s in steps if s.hfu is not None]),
    }


def _floors(steps: Sequence[StepBreakdown]) -> dict[str, Any]:
    """Floors and what is recoverable by compute class, summed over steps; how much of compute has a floor (null: no shapes)."""
    compute = sum(ns for s in steps for name, ns in s.buckets.items() if name.startswith("compute."))
    known = sum(sum(s.floors.values()) + sum(s.recoverable.values()) for s in steps)
    return {
        "floors": add([s.floors for s in steps]),
        "recoverable_ns": add([s.recoverable for s in steps]),
        "floor_coverage": known / compute if known and compute else None,
    }


def _parts(tables: Sequence[Mapping[str, int]], total: int) -> dict[str, dict[str, float]]:
    """name -> total over rows, median over rows (0 where a row has none), share of all; largest first."""
    sums = add(tables)
    return {
        name: {"total_ns": ns, "median_ns": statistics.median(t.get(name, 0) for t in tables), "share": ns / total if total else 0.0}
        for name, ns in sorted(sums.items(), key=lambda kv: (-kv[1], kv[0]))
    }


def _spread(walls: Sequence[int]) -> dict[str, float] | None:
    if not walls:
        return None
    ordered = sorted(walls)
    low, high = (ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in (0.1, 0.9))  # nearest rank: observed values
    return {"median": statistics.median(ordered), "p10": low, "p90": high, "min": ordered[0], "max": ordered[-1]}


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _warmup(ranks: Sequence[RankBreakdown]) -> list[int]:
    """First steps that took far longer than the others."""
    found = {r.steps[0].step for r in ranks if is_warmup(r.steps)}
    return sorted(found)


def is_warmup(steps: Sequence[StepBreakdown]) -> bool:
    """Whether the first of `steps` took more than 1.5 times the median of the others (of two or more)."""
    return len(steps) > 2 and steps[0].wall_ns > _SLOW_FIRST * statistics.median(s.wall_ns for s in steps[1:])
