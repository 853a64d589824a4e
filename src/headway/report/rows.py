"""A `Breakdown` reduced to the rows that are drawn: pure data, the same for the terminal and the page.

A value of a row is the mean over all rows (steps of all devices) that carry the partition, so a column adds up to the mean wall
time: sum over buckets of (total_ns / n) = total wall_ns / n.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from headway.spec.breakdown import Breakdown, Health, RankBreakdown, StepBreakdown, add
from headway.spec.event import PHASES
from headway.spec.finding import Finding
from headway.spec.health import withheld

Kind = Literal["buckets", "phases", "modules"]
KINDS: Final[tuple[Kind, ...]] = ("buckets", "phases", "modules")
HEADS: Final = ("compute", "comm", "copy", "idle")
SAME_HEALTH: Final = 2  # lines of one kind; more of them become one
RANK_COLUMNS: Final = 4  # a column a rank up to here, then least, median and largest
_ROUNDING: Final = 0.02  # of a bucket: a gain that is larger by less is the bucket's own


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: a head (depth 0) or a part of it (depth 1)."""

    name: str  # whole name: comm.all_reduce.dp_shard.wait
    label: str  # without its head: all_reduce.dp_shard.wait
    depth: int
    total_ns: int  # over all steps of all devices
    rank_ns: tuple[float, ...]  # mean per step of each device
    withheld: bool = False  # a doubt forbids to show it


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One exact partition of the steps that carry it."""

    kind: Kind
    rows: tuple[Row, ...]
    wall_ns: int  # over all steps that carry it
    num_steps: int  # rows (rank, step) that carry it
    ranks: tuple[str, ...]  # labels of the devices that carry it
    rank_wall_ns: tuple[float, ...]  # mean wall time of each device

    @property
    def mean_wall_ns(self) -> float:
        """Mean wall time of a step."""
        return self.wall_ns / self.num_steps if self.num_steps else 0.0

    def mean_ns(self, row: Row) -> float:
        """Mean time of `row` in a step."""
        return row.total_ns / self.num_steps if self.num_steps else 0.0


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The first line of a report. None means that the input does not say."""

    num_ranks: int
    num_steps: int  # distinct step numbers
    num_profiled: int  # distinct steps with buckets
    median_ns: float | None
    p95_ns: float | None
    mfu: float | None
    hfu: float | None  # with recomputation; None where it is the MFU
    samples_s: float | None
    warmup: tuple[int, ...]  # steps that took far longer at the start; they count like any other


def headline(breakdown: Breakdown) -> Headline:
    """Counts, step time, MFU and samples/s. `summary` may hold "mfu", "samples_s" and "warmup_steps"; MFU is else the median over steps."""
    steps = [s for r in breakdown.ranks for s in r.steps]
    walls = [s.wall_ns for s in steps]
    mfus = [s.mfu for s in steps if s.mfu is not None]
    mfu = _scalar(breakdown.summary.get("mfu")) or (statistics.median(mfus) if mfus else None)
    hfu = _scalar(breakdown.summary.get("hfu"))
    return Headline(
        num_ranks=len(breakdown.ranks),
        num_steps=len({s.step for s in steps}),
        num_profiled=len({s.step for s in steps if s.buckets}),
        median_ns=statistics.median(walls) if walls else None,
        p95_ns=quantile(walls, 0.95) if walls else None,
        mfu=mfu,
        hfu=hfu if hfu is not None and mfu is not None and hfu > 1.001 * mfu else None,
        samples_s=_scalar(breakdown.summary.get("samples_s")),
        warmup=tuple(breakdown.summary.get("warmup_steps") or ()),
    )


def quantile(values: Sequence[float], q: float) -> float:
    """The nearest-rank quantile: an observed value, never an interpolated one."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def partition(breakdown: Breakdown, kind: Kind, *, limit: int | None = None) -> Partition:
    """The table of one partition. `limit` keeps the largest names and folds the others into one row, so that sums stay exact."""
    devices = [(label, steps) for label, r in labelled(breakdown) if (steps := [s for s in r.steps if getattr(s, kind)])]
    tables = [add([getattr(s, kind) for s in steps]) for _, steps in devices]
    folded = fold(totals(breakdown, kind), limit)
    rows: list[Row] = []
    for head, members in _grouped(kind, list(folded)):
        if kind == "buckets":
            rows.append(_row(head, head, 0, [m for n in members for m in folded[n]], devices, tables))
        depth = 1 if kind == "buckets" else 0
        rows += [_row(n, _label(kind, n), depth, folded[n], devices, tables) for n in members if kind != "buckets" or members != [head]]
    if kind == "buckets":
        rows = [replace(row, withheld=withheld(breakdown.health, row.name) is not None) for row in rows]
    return Partition(
        kind=kind,
        rows=tuple(rows),
        wall_ns=sum(s.wall_ns for _, steps in devices for s in steps),
        num_steps=sum(len(steps) for _, steps in devices),
        ranks=tuple(label for label, _ in devices),
        rank_wall_ns=tuple(sum(s.wall_ns for s in steps) / len(steps) for _, steps in devices),
    )


def labelled(breakdown: Breakdown) -> list[tuple[str, RankBreakdown]]:
    """Every device with a short label: r0, or r0 cuda:1 where a rank has several."""
    seen = [r.rank for r in breakdown.ranks]
    return [(f"r{r.rank}" if seen.count(r.rank) == 1 else f"r{r.rank} {r.device}", r) for r in breakdown.ranks]


def totals(breakdown: Breakdown, kind: Kind) -> dict[str, int]:
    """Name -> ns over all steps, in the order of a table: buckets by head, then by size; phases as a step runs; modules by size."""
    sums = add([getattr(s, kind) for r in breakdown.ranks for s in r.steps])
    place = {name: i for i, name in enumerate(PHASES if kind == "phases" else HEADS)}
    first: Mapping[Kind, Callable[[str], tuple[int, str]]] = {
        "buckets": lambda n: (place.get(head_of(n), len(place)), head_of(n)),
        "phases": lambda n: (place.get(n, len(place)), ""),
        "modules": lambda n: (0, ""),
    }
    return {n: sums[n] for n in sorted(sums, key=lambda n: (*first[kind](n), -sums[n], n))}


def fold(sums: Mapping[str, int], limit: int | None) -> dict[str, list[str]]:
    """Shown name -> the names it stands for, in the order of `sums`; beyond `limit` the smallest become "(N smaller)", the last."""
    if limit is None or len(sums) <= limit:
        return {n: [n] for n in sums}
    kept = set(sorted(sums, key=lambda n: -sums[n])[: limit - 1])
    rest = [n for n in sums if n not in kept]
    label = f"({len(rest)} smaller)"
    while label in kept:
        label += "*"
    return {n: [n] for n in sums if n in kept} | {label: rest}


def hidden(breakdown: Breakdown) -> dict[str, float]:
    """Communication under compute by axis: mean ns per profiled step."""
    steps = [s for r in breakdown.ranks for s in r.steps if s.buckets]
    return {axis: ns / len(steps) for axis, ns in sorted(add([s.hidden_comm_by_axis_ns for s in steps]).items())}


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective on one axis: means per profiled step, and bytes over busy time. None means that the input does not say."""

    name: str
    axis: str
    count: float
    num_bytes: float | None
    busy_ns: float
    bus_bytes_s: float | None  # time-weighted over steps


def collectives(breakdown: Breakdown) -> list[Collective]:
    """The collectives of all steps, the busiest first. An entry of `StepBreakdown.comm` names itself by "collective" and "axis"."""
    steps = [s for r in breakdown.ranks for s in r.steps if s.buckets]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for s in steps:
        for entry in s.comm:
            groups.setdefault((str(entry.get("collective", "?")), str(entry.get("axis", "?"))), []).append(entry)
    out = [_collective(name, axis, entries, len(steps)) for (name, axis), entries in groups.items()]
    return sorted(out, key=lambda c: -c.busy_ns)


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Findings by the time they win back: the order of their numbers."""
    return sorted(findings, key=lambda f: -f.recoverable_ns)


def beyond(f: Finding) -> float | None:
    """Nanoseconds in the bucket of a finding that wins more than it holds, of what waits for it too; None for any other."""
    return f.bucket_ns if f.bucket_ns is not None and f.recoverable_ns > (1 + _ROUNDING) * f.bucket_ns else None


def health_lines(breakdown: Breakdown) -> list[str]:
    """A line for each entry; what several ranks have in common is one line with the worst of them."""
    groups: dict[str, list[Health]] = {}
    for item in breakdown.health:
        groups.setdefault(item.what, []).append(item)
    lines = []
    for items in groups.values():
        worst = max(items, key=lambda h: h.count)
        ranks = {h.rank for h in items}
        many = len(items) > SAME_HEALTH and worst.rank is not None
        lines += [f"{len(ranks)} ranks; the worst is {_health(worst)}"] if many else [_health(h) for h in items]
    return lines


def warmup_text(steps: Sequence[int]) -> str:
    """What to say of warm-up steps."""
    names = ", ".join(map(str, steps[:5])) + (" and more" if len(steps) > 5 else "")
    return f"step{'s' * (len(steps) != 1)} {names} took far longer than the others (warm-up); counted like any other"


def _health(item: Health) -> str:
    where = f"rank {item.rank}: " if item.rank is not None else ""
    times = f" ({item.count:,})" if item.count != 1 else ""
    affects = f"; affects {item.affects}" if item.affects else ""
    text = item.text or item.what.replace("_", " ")
    names = sorted({f"{head_of(w)}.*" if len(item.withholds) > SAME_HEALTH else w.replace("_", " ") for w in item.withholds})
    hides = f"; not shown: {', '.join(names)}" if names else ""
    return f"{where}{text.rstrip('.')}{times}{affects}{hides}"


def _collective(name: str, axis: str, entries: list[Mapping[str, Any]], num_steps: int) -> Collective:
    busy = [float(e.get("busy_ns") or 0) for e in entries]
    known = [(float(e["bus_bytes_s"]), ns) for e, ns in zip(entries, busy, strict=True) if e.get("bus_bytes_s") is not None]
    weight = sum(ns for _, ns in known)
    sizes = [float(e["bytes"]) for e in entries if e.get("bytes") is not None]
    return Collective(
        name=name,
        axis=axis,
        count=sum(float(e.get("count") or 0) for e in entries) / num_steps,
        num_bytes=sum(sizes) / num_steps if sizes else None,
        busy_ns=sum(busy) / num_steps,
        bus_bytes_s=sum(v * ns for v, ns in known) / weight if weight else None,
    )


def _row(
    name: str,
    label: str,
    depth: int,
    members: Sequence[str],
    devices: Sequence[tuple[str, list[StepBreakdown]]],
    tables: Sequence[Mapping[str, int]],
) -> Row:
    sums = [sum(t.get(m, 0) for m in members) for t in tables]
    means = tuple(ns / len(steps) for ns, (_, steps) in zip(sums, devices, strict=True))
    return Row(name=name, label=label, depth=depth, total_ns=sum(sums), rank_ns=means)


def _grouped(kind: Kind, names: Sequence[str]) -> list[tuple[str, list[str]]]:
    if kind != "buckets":
        return [("", list(names))]
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(head_of(name), []).append(name)
    return list(groups.items())


def head_of(name: str) -> str:
    """First word of a bucket."""
    return name.partition(".")[0]


def _label(kind: Kind, name: str) -> str:
    return name.partition(".")[2] or name if kind == "buckets" else name or "(no module)"


def _scalar(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
