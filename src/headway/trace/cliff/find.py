"""Finds the cliffs of a run: spikes and shifts of step time on any rank, each named by the rank on which its cause shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.cliff import Cliff
from headway.stats.change import local_median, shifts, spikes
from headway.trace.cliff.cause import ACTIONS, Cause, explain
from headway.trace.cliff.columns import Columns, columns
from headway.trace.events import Events
from headway.trace.sweep import Ints

LEAST: Final = 0.05  # a shift by less is not worth a line
_FEWEST = 20  # steps before anything is said
_NEAR = 100  # steps on each side that a spike or a shift is compared with


def cliffs(events: Events) -> tuple[Cliff, ...]:
    """The cliffs of a run, the costliest first."""
    ranks = [columns(r, s, events.notes.get(r, {}), events.logs, events.first) for r, s in sorted(events.steps.items())]
    ranks = [c for c in ranks if len(c) >= _FEWEST]
    found = [*_spikes(ranks), *_shifts(ranks)]
    return tuple(sorted(found, key=lambda c: -c.lost_ns))


def _spikes(ranks: Sequence[Columns]) -> list[Cliff]:
    """Slow single steps, put together by cause. A step that is slow on several ranks is told once, by the rank that explains it best."""
    slow = {c.rank: spikes(c.wall) for c in ranks}
    by_step: dict[int, list[tuple[Columns, int]]] = defaultdict(list)
    for c in ranks:
        for i in slow[c.rank].tolist():
            by_step[int(c.step[i])].append((c, i))
    level = {c.rank: local_median(c.wall) for c in ranks}
    groups: dict[tuple[str, int], list[tuple[int, int, int, Cause]]] = defaultdict(list)
    for step, places in sorted(by_step.items()):
        named = [(c, i, explain(c, np.array([i]), _around(c, i, slow[c.rank]))) for c, i in _all(ranks, step, places)]
        c, i, cause = max(named, key=lambda n: (n[2].name != "unknown", n[2].share))
        usual = int(level[c.rank][i])
        groups[cause.name, c.rank].append((step, int(c.wall[i]), usual, cause))
    return [_spike(name, rank, rows) for (name, rank), rows in groups.items()]


def _all(ranks: Sequence[Columns], step: int, places: list[tuple[Columns, int]]) -> list[tuple[Columns, int]]:
    """The step on every rank: the cause may be on one that was not slow in the mean of its own noise."""
    out = list(places)
    seen = {c.rank for c, _ in places}
    for c in ranks:
        i = int(np.searchsorted(c.step, step))
        if c.rank not in seen and i < len(c) and c.step[i] == step:
            out.append((c, i))
    return out


def _around(c: Columns, i: int, slow: Ints) -> NDArray[np.int64]:
    """Ordinary steps near step i."""
    near = np.arange(max(0, i - _NEAR), min(len(c), i + _NEAR + 1))
    calm = near[~np.isin(near, slow) & ~c.traced[near]]
    return calm if len(calm) else near[near != i]


def _spike(name: str, rank: int, rows: list[tuple[int, int, int, Cause]]) -> Cliff:
    lost = sum(wall - usual for _, wall, usual, _ in rows)
    before, after = (int(np.median([r[k] for r in rows])) for k in (2, 1))
    many = f"{len(rows)} steps take" if len(rows) > 1 else f"step {rows[0][0]} takes"
    worst = max(rows, key=lambda r: r[1] - r[2])
    return Cliff(
        kind="spike",
        cause=name,
        what=f"{many} {after / 1e6:.1f} ms instead of {before / 1e6:.1f} ms: {worst[3].text}",
        rank=rank,
        steps=tuple(r[0] for r in rows),
        before_ns=before,
        after_ns=after,
        lost_ns=lost,
        share=float(np.average([r[3].share for r in rows], weights=[max(1, r[1] - r[2]) for r in rows])),
        evidence=(f"rank {rank}, step {worst[0]}: {worst[1] / 1e6:.1f} ms; {worst[3].evidence}", *_period([r[0] for r in rows])),
        action=ACTIONS[name],
    )


def _period(steps: list[int]) -> list[str]:
    """Whether spikes come at a regular distance."""
    gaps = np.diff(steps)
    if len(gaps) < 2 or gaps[0] == 1 or (gaps != gaps[0]).any():
        return []
    return [f"every {gaps[0]} steps"]


def _shifts(ranks: Sequence[Columns]) -> list[Cliff]:
    """Lasting slower levels; changes of several ranks at one step are one."""
    places: list[tuple[int, Columns, int, int]] = []  # step, rank, first row of the level before, row of the shift, ...
    for c in ranks:
        edges = [s for s in shifts(c.wall, least=LEAST)]
        for k, shift in enumerate(edges):
            if shift.after > shift.before:
                places.append((int(c.step[shift.at]), c, shift.at, edges[k + 1].at if k + 1 < len(edges) else len(c)))
    out: list[Cliff] = []
    while places:
        first = min(places, key=lambda p: p[0])
        same = [p for p in places if p[0] <= first[0] + 3]
        places = [p for p in places if p[0] > first[0] + 3]
        out.append(_shift(same, ranks))
    return out


def _shift(same: list[tuple[int, Columns, int, int]], ranks: Sequence[Columns]) -> Cliff:
    _, c, at, end = max(same, key=lambda p: p[3] - p[2])
    stop = int(c.step[end - 1])
    named = []
    for other in ranks:
        here = int(np.searchsorted(other.step, c.step[at]))
        until = int(np.searchsorted(other.step, stop, side="right"))
        after, before = np.arange(here, min(until, here + _NEAR)), np.arange(max(0, here - _NEAR), here)
        if len(after) and len(before):
            named.append((other, after, before, explain(other, after, before)))
    where, after, before, cause = max(named, key=lambda n: (n[3].name != "unknown", n[3].share))
    low, high = float(np.median(c.wall[max(0, at - _NEAR) : at])), float(np.median(c.wall[at:end]))
    return Cliff(
        kind="shift",
        cause=cause.name,
        what=f"from step {c.step[at]} on a step takes {high / 1e6:.1f} ms instead of {low / 1e6:.1f} ms: {cause.text}",
        rank=where.rank,
        steps=(int(c.step[at]),),
        before_ns=round(low),
        after_ns=round(high),
        lost_ns=max(0, round(float(c.wall[at:end].sum()) - low * (end - at))),
        share=cause.share,
        evidence=(f"rank {where.rank}, steps {c.step[at]} to {stop}; {cause.evidence}",),
        action=ACTIONS[cause.name],
    )
