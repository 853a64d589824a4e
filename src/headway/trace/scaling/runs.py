"""Ladders from runs and traces: each path is one size, a run folder, a trace or a folder of ranks."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from headway.spec.breakdown import Breakdown, add
from headway.spec.codec import decode
from headway.spec.errors import HeadwayError, TraceError
from headway.spec.field import IDENTITY, walk
from headway.spec.run import RunSpec
from headway.spec.scaling import Ladder, Point
from headway.stats.intervals import median_interval
from headway.trace.explain import explain
from headway.trace.gather import gather
from headway.trace.scaling.ladder import ladder

ENOUGH: Final = 5  # steps without a profiler, to leave the profiled ones out of the step time
_SIZE: Final = ("global_batch", "seed")  # identity fields that may differ between sizes of one configuration
Key = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Size:
    """One path: its configuration (empty without settings) and what was measured."""

    key: Key
    point: Point
    batch_known: bool


def ladders(paths: Sequence[str], *, strong: bool = False, begins: Callable[[str], None] = lambda path: None) -> list[Ladder]:
    """The ladders of `paths`, grouped by configuration. `strong`: sizes that do not say their batch had the same one (else each device
    the same samples). Raises TraceError if a path cannot be explained or has no steps, or two are the same.
    """
    twice = sorted({p for p in paths if [Path(q).resolve() for q in paths].count(Path(p).resolve()) > 1})
    if twice:
        raise TraceError("is given twice", where=twice[0], fix="Give each size once.")
    groups: dict[Key, list[Size]] = defaultdict(list)
    for path in paths:
        begins(path)
        size = measured(path, strong)
        groups[size.key].append(size)
    differing = _differing(list(groups))
    return [_ladder(key, sizes, differing, strong) for key, sizes in groups.items()]


def _ladder(key: Key, sizes: Sequence[Size], differing: Sequence[str], strong: bool) -> Ladder:
    said = dict(key)
    name = ", ".join(f"{n} {said[n]}" for n in differing if n in said) or ("traces" if not key else "runs")
    notes = []
    if not all(s.batch_known for s in sizes):
        taken = "the same batch at every size (--strong)" if strong else "the same samples on every device (else: --strong)"
        notes.append(f"no settings say the batch: taken as {taken}")
    return ladder(name, [s.point for s in sizes], notes=notes)


def measured(path: str, strong: bool = False) -> Size:
    """What one path says of its size. Raises TraceError."""
    given, found = gather([Path(path)]), explain([path])
    spec = _spec(given.spec)
    if not any(r.steps for r in found.ranks):
        raise TraceError("has no steps: nothing to scale", where=path, fix="Give a run folder, or a trace with steps.")
    devices = int(given.info.get("world") or found.summary.get("world") or len(found.ranks))
    batch = float(spec.global_batch) if spec else 1.0 if strong else float(devices)
    key = tuple((n, str(v)) for n, (v, kind, _) in walk(spec).items() if kind == IDENTITY and n not in _SIZE) if spec else ()
    return Size(key, point(found, devices, batch, path), spec is not None)


def point(found: Breakdown, devices: int, batch: float, source: str) -> Point:
    """One size: the median step, of those without a profiler if there are enough; buckets of the profiled ones."""
    walls = _walls(found, profiled=False)
    walls = walls if len(walls) >= ENOUGH else _walls(found, profiled=True) or walls
    profiled = [s for r in found.ranks for s in r.steps if s.buckets]
    sums = add([s.buckets for s in profiled])
    interval = median_interval(walls) if len(walls) > 1 else None
    mfu = found.summary.get("mfu")
    return Point(
        devices=devices,
        global_batch=batch,
        step=statistics.median(walls),
        interval=(interval.low, interval.high) if interval and np.isfinite((interval.low, interval.high)).all() else None,
        num_steps=len(walls),
        mfu=float(mfu) if isinstance(mfu, (int, float)) else None,
        buckets={name: ns / len(profiled) for name, ns in sums.items()},
        profiled=sum(s.wall_ns for s in profiled) / len(profiled) if profiled else None,
        source=source,
    )


def _walls(found: Breakdown, *, profiled: bool) -> list[float]:
    """Step times, a mean over devices each, without warm-up steps (unless there are no others)."""
    steps: dict[int, list[int]] = defaultdict(list)
    for rank in found.ranks:
        for step in rank.steps:
            if bool(step.buckets) == profiled:
                steps[step.step].append(step.wall_ns)
    warm = set(found.summary.get("warmup_steps") or ())
    kept = {k: v for k, v in steps.items() if k not in warm} or steps
    return [statistics.fmean(v) for v in kept.values()]


def _spec(data: Mapping[str, Any] | None) -> RunSpec | None:
    try:
        return decode(RunSpec, data, source="run.json") if data is not None else None
    except HeadwayError:
        return None  # of another version: its steps are as good


def _differing(keys: Sequence[Key]) -> list[str]:
    """Fields in which configurations differ."""
    values: dict[str, set[Any]] = defaultdict(set)
    for key in keys:
        for name, value in key:
            values[name].add(value)
    return [name for name, seen in values.items() if len(seen) > 1]
