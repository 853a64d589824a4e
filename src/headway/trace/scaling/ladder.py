"""Which points are the same configuration at several sizes, and what stays equal on them: batch per device, or global batch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headway.spec.scaling import Kind, Point
from headway.trace.scaling.near import near, per_device
from headway.trace.scaling.repeats import as_of, mean
from headway.trace.scaling.repeats import notes as repeated

_DIFFERING: Final = 3  # settings that are named where two configurations differ
_STEEP: Final = 0.25  # how far the exponent of compute over size may be from 0 (weak) or -1 (strong)


@dataclass(frozen=True)
class Group:
    """Points of one ladder, smallest first, each size once; times and buckets are of a step of the ladder's batch (weak: per device)."""

    name: str
    kind: Kind
    why: str
    points: tuple[Point, ...]
    sources: tuple[tuple[str, ...], ...]  # of each size
    notes: tuple[str, ...] = ()


def ladders(points: Iterable[Point], kind: Kind | None = None) -> tuple[list[Group], list[str]]:
    """(ladders of two sizes or more, what is on none of them and why). `kind` says what no batch tells."""
    families: dict[tuple[object, ...], list[Point]] = {}
    for p in points:
        families.setdefault((p.family, tuple(sorted(p.configuration.items())), p.relative), []).append(p)
    largest: dict[str, list[Point]] = {}
    for members in families.values():
        if len(members) > len(largest.get(members[0].family, ())):
            largest[members[0].family] = members
    found: list[Group] = []
    apart: list[str] = []
    for members in families.values():
        if len({p.size for p in members}) < 2:
            apart.append(_one_size(members, largest[members[0].family]))
            continue
        mine, left = _of_family(members, kind)
        found += mine
        apart += left
    return _named(found), apart


def _one_size(points: Sequence[Point], others: Sequence[Point]) -> str:
    """That a configuration is there at one size only; and what keeps it from the `others` that share its name, if any do."""
    size = points[0].size
    text = f"{points[0].family}: one size only ({size} device{'s' * (size != 1)}; {_sources(points)})"
    if others is points:
        return text
    mine, theirs = points[0], others[0]
    keys = [
        k for k in dict.fromkeys((*mine.configuration, *theirs.configuration)) if mine.configuration.get(k) != theirs.configuration.get(k)
    ]
    said = [f"{k} is {_value(mine, k)}, there {_value(theirs, k)}" for k in keys[:_DIFFERING]]
    said += [f"{len(keys) - _DIFFERING} more differ"] if len(keys) > _DIFFERING else []
    said += ["its time is counted in another unit"] if mine.relative != theirs.relative else []
    return f"{text}; it is another configuration than {_sources(others[:1])}: {'; '.join(said)}"


def _value(p: Point, key: str) -> str:
    text = p.configuration.get(key, "")
    return (text if len(text) <= 60 else f"{text[:57]}...") or "not given"


def _of_family(points: Sequence[Point], kind: Kind | None) -> tuple[list[Group], list[str]]:
    if any(p.batch is None for p in points):
        told = kind or _by_compute(points)
        if told is None:
            text = (
                "no batch is known, and compute tells neither weak (constant) nor strong (1 / n) scaling; say --kind weak or --kind strong"
            )
            return [], [f"{points[0].family}: {text} ({_sources(points)})"]
        why = "as asked" if kind else "compute a step is constant" if told == "weak" else "compute a step falls as 1 / n"
        return [_group(points, told, why)], []
    groups = []
    if kind != "strong":
        groups += [_group(c, "weak", _why_weak(c)) for c in near(points)]
    if kind != "weak":
        groups += [_group(c, "strong", f"global batch {c[0].batch:.6g}") for c in _equal(points)]
    used = {source for g in groups for sources in g.sources for source in sources}
    if not groups:
        sizes = ", ".join(f"{p.size}: {p.batch:,.4g}" for p in sorted(points, key=lambda p: p.size))
        text = "neither the global batch nor the batch per device is equal at two sizes, so nothing can be compared"
        return [], [f"{points[0].family}: {text} (batch by size: {sizes})"]
    rest = [p for p in points if p.source not in used]
    return groups, [f"{points[0].family}: alone with its batch, on no ladder: {_sources(rest)}"] if rest else []


def _equal(points: Sequence[Point]) -> list[list[Point]]:
    """Points of two sizes or more with one global batch."""
    batches: dict[float, list[Point]] = {}
    for p in points:
        batches.setdefault(p.batch or 0.0, []).append(p)
    return [c for c in batches.values() if len({p.size for p in c}) > 1]


def _why_weak(points: Sequence[Point]) -> str:
    low, high = min(map(per_device, points)), max(map(per_device, points))
    if math.isclose(low, high):
        return f"batch per device {low:.6g}"
    return f"batch per device {low:.6g} to {high:.6g}, nearly equal: times are set right in proportion"


def _by_compute(points: Sequence[Point]) -> Kind | None:
    """By how compute of a step changes from the smallest to the largest size; None if it tells neither."""
    ends = [extreme(p.size for p in points) for extreme in (min, max)]
    first, last = (
        sum(ns for n, ns in mean([p for p in points if p.size == size]).buckets.items() if n.startswith("compute.")) for size in ends
    )
    if not first or not last:
        return None
    slope = math.log(last / first) / math.log(ends[1] / ends[0])
    return "weak" if abs(slope) <= _STEEP else "strong" if abs(slope + 1) <= _STEEP else None


def _group(points: Sequence[Point], kind: Kind, why: str) -> Group:
    """Each size once: several points of one are taken at their mean. Weak: times and buckets as of the batch per device of the smallest."""
    sizes: dict[int, list[Point]] = {}
    for p in sorted(points, key=lambda p: (p.size, p.source)):
        sizes.setdefault(p.size, []).append(p)
    smallest = sizes[min(sizes)][0]
    right = {size: [_set_right(p, smallest, kind) for p in members] for size, members in sizes.items()}
    rungs = [mean(members) for members in right.values()]
    notes = repeated([(size, [p.time for p in members]) for size, members in right.items()])
    micro = {p.micro_batch for p in rungs if p.micro_batch}
    if len(micro) > 1:
        notes.append(f"micro-batch changes with the size: {', '.join(f'{p.size}: {p.micro_batch}' for p in rungs)}")
    return Group(
        smallest.family, kind, why, tuple(rungs), tuple(tuple(p.source for p in members) for members in sizes.values()), tuple(notes)
    )


def _set_right(p: Point, smallest: Point, kind: Kind) -> Point:
    """A point of a weak ladder as of the batch per device of the smallest size."""
    if kind == "strong" or not p.batch or not smallest.batch:
        return p
    return as_of(p, per_device(smallest) * p.size, per_device(smallest) / per_device(p))


def _named(groups: Sequence[Group]) -> list[Group]:
    """Names that tell ladders apart: what differs between those of one family is added."""
    values: dict[tuple[str, str], set[str]] = {}
    members = Counter(g.name for g in groups)
    seen: Counter[tuple[str, str]] = Counter()
    for g in groups:
        for k, v in g.points[0].configuration.items():
            values.setdefault((g.name, k), set()).add(v)
            seen[g.name, k] += 1
    out = []
    for g in groups:
        mine = g.points[0].configuration
        differs = [k for k in mine if len(values[g.name, k]) > 1 or seen[g.name, k] < members[g.name]]
        out.append(replace(g, name=", ".join([g.name, *(f"{k} {mine[k]}" for k in differs if len(mine[k]) <= 40)])))
    names = Counter(g.name for g in out)
    return [replace(g, name=f"{g.name}, {g.kind} ({g.why.partition(',')[0]})") if names[g.name] > 1 else g for g in out]


def _sources(points: Sequence[Point]) -> str:
    names = [p.source for p in points]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
