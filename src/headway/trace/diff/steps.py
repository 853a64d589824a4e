"""Which steps of two breakdowns can be compared, and their tables as a series: a value a step, the mean over devices."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headway.spec.breakdown import Breakdown, StepBreakdown, add
from headway.spec.diff import Change, Verdict
from headway.stats.difference import Moments, apportion, mean_difference, moments

CONFIDENCE = 0.99  # of every interval of a diff: a table has twenty rows, and one in a hundred may be named by chance

Take = Callable[[StepBreakdown], Mapping[str, int]]


@dataclass(frozen=True)
class Steps:
    """Comparable steps: `rows[i]` is step i on every device. `left_out`: numbers of the steps that are not among them."""

    rows: tuple[tuple[StepBreakdown, ...], ...]
    left_out: tuple[int, ...] = ()

    @property
    def num(self) -> int:
        """Rows (steps of all devices)."""
        return sum(map(len, self.rows))

    def sums(self, take: Take) -> dict[str, int]:
        """Name -> sum over all rows."""
        return add([take(s) for row in self.rows for s in row])

    def moments(self, take: Take, name: str) -> Moments:
        """Of the time of `name` in a step, mean over devices, between steps."""
        return moments([sum(take(s).get(name, 0) for s in row) / len(row) for row in self.rows])


def wall(step: StepBreakdown) -> dict[str, int]:
    """The wall time as a table of one."""
    return {"step": step.wall_ns}


def traced(b: Breakdown) -> Steps:
    """Steps with buckets that every device has, less a first one that took far longer than all others."""
    return _common([[s for s in r.steps if s.buckets] for r in b.ranks])


def untraced(b: Breakdown, starts: frozenset[int] = frozenset()) -> Steps:
    """Steps that no profiler slowed: neither traced nor beside a traced one, nor the first of a process (`starts`)."""
    beside = {step for c in b.cliffs if c.cause == "profiler" for step in c.steps}
    return _common([[s for s in r.steps if not s.buckets and s.step not in starts | beside] for r in b.ranks])


def _common(devices: Sequence[Sequence[StepBreakdown]]) -> Steps:
    """By number where all devices share numbers, else by order."""
    devices = [d for d in devices if d]
    if not devices:
        return Steps(())
    tables = [{s.step: s for s in d} for d in devices]
    shared = sorted(set.intersection(*(set(t) for t in tables)))
    everything = {k for t in tables for k in t}
    rows = [tuple(t[k] for t in tables) for k in shared]
    if not rows:
        rows, everything = list(zip(*devices, strict=False)), set()
    kept = rows[1:] if _warms_up([statistics.fmean(s.wall_ns for s in row) for row in rows]) else rows
    return Steps(tuple(kept), tuple(sorted((everything - set(shared)) | {row[0].step for row in rows[: len(rows) - len(kept)]})))


def _warms_up(walls: Sequence[float]) -> bool:
    """Whether the first step stands as far above all others as they lie apart, and by a tenth of them, or took half as long again."""
    if len(walls) < 4:
        return len(walls) == 3 and walls[0] > 1.5 * max(walls[1:])
    rest = walls[1:]
    return walls[0] > max(max(rest) + (max(rest) - min(rest)), 1.1 * max(rest)) or walls[0] > 1.5 * statistics.median(rest)


def table(a: Steps, b: Steps, take: Take, forbidden: Callable[[str], bool] = lambda name: False) -> tuple[Change, ...]:
    """A row for each name, the largest difference first. Deltas add up to that of the total, to the nanosecond."""
    ours, theirs = a.sums(take), b.sums(take)
    names = sorted({*ours, *theirs})
    mean_a = dict(zip(names, apportion([ours.get(n, 0) for n in names], a.num), strict=True))
    mean_b = dict(zip(names, apportion([theirs.get(n, 0) for n in names], b.num), strict=True))
    rows = [
        change(n, mean_a[n], mean_b[n], a.moments(take, n), b.moments(take, n), withheld=forbidden(n))
        for n in names
        if mean_a[n] or mean_b[n]
    ]
    return tuple(sorted(rows, key=lambda c: (-abs(c.delta), -c.a, c.name)))


def change(name: str, a: int, b: int, spread_a: Moments, spread_b: Moments, *, withheld: bool = False) -> Change:
    """One row with its interval and verdict. The interval is drawn around the whole-number difference."""
    interval = mean_difference(spread_a, spread_b, confidence=CONFIDENCE)
    delta = b - a
    if interval is None:
        return Change(name=name, a=a, b=b, delta=delta, verdict="withheld" if withheld else "unknown" if delta else "same")
    half = round(interval.half_width)
    verdict: Verdict = "same" if delta == 0 and spread_a == spread_b else "real" if abs(delta) > half else "noise"
    return Change(name=name, a=a, b=b, delta=delta, low=delta - half, high=delta + half, verdict="withheld" if withheld else verdict)


def mean_interval(steps: Steps) -> tuple[int, int | None, int | None]:
    """Mean wall time and its interval."""
    at = apportion([steps.sums(wall).get("step", 0)], steps.num)[0]
    spread = steps.moments(wall, "step")
    half = spread.half_width(CONFIDENCE)
    return (at, None, None) if half is None else (at, at - round(half), at + round(half))
