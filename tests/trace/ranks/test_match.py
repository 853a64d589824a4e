"""The same collective on all ranks: by the group's number, by place, by pattern where a trace is cut; what is ambiguous is left alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.trace.explain import explain
from headway.trace.part import of_file
from headway.trace.ranks.groups import Comm
from headway.trace.ranks.match import Matches, Seat, match
from headway.trace.ranks.wait import meet
from headway.trace.windows import Windows
from tests.trace.ranks.skews import Case, seats
from tests.trace.simulate import Cluster, Moved, Run, simulate, write

ALL = (0, 1)


def _seat(rank: int, comms: list[Comm], *, steps: tuple[int, ...] = (0,), number: list[int] | None = None, begin: int = 0) -> Seat:
    """A rank that runs `comms` one after the other, in the first of `steps`; each takes 10 of 20 ns."""
    base = seats(Case(mesh={"dp": 2}, offset=np.zeros(2), drift=np.zeros(2), bias=np.zeros(2), steps=1, each=len(comms)))[rank].work
    start = begin + 20 * np.arange(len(comms))
    different = tuple(dict.fromkeys(comms))
    work = replace(
        base, start=start, end=start + 10, launched=start, comm=different, comm_of=np.array([different.index(c) for c in comms]),
        number=np.array(number or [-1] * len(comms)),
    )  # fmt: skip
    edges = np.array([0, *(10_000 * (i + 1) for i in range(len(steps)))])
    return Seat(rank, work, Windows(steps, edges, edges[1:]))


def _pairs(found: Matches) -> list[tuple[int, int]]:
    """(row on seat 0, row on seat 1) of each collective."""
    at = found.row.reshape(-1, 2)
    assert (found.seat.reshape(-1, 2) == [0, 1]).all()
    return sorted((int(a), int(b)) for a, b in at)


def _reduce(size: int, name: str = "all_reduce") -> Comm:
    return Comm(name, "dp", ALL, size)


def test_by_place_among_their_kind() -> None:
    """Two communicators of the same ranks may interleave differently; within a kind the order is the same."""
    a, b = _reduce(8), _reduce(8, "all_gather")
    found = match([_seat(0, [a, b, a]), _seat(1, [b, a, a])])
    assert _pairs(found) == [(0, 1), (1, 0), (2, 2)]


@pytest.mark.parametrize("cut", (1, 2, 3))
def test_a_first_step_that_begins_midway_keeps_its_last_collectives(cut: int) -> None:
    """Sizes alone would fit in several places; a trace's first step is cut at its begin, its last one at its end."""
    whole = [_reduce(8)] * 5
    first = match([_seat(0, whole, steps=(3, 4)), _seat(1, whole[cut:], steps=(3, 4))])
    assert _pairs(first) == [(i + cut, i) for i in range(5 - cut)]
    last = match([_seat(0, whole, steps=(3,)), _seat(1, whole[cut:], steps=(3,))])
    assert len(last) == 0 and last.ambiguous == 10 - cut


def test_sizes_tell_where_a_short_list_belongs() -> None:
    whole = [_reduce(n) for n in (1, 2, 3, 2, 5)]
    found = match([_seat(0, whole), _seat(1, whole[1:4])])
    assert _pairs(found) == [(1, 0), (2, 1), (3, 2)]
    assert found.ambiguous == 0
    wrong = match([_seat(0, whole), _seat(1, [_reduce(7)])])
    assert len(wrong) == 0 and wrong.ambiguous == 6


def test_equally_long_lists_of_other_sizes_are_not_the_same() -> None:
    """One trace misses the first of a step, the other the last: nothing fits whole."""
    whole = [_reduce(n) for n in (1, 2, 3, 4)]
    found = match([_seat(0, whole[1:]), _seat(1, whole[:3])])
    assert len(found) == 0 and found.ambiguous == 6


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(("all_reduce", "all_gather")), st.integers(1, 3)), min_size=1, max_size=5),
        min_size=2,
        max_size=4,
    ),
    st.integers(0, 5),
    st.integers(0, 5),
    st.booleans(),
)
def test_no_pair_is_ever_wrong(steps: list[list[tuple[str, int]]], head: int, tail: int, swap: bool) -> None:
    """A program of random collectives, and a rank whose trace begins inside its first step and ends inside its last one."""
    flat = [(k, Comm(name, "dp", ALL, size)) for k, step in enumerate(steps) for name, size in step]
    head, tail = min(head, len(steps[0])), min(tail, len(steps[-1]))
    short = list(range(head, len(flat) - tail))
    if not short:
        return

    def seat(rank: int, rows: list[int]) -> Seat:
        base = _seat(rank, [flat[i][1] for i in rows], steps=tuple(range(len(steps))))
        start = np.array([10_000 * flat[i][0] + 20 * i for i in rows])
        return replace(base, work=replace(base.work, start=start, end=start + 10, launched=start))

    full = list(range(len(flat)))
    found = match([seat(0, short if swap else full), seat(1, full if swap else short)])
    pairs = [(b, short[a]) if swap else (a, short[b]) for a, b in _pairs(found)]
    assert all(a == b for a, b in pairs)
    inner = [i for i in short if 0 < flat[i][0] < len(steps) - 1]
    assert set(inner) <= {a for a, _ in pairs}  # steps that are whole are all found


def test_the_groups_own_count_wins() -> None:
    comms = [_reduce(8)] * 4
    found = match([_seat(0, comms, number=[10, 11, 12, 13]), _seat(1, comms, number=[12, 13, 14, 15], steps=(7,))])
    assert _pairs(found) == [(2, 0), (3, 1)]


def test_steps_that_only_one_rank_has() -> None:
    a = _reduce(8)
    found = match([_seat(0, [a, a], steps=(4,)), _seat(1, [a, a], steps=(5,))])
    assert len(found) == 0 and found.ambiguous == 0


def test_twice_on_one_rank() -> None:
    a = _reduce(8)
    again = meet([_seat(0, [a]), _seat(1, [a]), _seat(1, [a])])
    assert len(again.matches) == 0
    assert [h.what for h in again.health] == ["doubled_collectives"]


def test_sends_and_their_recvs() -> None:
    """In a group of four: rank 0 sends to 1 twice, rank 1 sends back once; the peers are said."""
    four = (0, 1, 2, 3)
    to, back = Comm("send", "pp", four, 4, 1), Comm("recv", "pp", four, 4, 1)
    got, gave = Comm("recv", "pp", four, 4, 0), Comm("send", "pp", four, 4, 0)
    found = match([_seat(0, [to, back, to]), _seat(1, [got, got, gave])])
    assert _pairs(found) == [(0, 0), (1, 2), (2, 1)]
    assert {(k.name, k.ranks) for k in found.kinds} == {("pair", (0, 1)), ("pair", (1, 0))}
    unsaid = [replace(c, peer=None) for c in (to, got)]
    assert len(match([_seat(0, [unsaid[0]]), _seat(1, [unsaid[1]])])) == 0  # nobody says which of the four


def test_a_send_that_is_done_before_its_recv_begins_has_not_waited() -> None:
    """Small messages leave at once: no wait of the sender, no doubt about clocks. An all-reduce cannot do that."""
    send, recv = Comm("send", "pp", ALL, 4, 1), Comm("recv", "pp", ALL, 4, 0)
    met = meet([_seat(0, [send]), _seat(1, [recv], begin=9_000)])
    assert met.wait.tolist() == [0, 0] and met.moves.tolist() == [10, 10]
    assert [(int(a.time[0]), int(a.until[0])) for a in met.arrivals] == [(0, 0), (9_000, 9_000)]  # all of both is transfer
    assert "crossed_collectives" not in [h.what for h in met.health]
    slow = meet([_seat(0, [replace(recv, peer=1)]), _seat(1, [replace(send, peer=0)], begin=5)])
    assert dict(zip(slow.matches.seat.tolist(), slow.wait.tolist(), strict=True)) == {0: 5, 1: 0}
    never = meet([_seat(0, [_reduce(4)]), _seat(1, [_reduce(4)], begin=9_000)])
    assert [a.time[0] for a in never.arrivals] == [-1, -1]
    assert "crossed_collectives" in [h.what for h in never.health]


def _truth(run: Run) -> dict[tuple[int, str, str, int], list[Moved]]:
    out: dict[tuple[int, str, str, int], list[Moved]] = {}
    for m in run.moved:
        for rank in np.flatnonzero(m.where).tolist():
            out.setdefault((m.step, m.name, m.axis, rank), []).append(m)
    return out


@pytest.mark.parametrize("mesh", ({"dp": 4}, {"dp_shard": 2, "tp": 2}, {"pp": 4}, {"pp": 2, "dp": 2}), ids=str)
def test_every_collective_of_a_cluster_with_its_true_arrivals(tmp_path: Path, mesh: dict[str, int]) -> None:
    run = simulate(Cluster(mesh=mesh, steps=3, layers=4, noise=0.05, slow_compute={1: 1.2}))
    there = []
    for rank, path in enumerate(write(run, tmp_path)):
        (file,) = of_file(path)
        there.append(Seat(rank, file.parts[0].work, file.parts[0].windows, file.host))
    met = meet(there)
    truth, seen = _truth(run), 0
    for seat, at in zip(there, met.arrivals, strict=True):
        work = seat.work
        rows = np.flatnonzero(work.comm_of >= 0)
        step = seat.windows.of_launch(work, int(seat.windows.edges[0]))
        count: dict[tuple[int, str, str, int], int] = {}
        for row in rows.tolist():
            comm = work.comm[work.comm_of[row]]
            key = (int(step[row]), comm.name, comm.axis, seat.rank)
            moved = truth[key][count.get(key, 0)]
            count[key] = count.get(key, 0) + 1
            last = float(moved.last[seat.rank])
            assert at.time[row] - work.start[row] == pytest.approx(max(0.0, last - moved.begin[seat.rank]), abs=2)
            seen += 1
    assert seen == sum(int(m.where.sum()) for m in run.moved)
    assert not met.health


def test_a_rank_whose_trace_begins_two_steps_later(tmp_path: Path) -> None:
    """The step that both have is split, the others are not."""
    run = simulate(Cluster(steps=3, layers=2))
    paths = write(run, tmp_path)
    begin = run.spans[-1].start[1] - 1  # of the mark of the last step
    data = json.loads(paths[1].read_text())
    data["traceEvents"] = [e for e in data["traceEvents"] if e["ts"] * 1000 >= begin]
    paths[1].write_text(json.dumps(data))
    result = explain(paths)
    by_step = {s.step: s.buckets for s in result.ranks[0].steps}
    assert any(n.endswith(".unsplit") for n in by_step[0]) and not any(n.endswith(".transfer") for n in by_step[0])
    assert any(n.endswith(".transfer") for n in by_step[2]) and not any(n.endswith(".unsplit") for n in by_step[2])
