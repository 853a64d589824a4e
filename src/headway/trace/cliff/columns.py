"""The steps of one rank as columns: wall time, phases, and what else the events say of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import StepBreakdown
from headway.spec.event import PHASES
from headway.trace.sweep import Ints

COUNTERS: Final = ("gc_ns", "compiles", "retries", "switches")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """One row a step, in order. Times are nanoseconds."""

    rank: int
    step: Ints
    wall: Ints
    phases: Mapping[str, Ints]
    counters: Mapping[str, Ints]
    shape: Ints  # code of the batch's shape
    shapes: tuple[str, ...]
    traced: NDArray[np.bool_]  # a profiler was open
    clock: NDArray[np.float64]  # MHz at the last log line; nan where none says

    def __len__(self) -> int:
        return len(self.step)


def columns(
    rank: int,
    steps: Sequence[StepBreakdown],
    notes: Mapping[int, Mapping[str, Any]],
    logs: Sequence[Mapping[str, Any]],
    first: frozenset[int],
) -> Columns:
    """The steps of `rank` without those in `first`, with which a process warms up."""
    rows = [s for s in steps if s.step not in first]
    said = [notes.get(s.step, {}) for s in steps]
    shape, shapes = _shapes([n.get("shape") for n in said])
    kept = np.array([s.step not in first for s in steps], bool)
    said = [n for n, keep in zip(said, kept.tolist(), strict=True) if keep]
    number = np.array([s.step for s in rows], np.int64)
    return Columns(
        rank=rank,
        step=number,
        wall=np.array([s.wall_ns for s in rows], np.int64),
        phases={p: np.array([s.phases.get(p, 0) for s in rows], np.int64) for p in PHASES},
        counters={c: np.array([_count(n.get(c)) for n in said], np.int64) for c in COUNTERS},
        shape=shape[kept] if len(kept) else shape,
        shapes=shapes,
        traced=np.array([n.get("traced") is True for n in said], bool),
        clock=_clock(number, logs),
    )


def _shapes(values: Sequence[Any]) -> tuple[Ints, tuple[str, ...]]:
    """Codes of the shapes; a step that says none has that of the step before."""
    codes: dict[str, int] = {"": 0}
    out, now = [], 0
    for value in values:
        if isinstance(value, str):
            now = codes.setdefault(value, len(codes))
        out.append(now)
    return np.array(out, np.int64), tuple(codes)


def _clock(step: Ints, logs: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """The clock that the first log line after each step says; logs count steps done, so the line of step k speaks of steps below k."""
    said = [(r.get("step"), r.get("clock_mhz")) for r in logs]
    lines = sorted((k, float(v)) for k, v in said if isinstance(k, int) and isinstance(v, (int, float)))
    if not lines:
        return np.full(len(step), np.nan)
    at, value = np.array([k for k, _ in lines]), np.array([v for _, v in lines])
    return np.asarray(value[np.minimum(np.searchsorted(at, step, side="right"), len(at) - 1)], np.float64)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else 0
