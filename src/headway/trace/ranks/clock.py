"""Clocks of ranks against each other, from the ends of collectives that all ranks must have joined.

A collective of which every rank's result needs every rank's data ends on all of them within one transfer latency. So on ranks i and j,
whose clocks are off by o_i(t) and o_j(t), its ends tell

    E_i - E_j = o_i(t) - o_j(t) + noise + bias,    |bias| <= latency

A line is fitted to E_i - E_j over time for each pair that shares such collectives (robustly: some ends are late); its confidence band
holds the noise. The bias cannot be seen in the ends. It is bounded by the quickest of the pair's collectives as the rank that arrived last
saw it (the shortest duration needs no clock), and by LATENCY_NS. A ring of n ends within one of its n - 1 rounds on all ranks; a tree goes
up and down, and its leaves may end a whole way down after its root: half of the transfer.

So every pair says o_i - o_j <= u_ij at the begin and at the end of the traces. The tightest bounds that follow for any two clocks are
shortest paths in the graph of these (difference constraints); a clock is put in the middle of its bounds against the reference.

Ranks of one host share a clock unless their ends say otherwise. So do up to PRESUMED ranks whose hosts are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import Health
from headway.stats.line import robust_lines
from headway.trace.ranks.match import Matches, Seat
from headway.trace.sweep import Ints

Floats = NDArray[np.float64]
SYNCHRONISE: Final = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"))
_BY_TREE: Final = frozenset(("all_reduce", "barrier"))
LATENCY_NS: Final = 100_000  # no network made for training takes longer for a hop with its last chunk
PRESUMED: Final = 8  # ranks of unknown hosts that may be on one
MOST: Final = 512  # collectives of a pair that are fitted
_FEW: Final = 5
_ALL_PAIRS: Final = 64  # members up to which every pair is fitted; of more, each with the first
_LINE: Final = 20  # collectives from which drift is fitted


@dataclass(frozen=True)
class Clocks:
    """What each seat's clock is ahead of the reference (the lowest rank's), a line from `begin` to `end`.

    `error[a, b]`: how far the difference of two clocks may be from the truth at any moment; inf if nothing compares them.
    """

    begin: int
    end: int
    offset: Floats  # [2, seats]: at begin and at end
    clock: Ints  # of each seat: its clock
    error: Floats  # [clocks, clocks]
    source: tuple[str, ...]  # of each seat: host, presumed, collectives or none

    def ahead(self, seat: Ints, time: Ints) -> Ints:
        """Nanoseconds that the clock of each `seat` is ahead of the reference, at a `time` that it shows."""
        first = self.offset[0, seat]
        share = (time - self.begin - first) / max(self.end - self.begin, 1)
        out: Ints = np.rint(first + (self.offset[1, seat] - first) * share).astype(np.int64)
        return out

    def between(self, seat: Ints, other: Ints) -> Floats:
        """Error of the difference of the clocks of two seats each."""
        return np.asarray(self.error[self.clock[seat], self.clock[other]], np.float64)

    def of(self, seat: int) -> tuple[int, float, float | None, str]:
        """(nanoseconds ahead in the middle, drift in parts per million, half of the interval or None, source) of one seat."""
        first, last = self.offset[:, seat].tolist()
        half = float(self.error[self.clock[seat], 0])
        drift = (last - first) / max(self.end - self.begin, 1) * 1e6
        return round((first + last) / 2), drift, half if np.isfinite(half) else None, self.source[seat]


@dataclass(frozen=True)
class Edges:
    """Pairs of seats: o_a - o_b is `middle` +- `half` at begin and end ([2, pairs])."""

    a: Ints
    b: Ints
    middle: Floats
    half: Floats

    def shifted(self, more: Ints) -> Edges:
        """The same where each clock is ahead by `more` of its seat."""
        return replace(self, middle=self.middle + (more[self.a] - more[self.b]))


def clocks(seats: Sequence[Seat], matches: Matches) -> tuple[Clocks, tuple[Health, ...]]:
    """The clocks of all seats, and what is doubtful about them."""
    order = sorted(range(len(seats)), key=lambda s: seats[s].rank)  # the lowest rank's clock is the reference
    tables = _tables(matches)
    rough = _rough(order, matches, tables)
    begin, end = (np.array([s.windows.edges[side] for s in seats], np.int64) - rough for side in (0, -1))
    first, last = int(begin.min()), int(end.max())
    edges = _edges(seats, matches, tables, rough, first, last)
    named = _named(seats)
    split = _split(seats, named, edges.shifted(rough))
    of = [f"{n} rank {s.rank}" if n in split else n for n, s in zip(named, seats, strict=True)]
    codes = {n: i for i, n in enumerate(dict.fromkeys(of[s] for s in order))}
    clock = np.array([codes[n] for n in of], np.int64)
    of_clock = rough[np.array([of.index(n) for n in codes], np.int64)][clock]  # one for all seats of a clock
    upper = _bounds(clock, len(codes), edges.shifted(rough - of_clock))
    centre = np.zeros((2, len(codes)))
    with np.errstate(invalid="ignore"):
        middle = (upper[:, :, 0] - upper[:, 0, :]) / 2
        centre[:] = np.where(np.isfinite(middle), middle, 0.0)
        gap = centre[:, :, None] - centre[:, None, :]
        error = np.maximum(upper - gap, upper.transpose(0, 2, 1) + gap).max(axis=0)
    known = np.isfinite(error[:, 0])
    own = clock == 0
    presumed = np.array([s.host == "" for s in seats], bool)
    source = np.where(own, np.where(presumed, "presumed", "host"), np.where(known[clock], "collectives", "none"))
    shift = np.where(known[clock] & ~own, of_clock, 0)
    found = Clocks(first, last, centre[:, clock] + shift, clock, error, tuple(source.tolist()))
    return found, tuple(_health(seats, found, named, split, edges))


def _named(seats: Sequence[Seat]) -> list[str]:
    """The clock that each seat is on before the ends are asked: its host's; ranks of unknown hosts share one if they are few."""
    few = len({s.rank for s in seats if not s.host}) <= PRESUMED
    return [f"host {s.host}" if s.host else "host unknown" if few else f"rank {s.rank}" for s in seats]


def _split(seats: Sequence[Seat], named: Sequence[str], edges: Edges) -> set[str]:
    """Hosts on which ends say that clocks differ, by more than a latency beyond their error.

    CPUs of one named host have one clock: their ends differ by what the scheduler does.
    """
    off = (np.abs(edges.middle) > edges.half + LATENCY_NS).any(axis=0)
    pairs = zip(edges.a[off].tolist(), edges.b[off].tolist(), strict=True)
    one = {s for s, seat in enumerate(seats) if seat.host and seat.work.device == "cpu"}
    return {named[a] for a, b in pairs if named[a] == named[b] and not {a, b} <= one}


def _rough(order: Sequence[int], matches: Matches, tables: Sequence[Met]) -> Ints:
    """Each seat's clock against that of the first in `order`, to within the time of a collective: along any path of shared ones."""
    out, known = np.zeros(len(order), np.int64), np.zeros(len(order), bool)
    for root in order:
        if known[root]:
            continue
        known[root], grew = True, True
        while grew:
            grew = False
            for _, entry in tables:
                seat, end = matches.seat[entry[0]], matches.end[entry[0]]
                have = known[seat]
                if have.any() and not have.all():
                    at = int(np.argmax(have))
                    out[seat[~have]] = out[seat[at]] + end[~have] - end[at]
                    known[seat], grew = True, True
    return out


# ---- pairs ----

Met = tuple[Ints, Ints]  # collectives [n] of the same seats, and their entries [n, seats]


def _tables(matches: Matches) -> list[Met]:
    """Collectives by who met. A rank may have several seats, one for each traced window, so the same group may be several tables."""
    club = matches.club
    out = []
    for c in np.unique(club).tolist():
        mine = np.flatnonzero(club == c)
        entry = matches.first[mine][:, None] + np.arange(matches.size[mine[0]])
        who, table = np.unique(matches.seat[entry], axis=0, return_inverse=True)
        for t in range(len(who)):
            rows = np.flatnonzero(table.reshape(-1) == t)
            out.append((mine[rows], entry[rows]))
    return out


def _rounds(matches: Matches) -> Floats:
    """Of each kind: how many times longer a transfer is than what its ends may differ by."""
    return np.array([2 if k.name in _BY_TREE else max(len(k.ranks) - 1, 1) for k in matches.kinds], np.float64)


def _edges(seats: Sequence[Seat], matches: Matches, tables: Sequence[Met], rough: Ints, begin: int, end: int) -> Edges:
    """The line of every pair that shares collectives that synchronise; clocks less their rough offsets."""
    tail = 0.005 / len(seats)  # many pairs are at work at once, and the tightest of their bounds wins
    parts = []
    good = np.array([k.name in SYNCHRONISE for k in matches.kinds], bool)
    for collectives, entries in tables:
        mine, entry = (x[good[matches.kind[collectives]]] for x in (collectives, entries))
        if not len(mine):
            continue
        seat, stop = matches.seat[entry[0]], matches.end[entry]
        quick = (stop - matches.start[entry]).min(axis=1) / _rounds(matches)[matches.kind[mine]]
        tight = np.flatnonzero(quick <= 2 * max(float(np.sort(quick)[:_FEW][-1]), 1_000.0))  # some, lest they be quick by chance
        tight = tight[np.linspace(0, len(tight) - 1, min(MOST, len(tight))).astype(np.int64)]
        at = stop[tight] - rough[seat] - begin
        n = len(seat)
        i, j = np.triu_indices(n, 1) if n <= _ALL_PAIRS else (np.zeros(n - 1, np.int64), np.arange(1, n))
        time = at.mean(axis=1) / (end - begin)  # 0 at begin, 1 at end
        middle, half = _lines(time, (at[:, i] - at[:, j]).astype(np.float64), tail)
        latency = min(float(np.median(quick[tight])), LATENCY_NS)
        parts.append((seat[i], seat[j], middle, half + latency * (2 if len(tight) < _FEW else 1)))  # of so few the noise is unknown
    if not parts:
        return Edges(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((2, 0)), np.zeros((2, 0)))
    return Edges(*(np.concatenate(column, axis=-1) for column in zip(*parts, strict=True)))


def _lines(time: Floats, value: Floats, tail: float) -> tuple[Floats, Floats]:
    """(value at 0 and at 1, half of its interval) [2, series] of lines through value [n, series] at time [n] in [0, 1].

    Few samples (or all at one time) give no line: then the middle of all of them, and more than their whole range on either side.
    """
    if (n := len(time)) < _LINE or float(np.ptp(time)) <= 0:
        low, high = value.min(axis=0), value.max(axis=0)
        return np.tile((low + high) / 2, (2, 1)), np.tile((1 + 3 / n) * (high - low), (2, 1))
    return robust_lines(time, value, (0.0, 1.0), confidence=1 - 2 * tail)


def _bounds(clock: Ints, num: int, edges: Edges) -> Floats:
    """[2, clocks, clocks]: the least upper bound of o_a - o_b at begin and end that follows from all pairs.

    Where bounds contradict each other (a cycle below 0) all are widened, twice as much each time, until they do not.
    """
    a, b = clock[edges.a], clock[edges.b]
    for factor in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
        upper = np.full((2, num, num), np.inf)
        for side in range(2):
            np.minimum.at(upper[side], (a, b), edges.middle[side] + factor * edges.half[side])
            np.minimum.at(upper[side], (b, a), -edges.middle[side] + factor * edges.half[side])
            np.fill_diagonal(upper[side], 0.0)
        for k in range(num if num > 1 else 0):  # Floyd 1962, Warshall 1962
            np.minimum(upper, upper[:, :, k : k + 1] + upper[:, k : k + 1, :], out=upper)
        if (np.diagonal(upper, axis1=1, axis2=2) >= 0).all():
            break
    return upper


def _health(seats: Sequence[Seat], found: Clocks, named: Sequence[str], split: set[str], edges: Edges) -> list[Health]:
    out = []
    if split:
        hosts = ", ".join(sorted(n.removeprefix("host ") for n in split))
        text = f"ranks of one host ({hosts}) whose collectives end at different times: each is taken to have a clock of its own"
        out.append(Health(what="clocks_of_one_host", count=len(split), affects="comm wait and transfer", text=text))
    other = sorted({int(c) for c in found.clock.tolist()} - {0})
    if other:
        known = [c for c in other if np.isfinite(found.error[c, 0])]
        one = [int(np.flatnonzero(found.clock == c)[0]) for c in known]
        most = max((abs(found.of(s)[0]) for s in one), default=0)
        half = max((found.error[c, 0] for c in known), default=0.0)
        text = (
            f"{len(other) + 1} clocks, aligned by ends of collectives: at most {most / 1e3:,.1f} us off, known to +- {half / 1e3:,.1f} us"
        )
        if len(known) < len(other):
            text += f"; {len(other) - len(known)} share no collective with the others and stay as they are"
        out.append(Health(what="clocks", count=len(other) + 1, affects="comm wait and transfer", text=text))
    unknown = [s.rank for s, n in zip(seats, named, strict=True) if n == "host unknown"]
    if len(set(unknown)) > 1 and "host unknown" not in split and len(edges.a):
        half = float((np.abs(edges.middle) + edges.half).max())
        text = (
            f"the traces do not name their hosts: {len(set(unknown))} ranks are taken to share a clock (ends agree to {half / 1e3:,.1f} us)"
        )
        out.append(Health(what="hosts_unknown", count=len(set(unknown)), affects="comm wait and transfer", text=text))
    return out
