"""Ranks that are slower than their peers by more than chance, told apart by what is slow. None is an answer.

A series of excesses over the median of the peers, one a step, is tested against zero (Student's t on steps, Holm's correction over all that
were compared). What is significant is named only if it matters (LEAST of a step, and a share of the thing itself) and, where
there are enough peers, if it stands out from what they differ by among themselves.

Like is compared with like: a kernel with the same kernel on ranks that run it equally often; a transfer with those of the same collective,
axis and size in other groups. A slow link slows its whole group; if groups of two axes are slow it is the rank they share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import RankBreakdown, StepBreakdown
from headway.spec.straggler import KINDS, Straggler
from headway.stats.intervals import mean_interval
from headway.stats.noise import mad
from headway.stats.tests import holm, paired_t
from headway.trace.ranks.bandwidth import SURE
from headway.trace.ranks.match import Seat
from headway.trace.ranks.wait import Meeting
from headway.trace.summary import is_warmup
from headway.trace.work import NUM_CLASSES

Floats = NDArray[np.float64]
ALPHA = 0.01  # of all comparisons of a run together
LEAST = 0.01  # of a step
_SHARE = {"compute": 0.02, "input": 0.0, "host": 0.0, "link": 0.1}  # of the peers' time for the same: clocks, temperatures, routes differ
_OUTSIDE = 4.0  # robust deviations of the peers' own differences
_ENOUGH = 3  # steps
_IDLE = {"input": ("input", "encode"), "host": ("launch", "gc", "sync", "allocator", "compile")}


@dataclass(frozen=True)
class _Series:
    """What one rank (or group) spent more than its peers in each step, and what the peers spent."""

    kind: str
    ranks: tuple[int, ...]
    excess: Floats
    base: float
    peers: Floats  # mean excess of each peer
    evidence: tuple[str, ...]


def stragglers(seats: Sequence[Seat], rows: Sequence[RankBreakdown], meeting: Meeting) -> tuple[Straggler, ...] | None:
    """The stragglers of a run, worst first; None where ranks or steps are too few to tell.

    `rows` are the measured breakdowns of `seats`; several windows of one device are one.
    """
    units = list(dict.fromkeys((s.rank, s.work.device) for s in seats))
    unit = [units.index((s.rank, s.work.device)) for s in seats]
    told: list[dict[int, StepBreakdown]] = [{} for _ in units]
    for u, row in zip(unit, rows, strict=True):
        told[u] |= {s.step: s for s in row.steps if s.buckets}
    steps = _steps(told)
    if len(steps) < _ENOUGH or len(units) < 2:
        return None
    ranks = [rank for rank, _ in units]
    wall = float(np.median([[of[k].wall_ns for k in steps] for of in told]))
    series = _compute(seats, unit, ranks, steps)
    for kind, causes in _IDLE.items():
        idle = np.array([[sum(of[k].buckets.get(f"idle.{c}", 0) for c in causes) for k in steps] for of in told], np.float64)
        series += _compared(kind, [(r,) for r in ranks], idle, [(f"idle.{', idle.'.join(causes)}",)] * len(ranks))
    series += _links(steps, meeting)
    tested = [paired_t(s.excess) for s in series]
    p = holm([t.p / 2 if t.statistic > 0 else 1 - t.p / 2 for t in tested])  # slower only
    found = [_named(s, q) for s, q in zip(series, p, strict=True) if q < ALPHA and _matters(s, wall)]
    return tuple(sorted(_pinned(found), key=lambda s: (-s.excess_ns, s.rank, KINDS.index(s.kind))))


def _steps(told: Sequence[Mapping[int, StepBreakdown]]) -> list[int]:
    """Steps that every rank has, without one of warming up."""
    if not told or not all(told):
        return []
    common = set.intersection(*(set(of) for of in told))
    warm = {min(of) for of in told if is_warmup([of[k] for k in sorted(of)])}
    return sorted(common - warm)


def _matters(s: _Series, wall: float) -> bool:
    mean = float(s.excess.mean())
    if mean < LEAST * wall or mean < _SHARE[s.kind] * s.base:
        return False
    return len(s.peers) < 3 or mean > float(np.median(s.peers)) + _OUTSIDE * mad(s.peers)


def _named(s: _Series, p: float) -> Straggler:
    interval = mean_interval(s.excess)
    times = f"{interval.estimate / 1e6:.2f} ms a step more than the {s.base / 1e6:.2f} ms of its peers (median)"
    return Straggler(
        rank=s.ranks[0],
        kind=s.kind,
        excess_ns=round(interval.estimate),
        interval_ns=(round(interval.low), round(interval.high)),
        p=p,
        ranks=s.ranks if len(s.ranks) > 1 else (),
        evidence=(times, *s.evidence),
    )


def _compared(kind: str, ranks: Sequence[tuple[int, ...]], time: Floats, evidence: Sequence[tuple[str, ...]]) -> list[_Series]:
    """Series of time [ranks, steps], each against the median of the others."""
    if len(time) < 2:
        return []
    over = np.array([time[i] - np.median(np.delete(time, i, axis=0), axis=0) for i in range(len(time))])
    mean = over.mean(axis=1)
    base = [float(np.median(np.delete(time, i, axis=0).mean(axis=1))) for i in range(len(time))]
    return [_Series(kind, r, over[i], base[i], np.delete(mean, i), evidence[i]) for i, r in enumerate(ranks)]


# ---- the same kernels ----


def _compute(seats: Sequence[Seat], unit: Sequence[int], ranks: Sequence[int], steps: Sequence[int]) -> list[_Series]:
    """Time of kernels that others run equally often, per rank and step, against the median over those others, name by name."""
    names = {n: i for i, n in enumerate(sorted({n for s in seats for n in s.work.names}))}
    time = np.zeros((len(ranks), len(steps), len(names)))
    count = np.zeros_like(time)
    for s, seat in zip(unit, seats, strict=True):
        work = seat.work
        place = seat.windows.of_launch(work, int(seat.windows.edges[0]))
        wanted = {step: i for i, step in enumerate(steps)}
        of_step = np.array([wanted.get(k, -1) for k in seat.windows.steps] + [-1], np.int64)[place]
        mine = np.flatnonzero((work.level < NUM_CLASSES) & (of_step >= 0))
        code = np.array([names[n] for n in work.names], np.int64)[work.name[mine]]
        np.add.at(time[s], (of_step[mine], code), (work.end - work.start)[mine])
        np.add.at(count[s], (of_step[mine], code), 1)
    often = count.sum(axis=1)
    peer = np.zeros_like(time)
    shared = np.zeros((len(ranks), len(names)), bool)
    for k in range(len(names)):
        for number in np.unique(often[:, k][often[:, k] > 0]).tolist():
            like = np.flatnonzero(often[:, k] == number)
            if len(like) > 1:
                part = time[like, :, k]
                peer[like, :, k] = part[::-1] if len(like) == 2 else np.median(part, axis=0)
                shared[like, k] = True
    used = shared[:, None, :]
    over, base = ((time - peer) * used).sum(axis=2), (peer * used).sum(axis=2)
    mean = over.mean(axis=1)
    labels = list(names)
    out = []
    for s, rank in enumerate(ranks):
        if base[s].any():
            most = np.argsort(-((time - peer) * used)[s].mean(axis=0))[:3]
            evidence = tuple(
                f"{labels[k][:60]}: {time[s, :, k].mean() / peer[s, :, k].mean():.2f} times as long"
                for k in most.tolist()
                if peer[s, :, k].any()
            )
            out.append(_Series("compute", (rank,), over[s], float(base[s].mean()), np.delete(mean, s), evidence))
    return out


# ---- links ----


def _links(steps: Sequence[int], meeting: Meeting) -> list[_Series]:
    """Transfer time a step of each group of an axis, against the other groups that move as much as often."""
    found = meeting.matches
    if not len(found):
        return []
    entry = meeting.last[found.first]  # the rank that arrived last does not wait
    time, sure = meeting.moves[entry], meeting.sound[found.first] & (meeting.error[found.first] <= SURE * meeting.moves[entry])
    wanted = {step: i for i, step in enumerate(steps)}
    groups: dict[tuple[object, ...], list[tuple[tuple[int, ...], Floats]]] = defaultdict(list)
    order = np.argsort(found.kind, kind="stable")
    bounds = np.searchsorted(found.kind[order], np.arange(len(found.kinds) + 1))
    for k, kin in enumerate(found.kinds):
        mine = order[bounds[k] : bounds[k + 1]]
        if not len(mine) or len(kin.ranks) < 2 or not sure[mine].all():
            continue
        at = np.array([wanted.get(x, -1) for x in found.step[mine].tolist()], np.int64)
        per_step: Floats = np.bincount(at[at >= 0], time[mine[at >= 0]].astype(np.float64), len(steps)).astype(np.float64)
        key = (kin.name, kin.axis, len(kin.ranks), tuple(sorted(found.bytes[mine[at >= 0]].tolist())))
        groups[key].append((tuple(sorted(kin.ranks)), per_step))
    out = []
    for (name, axis, size, *_), members in groups.items():
        ranks = [r for r, _ in members]
        text = [(f"{name} along {axis} of {size} ranks, against {len(members) - 1} other groups",)] * len(members)
        out += _compared("link", ranks, np.array([t for _, t in members]), text)
    return out


def _pinned(found: Sequence[Straggler]) -> list[Straggler]:
    """Slow groups of several axes are the fault of the one rank that all of them share; several kinds of one group are one."""
    links = [s for s in found if s.kind == "link"]
    out = [s for s in found if s.kind != "link"]
    by_group: dict[tuple[int, ...], list[Straggler]] = defaultdict(list)
    for s in links:
        by_group[s.ranks].append(s)
    worst: Mapping[tuple[int, ...], Straggler] = {g: _joined(g, of) for g, of in by_group.items()}
    left = dict(worst)
    while left:
        votes: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for g in left:
            for r in g:
                votes[r].append(g)
        rank = max(votes, key=lambda r: (len(votes[r]), -r))
        most = [r for r in votes if len(votes[r]) == len(votes[rank])]
        if len(votes[rank]) < 2 or len([r for r in most if votes[r] == votes[rank]]) > 1:
            out += left.values()
            break
        out.append(_joined((rank,), [left.pop(g) for g in votes[rank]]))
    return out


def _joined(ranks: tuple[int, ...], parts: Sequence[Straggler]) -> Straggler:
    """Several excesses of one rank or group as one: times add up, the least likely to be chance speaks for all."""
    return Straggler(
        rank=ranks[0],
        kind="link",
        excess_ns=sum(s.excess_ns for s in parts),
        interval_ns=(sum(s.interval_ns[0] for s in parts), sum(s.interval_ns[1] for s in parts)),
        p=min(s.p for s in parts),
        ranks=ranks if len(ranks) > 1 else (),
        evidence=tuple(e for s in parts for e in s.evidence),
    )
