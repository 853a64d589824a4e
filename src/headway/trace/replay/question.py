"""What may be taken out of a run, and what each would win: counted once, the largest first.

Gains overlap: a step that waits for input under a slow kernel loses neither by removing one alone. So the question that wins most is
taken out for good, the others are asked again on what remains, and so on; the sum is what all of them win together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import COMPUTE_CLASSES, IDLE_CAUSES
from headway.trace.replay.run import Replay
from headway.trace.replay.simulate import NOTHING, Change, simulate
from headway.trace.sweep import Ints
from headway.trace.work import NUM_CLASSES

SLOWER: Final = 1.05  # compute of a rank over the median of the others, from which the rank counts as slow
NARROW: Final = 1.25  # a transfer over the quickest of its kind and size, from which its link counts as slow
LAST: Final = 2
_MOST_RANKS: Final = 3
_ALIKE: Final = 0.02  # ranks whose numbers of kernels differ by more do not do the same work


@dataclass(frozen=True)
class Question:
    """A cause: its kind, the bucket that shows it, the change that takes it out, the rank that it is about (None: all)."""

    kind: str
    bucket: str
    change: Change
    rank: int | None = None
    turn: int = 0  # asked after those of a lower one: floors are bounds, not causes; who is late is told by what the others leave


@dataclass(frozen=True)
class Answer:
    """What a question won of a step, in nanoseconds: after all larger ones, and alone."""

    question: Question
    gain_ns: float
    alone_ns: float


def answers(run: Replay, asked: Sequence[Question], least_ns: float) -> list[Answer]:
    """Every question that wins at least `least_ns` of a step after those that win more in its turn; all of the last turn; largest first."""
    done, now = NOTHING, run.base.step_ns
    out: list[Answer] = []
    for turn in sorted({q.turn for q in asked}):
        left = [q for q in asked if q.turn == turn]
        while left:
            gains = [now - simulate(run.graph, done & q.change).step_ns for q in left]
            best = int(np.argmax(gains))
            if gains[best] < least_ns and turn != LAST:
                break
            chosen = left.pop(best)
            out.append(Answer(chosen, max(gains[best], 0.0), run.gain(chosen.change) if done is not NOTHING else gains[best]))
            done, now = done & chosen.change, now - gains[best]
            gains.pop(best)
            left = [q for q, gain in zip(left, gains, strict=True) if gain >= least_ns]
    return sorted(out, key=lambda a: -a.gain_ns)


def questions(run: Replay, idle: Collection[str], late: int | None, slow: Collection[int] | None = None) -> Iterator[Question]:
    """Everything to be asked of a run in which devices are idle for the causes `idle`, others wait for the rank `late`, and only ranks of
    `slow` are slower by more than chance (None: any may be).
    """
    for cause in IDLE_CAUSES:
        if cause in idle and cause != "unknown":
            yield Question(cause, f"idle.{cause}", Change(without=frozenset((cause,))))
    yield from _classes(run)
    yield from (q for q in _slow_ranks(run) if slow is None or q.rank in slow)
    yield from _slow_links(run)
    if any(len(s.work.comm) for s in run.seats):
        yield Question("overlap", "comm", Change(hidden=True))
    if late is not None:
        seats = frozenset(k for k, s in enumerate(run.seats) if s.rank == late)
        yield Question("late rank", "comm.wait", Change(on_time=seats), late, LAST)


def _ones(run: Replay) -> list[NDArray[np.float64]]:
    return [np.ones(len(s.work)) for s in run.seats]


def _classes(run: Replay) -> Iterator[Question]:
    """Each compute class at its floor, where that is known."""
    for level, name in enumerate(COMPUTE_CLASSES):
        share = tuple(np.where((s.work.level == level) & ~np.isnan(f), f, 1.0) for s, f in zip(run.seats, run.share, strict=True))
        if any((x < 1).any() for x in share):
            yield Question("floor", f"compute.{name}", Change(share=share), turn=1)


def _slow_ranks(run: Replay) -> Iterator[Question]:
    """Ranks whose kernels take longer than those of others that do the same work and meet them: each class at the pace of the others."""
    if len(run.seats) < 2:
        return
    time, count = (np.zeros((len(run.seats), NUM_CLASSES)) for _ in range(2))
    for k, seat in enumerate(run.seats):
        mine = seat.work.level < NUM_CLASSES
        np.add.at(time[k], seat.work.level[mine], (seat.work.end - seat.work.start)[mine])
        np.add.at(count[k], seat.work.level[mine], 1)
    found = []
    for k, seat in enumerate(run.seats):
        alike = np.array([j != k and _alike(count[k], count[j]) for j in range(len(run.seats))])
        if not alike.any() or not (run.meets[k] >= 0).any():  # nobody waits for a rank that meets nobody
            continue
        pace = np.divide(np.median(time[alike], axis=0), time[k], out=np.ones(NUM_CLASSES), where=time[k] > 0)
        if time[k].sum() > SLOWER * np.median(time[alike].sum(axis=1)):
            share = _ones(run)
            mine = seat.work.level < NUM_CLASSES
            share[k][mine] = np.minimum(pace, 1.0)[seat.work.level[mine]]
            lost = float((time[k] * (1 - np.minimum(pace, 1.0))).sum())
            found.append((lost, Question("slow rank", "comm.wait", Change(share=tuple(share)), seat.rank)))
    yield from (q for _, q in sorted(found, key=lambda x: -x[0])[:_MOST_RANKS])


def _alike(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    return bool(np.abs(a - b).sum() <= _ALIKE * max(a.sum(), b.sum()))


@dataclass(frozen=True)
class Group:
    """Transfers of one size by one group of ranks: how long they take in the median over the quickest of their kind."""

    name: str
    axis: str
    ranks: tuple[int, ...]
    bytes: int
    ratio: float
    seat: int
    rows: Ints  # of its work: those that are slow
    share: NDArray[np.float64]  # of their time that the quickest takes


def slow_groups(run: Replay) -> list[Group]:
    """Groups, as each of their ranks sees them, with transfers that take far longer than the quickest of collective, axis and bytes."""
    kinds: dict[tuple[object, ...], list[tuple[int, int, Ints, Ints]]] = {}  # kind -> (seat, comm, rows, transfer)
    for k, (seat, meets, arrived) in enumerate(zip(run.seats, run.meets, run.arrived, strict=True)):
        rows = np.flatnonzero(meets >= 0)
        for comm in np.unique(seat.work.comm_of[rows]).tolist():
            said = seat.work.comm[comm]
            mine = rows[seat.work.comm_of[rows] == comm]
            if said.bytes:
                kind = (said.name, said.axis, said.bytes, len(said.ranks))
                kinds.setdefault(kind, []).append((k, comm, mine, np.maximum(seat.work.end[mine] - arrived[mine], 1)))
    out = []
    for parts in kinds.values():
        best = min(float(np.quantile(t, 0.25)) for *_, t in parts)
        for k, comm, rows, transfer in parts:
            late = transfer > NARROW * best
            if late.any():
                said = run.seats[k].work.comm[comm]
                ratio = float(np.median(transfer[late])) / best
                out.append(Group(said.name, said.axis, said.ranks, said.bytes or 0, ratio, k, rows[late], best / transfer[late]))
    return out


def _slow_links(run: Replay) -> Iterator[Question]:
    """Transfers of slow groups at the pace of the quickest."""
    share = _ones(run)
    groups = slow_groups(run)
    for group in groups:
        share[group.seat][group.rows] = group.share
    if groups:
        yield Question("slow link", "comm", Change(share=tuple(share)))
