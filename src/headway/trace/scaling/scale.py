"""`scale(paths)`: ladders of sizes from runs, traces and tables; efficiency, what grows, the law, the next doublings."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headway.spec.errors import TraceError
from headway.spec.scaling import Fitted, Kind, Ladder, Point, Prediction, Rung, Scaling
from headway.stats.difference import apportion
from headway.stats.student import t_critical
from headway.trace.fleet.engine import Engine, Watch, unwatched
from headway.trace.read.remote import path_of, place_of
from headway.trace.scaling.ladder import Group, ladders
from headway.trace.scaling.law import LEAST_SIZES, NOISE, Law, fit, names_of
from headway.trace.scaling.measured import measure
from headway.trace.scaling.sheet import read_sheet

DOUBLINGS: Final = (2, 4)
OFF: Final = 0.03  # root mean square distance of points from the law from which it is said not to fit
_FAR: Final = 0.15  # the same distance, from which nothing is predicted
_MISSED: Final = 0.25  # how far the largest size may be foretold off (as a factor, either way) for the next to be predicted
_WIDE: Final = 2.0  # from one end of an interval to the other, beyond which it says nothing
_SURE: Final = 0.6  # weight of the models with a term from which it is named alone
_POSSIBLE: Final = 0.15
TERMS: Final = {  # term -> what it is, in words
    "compute": "compute",
    "serial": "work that more devices do not share",
    "bandwidth": "moving data, which stays the same from a few devices on",
    "tree": "a cost that grows with the logarithm of the number of devices",
    "ring": "a cost that every further device adds (rounds of a ring, or slower links)",
    "skew": "waiting for the slowest device",
}


def scale(
    paths: Sequence[str | Path],
    *,
    sheets: Sequence[str | Path] = (),
    kind: Kind | None = None,
    engine: Engine = "local",
    workers: int = 1,
    watch: Watch = unwatched,
) -> Scaling:
    """How the configurations of `paths` (runs, traces, folders of ranks, tables ending in .csv) and of the tables `sheets` scale.

    Raises TraceError if a path is given twice or cannot be read, or if no configuration is there at two sizes.
    """
    found = [path_of(p) for p in paths]
    tables = [*map(path_of, sheets), *(p for p in found if p.name.lower().endswith(".csv"))]
    runs = [p for p in found if not p.name.lower().endswith(".csv")]
    if not tables and not runs:
        raise TraceError("no path given", fix="Name the runs, traces or tables of several sizes.")
    seen = [place_of(p) for p in (*runs, *tables)]
    if twice := next((p for i, p in enumerate(seen) if p in seen[:i]), None):
        raise TraceError("is given twice", where=twice, fix="Name each size once.")
    sheets_read = [read_sheet(table) for table in tables]
    points = [p for rows, _ in sheets_read for p in rows]
    points += [measure(p, engine=engine, workers=workers, watch=watch) for p in runs]
    left_out = [note for _, notes in sheets_read for note in notes]
    return of_points(points, kind=kind, where=str((*runs, *tables)[0]), left_out=left_out)


def of_points(points: Sequence[Point], *, kind: Kind | None = None, where: str = "", left_out: Sequence[str] = ()) -> Scaling:
    """The same of points; `left_out`: what was there beside them, and why it is none. Raises TraceError if none are on a ladder."""
    groups, alone = ladders(points, kind)
    apart = [*left_out, *alone]
    if not groups:
        what = "; ".join(apart[:3]) if apart else "no figure that says how long a step takes"
        fix = "Scaling needs one configuration at two sizes or more, with equal batch per device (weak) or equal global batch (strong)."
        raise TraceError(what, where=where, fix=fix)
    found = sorted(map(_ladder, groups), key=lambda s: (-len(s.rungs), s.name))
    return Scaling(ladders=tuple(found), apart=tuple(apart))


def law_of(group: Group, most: int | None = None) -> Law | None:
    """The law through a ladder, or through its `most` smallest sizes."""
    points = group.points[:most]
    errors = [p.error for p in points if p.error is not None]
    noise = max(statistics.median(errors), NOISE / 4) if errors and len(errors) == len(points) else NOISE
    return fit(group.kind, [p.size for p in points], [p.time for p in points], noise=noise)


def held_out(group: Group) -> float | None:
    """Relative error of the largest size, predicted from all others; None if these are fewer than three."""
    law = law_of(group, len(group.points) - 1)
    last = group.points[-1]
    return float(law.at([last.size])[0]) / last.time - 1 if law else None


def _ladder(group: Group) -> Ladder:
    law = law_of(group)
    unit = group.points[0].time if group.points[0].relative else 1.0
    rungs = tuple(_rung(group, p, law, unit, names) for p, names in zip(group.points, group.sources, strict=True))
    fitted = _fitted(group, law) if law else None
    why = _unsupported(law, fitted, DOUBLINGS[0] * group.points[-1].size) if law and fitted else ""
    notes = list(group.notes)
    if law is None:
        notes.append(f"not enough sizes for a law: {len(rungs)}, it takes {LEAST_SIZES}")
    elif why:
        notes.append(f"nothing is predicted: {why}")
    elif law.residual > OFF:
        notes.append(f"the law does not fit: points lie {law.residual:.1%} off it; what it predicts is as uncertain")
    return Ladder(
        name=group.name,
        kind=group.kind,
        why=group.why,
        unit="of the smallest" if group.points[0].relative else "s",
        rungs=rungs,
        configuration=group.points[0].configuration,
        law=fitted,
        predictions=tuple(_prediction(group, law, factor * group.points[-1].size, unit) for factor in DOUBLINGS) if law and not why else (),
        limits=_limits(rungs, None if why else fitted),
        notes=tuple(notes),
    )


def _unsupported(law: Law, fitted: Fitted, size: int) -> str:
    """Why the points bear no prediction of `size`, the first of the next sizes; "" if they do."""
    if law.residual > _FAR:
        return f"the law does not fit, points lie {law.residual:.1%} off it"
    if fitted.held_out is not None and not 1 / (1 + _MISSED) <= 1 + fitted.held_out <= 1 + _MISSED:
        return f"the largest size, foretold from the others, is {fitted.held_out:+.1%} off"
    low, high = law.interval(size)
    return f"the step at {size:,} could take anything within a factor of {high / low:,.3g}" if high > _WIDE * low else ""


def _rung(group: Group, p: Point, law: Law | None, unit: float, sources: tuple[str, ...]) -> Rung:
    first = group.points[0]
    known = p.error is not None
    half = t_critical(0.025, max((p.num_steps or 2) - 1, 1)) * p.error * p.time if p.error is not None else 0.0
    return Rung(
        size=p.size,
        batch=p.batch,
        time=p.time / unit,
        low=(p.time - half) / unit if known else None,
        high=(p.time + half) / unit if known else None,
        throughput=p.batch / p.time if p.batch and not p.relative else None,
        efficiency=_efficiency(group, p.size, p.time),
        fitted=float(law.at([p.size])[0]) / unit if law else None,
        mfu=p.mfu,
        buckets=p.buckets,
        lost=_lost(group, first, p),
        sources=sources,
    )


def _efficiency(group: Group, size: int, time: float) -> float:
    """Throughput of a device against the smallest size: t_0 / t (weak), t_0 n_0 / (t n) (strong)."""
    first = group.points[0]
    return first.time / time * (first.size / size if group.kind == "strong" else 1.0)


def _lost(group: Group, first: Point, p: Point) -> dict[str, int]:
    """Bucket -> ns beyond ideal, whole numbers that add up: the ideal of a bucket is what it takes at the smallest size, or its n_0 / n."""
    if not p.buckets or not first.buckets:
        return {}
    names = sorted({*p.buckets, *first.buckets})
    scaled = [first.buckets.get(n, 0) * (first.size if group.kind == "strong" else 1) for n in names]
    ideal = apportion(scaled, p.size if group.kind == "strong" else 1)
    lost = {n: p.buckets.get(n, 0) - i for n, i in zip(names, ideal, strict=True)}
    return dict(sorted(lost.items(), key=lambda kv: -kv[1]))


def _fitted(group: Group, law: Law) -> Fitted:
    """Shares of the step at the largest size, and of these what ideal scaling from the smallest would not have."""
    first, last = group.points[0].size, group.points[-1].size
    parts, before = law.parts(last), law.parts(first)
    total = sum(parts.values())
    shrink = first / last if group.kind == "strong" else 1.0
    lost = {name: (parts[name] - before[name] * shrink) / total for name in names_of(group.kind)}
    return Fitted(
        parts={k: v / total for k, v in parts.items() if v > 0},
        lost={k: v for k, v in sorted(lost.items(), key=lambda kv: -kv[1]) if v > 1e-6},
        support=law.support,
        residual=law.residual,
        noise=law.noise,
        held_out=held_out(group),
    )


def _prediction(group: Group, law: Law, size: int, unit: float) -> Prediction:
    time = float(law.at([size])[0])
    low, high = law.interval(size)
    last = group.points[-1]
    batch = None if last.batch is None else last.batch * size / last.size if group.kind == "weak" else last.batch
    relative = group.points[0].relative
    return Prediction(
        size=size,
        batch=batch,
        time=time / unit,
        low=low / unit,
        high=high / unit,
        throughput=batch / time if batch and not relative else None,
        efficiency=_efficiency(group, size, time),
        efficiency_low=_efficiency(group, size, high),
        efficiency_high=_efficiency(group, size, low),
    )


def _limits(rungs: Sequence[Rung], law: Fitted | None) -> str:
    """What limits, in a sentence or two: the measured bucket that grew most, and the term of the law that did."""
    first, last = rungs[0], rungs[-1]
    said = [f"{last.efficiency:.1%} of the throughput of {first.size} a device is left at {last.size}."]
    lost = [(name, ns) for name, ns in last.lost.items() if ns > 0]
    if lost and last.efficiency < 0.99:
        whole = sum(ns for _, ns in lost)
        said.append(f"Most of what is lost is {lost[0][0]}: {lost[0][1] / 1e6:,.2f} ms a step, {lost[0][1] / whole:.0%} of what grew.")
    if law and law.lost and last.efficiency < 0.99:
        name, share = next(iter(law.lost.items()))
        if law.support[name] >= _SURE:
            said.append(f"By the law it is {TERMS[name]}: {share:.1%} of the step at {last.size}.")
        else:
            rivals = [TERMS[n].partition(" (")[0] for n in law.lost if law.support[n] >= _POSSIBLE][:3]
            said.append(f"These sizes do not tell what it is; it may be {', or '.join(rivals or [TERMS[name]])}.")
    return " ".join(said)
