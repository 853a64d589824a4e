"""The same collective found on all of its ranks.

Members of a group issue its collectives in one order. A collective is known by (group, kind, number): the group's own count where every
row has it, else (step, place among those of its kind in the step). Where ranks have different numbers of them in a step, or of other
sizes (a trace that begins or ends inside one), the order of kinds and sizes tells where the shorter list belongs in the longest: it must
fit in one place alone, or be cut at the side where its trace is cut. A send belongs to the recv of the same place between the same two
ranks. What stays ambiguous stays unmatched, and is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.trace.ranks.groups import Comm
from headway.trace.sweep import EMPTY, Ints
from headway.trace.windows import Windows
from headway.trace.work import Work

_EQUAL_SIZES = frozenset(("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "pair"))  # the same bytes on every rank


@dataclass(frozen=True)
class Seat:
    """One device's place in the run: its rank, its work and its windows."""

    rank: int
    work: Work
    windows: Windows
    host: str = ""


@dataclass(frozen=True)
class Kindred:
    """What collectives that are counted together share. A send with its recv is a `pair`, its ranks are (from, to)."""

    name: str
    axis: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Matches:
    """Collectives found on all of their ranks. Entries of one collective follow each other in order of rank."""

    kinds: tuple[Kindred, ...]
    kind: Ints  # of each collective: code into `kinds`
    first: Ints  # of each collective: its first entry
    size: Ints  # of each collective: number of entries
    bytes: Ints  # of each collective: the most that a rank says; -1 unknown
    step: Ints  # of each collective: step of its first entry; -1 outside of all
    seat: Ints  # of each entry
    row: Ints  # of each entry: row of its seat's work
    start: Ints
    end: Ints
    ambiguous: int = 0  # collectives of a rank that could belong to several of others
    doubled: int = 0  # collectives found twice on one rank

    def __len__(self) -> int:
        return len(self.first)

    @property
    def club(self) -> Ints:
        """Of each collective: a number for the ranks that take part; collectives of the same ranks have the same."""
        codes = {k.ranks: i for i, k in enumerate(self.kinds)}
        return np.array([codes[k.ranks] for k in self.kinds], np.int64)[self.kind]

    @property
    def of_entry(self) -> Ints:
        """The collective of each entry."""
        return np.repeat(np.arange(len(self.first)), self.size)


NONE = Matches(
    kinds=(), kind=EMPTY, first=EMPTY, size=EMPTY, bytes=EMPTY, step=EMPTY, seat=EMPTY, row=EMPTY, start=EMPTY, end=EMPTY
)  # fmt: skip


@dataclass(frozen=True)
class _Rows:
    """All collectives of all seats whose group is known, in order of seat and launch. Arrays have one entry each."""

    seat: Ints
    row: Ints
    kind: Ints
    step: Ints
    number: Ints
    bytes: Ints


def match(seats: Sequence[Seat]) -> Matches:
    """Every collective that is found exactly once on each of its ranks."""
    kinds, rows = _gather(seats)
    if not len(rows.row):
        return NONE
    rank = np.array([s.rank for s in seats], np.int64)[rows.seat]
    num = len(kinds)
    sizes = np.array([len(k.ranks) for k in kinds], np.int64)
    counted = np.ones(num, bool)
    np.logical_and.at(counted, rows.kind, rows.number >= 0)
    counted &= np.array([k.name != "pair" for k in kinds], bool)
    family, when = rows.kind.copy(), np.where(counted[rows.kind], rows.number, rows.step)
    place = _place(family, when, rows.seat)
    equal = np.array([k.name in _EQUAL_SIZES for k in kinds], bool)
    told = np.where(equal[rows.kind], rows.bytes, -1)
    full, doubled = _full(family, when, place, rank, sizes[rows.kind], told)
    usable = full & (when >= 0)
    ambiguous = 0
    there = {s.rank for s in seats}
    complete = np.array([there.issuperset(k.ranks) for k in kinds], bool)
    uneven = ~full & ~doubled & (complete & ~counted)[rows.kind] & (rows.step >= 0)
    if uneven.any():
        aligned, ambiguous = _aligned(seats, kinds, rows, told, uneven)
        moved = aligned >= 0
        clubs = _clubs(kinds)
        family = np.where(moved, num + clubs[rows.kind], family)
        place = np.where(moved, aligned, place)
        again, _ = _full(family, when, place, rank, sizes[rows.kind], told)
        usable = np.where(moved, again, usable)
    keep = np.flatnonzero(usable)
    order = keep[np.lexsort((rank[keep], place[keep], when[keep], family[keep]))]
    change = _changes(family[order], when[order], place[order])
    first = np.flatnonzero(change)
    size = np.diff(np.append(first, len(order)))
    start, end = (np.zeros(len(order), np.int64) for _ in range(2))
    for s, seat in enumerate(seats):
        mine = rows.seat[order] == s
        start[mine], end[mine] = seat.work.start[rows.row[order[mine]]], seat.work.end[rows.row[order[mine]]]
    return Matches(
        kinds=kinds,
        kind=rows.kind[order[first]],
        first=first,
        size=size,
        bytes=np.maximum.reduceat(rows.bytes[order], first) if len(first) else EMPTY,
        step=rows.step[order[first]],
        seat=rows.seat[order],
        row=rows.row[order],
        start=start,
        end=end,
        ambiguous=ambiguous,
        doubled=int(doubled.sum()),
    )


def _gather(seats: Sequence[Seat]) -> tuple[tuple[Kindred, ...], _Rows]:
    code: dict[Kindred, int] = {}
    parts: list[tuple[Ints, ...]] = []
    for s, seat in enumerate(seats):
        work, windows = seat.work, seat.windows
        if not work.comm:
            continue
        same = [_kindred(c, seat.rank) for c in work.comm]
        kind = np.array([-1 if k is None else code.setdefault(k, len(code)) for k in same], np.int64)
        size = work.comm_bytes
        row = np.flatnonzero(work.comm_of >= 0)
        row = row[kind[work.comm_of[row]] >= 0]
        row = row[np.lexsort((work.start[row], work.launched[row]))]
        index = windows.of_launch(work, int(windows.edges[0]))[row]
        step = np.where(index >= 0, np.array(windows.steps, np.int64)[index], -1)
        comm = work.comm_of[row]
        parts.append((np.full(len(row), s, np.int64), row, kind[comm], step, work.number[row], size[comm]))
    columns = [np.concatenate(c) for c in zip(*parts, strict=True)] if parts else [EMPTY] * 6
    return tuple(code), _Rows(*columns)


def _kindred(comm: Comm, rank: int) -> Kindred | None:
    """What a collective is matched by; None if its members are unknown."""
    if comm.matched:
        return Kindred(comm.name, comm.axis, comm.ranks) if rank in comm.ranks else None
    pair = comm.pair(rank)
    if pair is not None:
        return Kindred("pair", comm.axis, pair)
    both = comm.name == "send_recv" and len(comm.ranks) == 2 and rank in comm.ranks
    return Kindred("send_recv", comm.axis, comm.ranks) if both else None


def _place(family: Ints, when: Ints, seat: Ints) -> Ints:
    """How many of the same (family, when) came before each on its seat; rows of a seat are in order."""
    order = np.lexsort((seat, when, family))
    begin = np.flatnonzero(_changes(family[order], when[order], seat[order]))
    out = np.empty(len(family), np.int64)
    out[order] = np.arange(len(order)) - np.repeat(begin, np.diff(np.append(begin, len(order))))
    return out


def _full(family: Ints, when: Ints, place: Ints, rank: Ints, size: Ints, told: Ints) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(whether all rows of the (family, when) of each are there on every rank and agree in bytes, whether a rank has it twice)."""
    order = np.lexsort((rank, place, when, family))
    one = _changes(family[order], when[order], place[order])  # begins a collective
    all_of = _changes(family[order], when[order])  # begins a (family, when)
    twice = ~one & np.append(False, rank[order][1:] == rank[order][:-1])
    begin = np.flatnonzero(one)
    whole = np.diff(np.append(begin, len(order))) == size[order[begin]]
    least = np.minimum.reduceat(np.where(told >= 0, told, np.iinfo(np.int64).max)[order], begin)
    whole &= np.maximum.reduceat(told[order], begin) <= least
    group = np.cumsum(all_of) - 1
    good, double = np.ones(group[-1] + 1, bool), np.zeros(group[-1] + 1, bool)
    np.logical_and.at(good, group[begin], whole)
    np.logical_or.at(double, group, twice)
    full, doubled = np.empty(len(order), bool), np.empty(len(order), bool)
    full[order], doubled[order] = (good & ~double)[group], double[group]
    return full, doubled


def _changes(*columns: Ints) -> NDArray[np.bool_]:
    """Whether each row differs from the one before it."""
    out = np.zeros(len(columns[0]), bool)
    out[:1] = True
    for c in columns:
        out[1:] |= c[1:] != c[:-1]
    return out


# ---- lists of different lengths ----


def _clubs(kinds: Sequence[Kindred]) -> Ints:
    """A number for each set of kinds of one group: they are issued in one order."""
    code: dict[tuple[object, ...], int] = {}
    return np.array([code.setdefault((k.ranks, k.axis, k.name == "pair"), len(code)) for k in kinds], np.int64)


def _aligned(seats: Sequence[Seat], kinds: Sequence[Kindred], rows: _Rows, told: Ints, uneven: NDArray[np.bool_]) -> tuple[Ints, int]:
    """(place of each uneven row in the longest list of its group and step, or -1; number of rows that fit in several places)."""
    clubs = _clubs(kinds)
    club = clubs[rows.kind]
    out, ambiguous = np.full(len(rows.row), -1, np.int64), 0
    wanted = {(c, t) for c, t in zip(club[uneven].tolist(), rows.step[uneven].tolist(), strict=True)}
    lists: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i in np.flatnonzero(np.isin(club, [c for c, _ in wanted]) & (rows.step >= 0)).tolist():
        key = (int(club[i]), int(rows.step[i]))
        if key in wanted:
            lists[key][int(rows.seat[i])].append(i)
    members = {int(c): k.ranks for c, k in zip(clubs, kinds, strict=True)}
    for (c, step), by_seat in lists.items():
        if {seats[s].rank for s in by_seat} != set(members[c]) or len(by_seat) != len(members[c]):
            continue
        pattern = {s: [(int(rows.kind[i]), int(told[i])) for i in of] for s, of in by_seat.items()}
        longest = max(by_seat, key=lambda s: len(by_seat[s]))
        shift = {s: _shift(pattern[s], pattern[longest], step, seats[s].windows.steps) for s in by_seat}
        if None in shift.values():
            ambiguous += sum(len(of) for of in by_seat.values())
            continue
        for s, of in by_seat.items():
            out[of] = np.arange(len(of)) + (shift[s] or 0)
    return _common(out, club, rows.step, rows.seat), ambiguous


def _shift(part: Sequence[object], whole: Sequence[object], step: int, steps: Sequence[int]) -> int | None:
    """Where `part` begins in `whole`; None if it fits nowhere, or in several places and the ends of its trace do not tell."""
    room = len(whole) - len(part)
    fits = [k for k in range(room + 1) if list(whole[k : k + len(part)]) == list(part)]
    if len(fits) == 1:
        return fits[0]
    at_begin, at_end = step == steps[0], step == steps[-1]
    if at_begin != at_end:
        cut = room if at_begin else 0  # what is missing is missing at the side where the trace is cut
        return cut if cut in fits else None
    return None


def _common(place: Ints, club: Ints, step: Ints, seat: Ints) -> Ints:
    """`place` of the rows that every seat of their (club, step) has; -1 for the rest."""
    rows = np.flatnonzero(place >= 0)
    if not len(rows):
        return place
    order = rows[np.lexsort((place[rows], step[rows], club[rows]))]
    group = np.cumsum(_changes(club[order], step[order])) - 1
    begin = np.flatnonzero(_changes(club[order], step[order], place[order]))
    there = np.diff(np.append(begin, len(order)))
    seats = np.array([len(np.unique(seat[order[group == g]])) for g in range(group[-1] + 1)], np.int64)
    out = place.copy()
    out[order[np.repeat(there, there) != seats[group]]] = -1
    return out
