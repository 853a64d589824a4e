"""Clocks from ends of collectives: the interval holds the truth, and is no wider than what nobody can know."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest

from headway.trace.part import of_file
from headway.trace.ranks.clock import LATENCY_NS, Clocks, clocks
from headway.trace.ranks.match import Seat, match
from headway.trace.ranks.wait import meet
from headway.trace.windows import Windows
from tests.trace.ranks.skews import Array, Case, seats
from tests.trace.simulate import BASE_NS, Cluster, simulate, write

MESHES = ({"dp": 2}, {"dp": 8}, {"dp": 4, "tp": 2}, {"pp": 2, "dp": 2, "tp": 2}, {"dp": 16})


def _case(seed: int) -> Case:
    """Skews of all kinds: offsets of microseconds to seconds, drift, jitter, a rank that is always last, ends that are far off."""
    rng = np.random.default_rng(seed)
    mesh = MESHES[seed % len(MESHES)]
    n, hop = prod(mesh.values()), 10 ** rng.uniform(3.3, 4.5)
    lag = np.zeros(n)
    if seed % 3 == 0:
        lag[rng.integers(n)] = 1e6
    return Case(
        mesh=mesh,
        offset=rng.normal(0, 10 ** rng.uniform(3, 9), n),
        drift=rng.normal(0, 2e-5, n) * (seed % 2),
        bias=rng.uniform(0, hop * np.log2(min(mesh.values())), n),  # ends of a tree: its leaves are later than its root
        jitter=10 ** rng.uniform(2, 4.5),
        hop=hop,
        lag=lag,
        wild=0.05 * (seed % 4 == 1),
        steps=int(rng.integers(2, 60)),
        seed=seed,
    )


def _found(case: Case) -> Clocks:
    where = seats(case)
    return clocks(where, match(where))[0]


def _miss(case: Case, found: Clocks) -> Array:
    """[2, ranks]: how far each clock is from the truth at the begin and the end, against rank 0's."""
    truth = case.ahead(np.array([0.0, case.steps * case.step_ns]))
    out: Array = np.abs(found.offset - (truth - truth[0]).T)
    return out


def test_the_interval_holds_the_truth_in_95_of_100_skews() -> None:
    held, width, off = [], [], []
    for seed in range(300):
        case = _case(seed)
        found = _found(case)
        half = found.error[found.clock, 0]
        miss = _miss(case, found)
        held.append((miss <= half + 2).all())  # of every rank of the case at once; 2 ns: whole numbers
        width.append(float(np.median(half[1:])) / (case.hop * (case.world**0.5) + case.jitter))
        off.append(float(miss[:, 1:].mean()) / (case.hop + case.jitter))
    assert np.mean(held) >= 0.95
    assert np.median(width) < 2.5  # hops that cannot be seen in the ends, and jitter: no wider
    assert np.median(off) < 0.7


@pytest.mark.parametrize("steps", (3, 6, 40, 200))
def test_the_interval_is_honest_where_jitter_is_all_there_is(steps: int) -> None:
    """No bias and almost no latency: what is left is the noise of the ends, whose deviation is 20 us."""
    rng = np.random.default_rng(steps)
    held, width = [], []
    for seed in range(100):
        case = Case(
            mesh={"dp": 4}, offset=rng.normal(0, 1e6, 4), drift=rng.normal(0, 1e-5, 4), bias=np.zeros(4), jitter=20_000.0, hop=100.0,
            late=1e5, steps=steps, each=4, seed=seed,
        )  # fmt: skip
        found = _found(case)
        half = found.error[found.clock, 0]
        held.append((_miss(case, found) <= half + 2).all())
        width.append(float(np.median(half[1:])))
    assert np.mean(held) >= 0.95
    assert np.median(width) < {3: 75_000, 6: 80_000, 40: 35_000, 200: 15_000}[steps]  # with 800 collectives a fraction of the jitter


def test_the_same_host_is_one_clock_unless_the_ends_say_otherwise() -> None:
    case = Case(mesh={"dp": 4}, offset=np.array([0.0, 0, 9e5, 9e5]), drift=np.zeros(4), bias=np.zeros(4), hosts=("a", "a", "b", "b"))
    found = meet(seats(case))
    assert found.clocks is not None
    assert found.clocks.clock.tolist() == [0, 0, 1, 1]
    assert found.clocks.source == ("host", "host", "collectives", "collectives")
    assert found.clocks.of(1)[:3] == (0, 0.0, 0.0)
    assert found.clocks.of(3)[0] == pytest.approx(9e5, abs=3_000)
    assert [h.what for h in found.health if h.what.startswith("clocks")] == ["clocks"]
    apart = meet(seats(replace(case, offset=np.array([0.0, 4e5, 9e5, 9e5]))))
    assert apart.clocks is not None
    assert apart.clocks.clock.tolist() == [0, 1, 2, 2]
    assert any(h.what == "clocks_of_one_host" and "(a)" in h.text for h in apart.health)


def test_hosts_that_are_not_named() -> None:
    """A few ranks are taken to share a clock if the ends agree; many are compared one by one."""
    few = Case(mesh={"dp": 4}, offset=np.zeros(4), drift=np.zeros(4), bias=np.zeros(4), hosts=("",) * 4)
    found = meet(seats(few))
    assert found.clocks is not None and found.clocks.source == ("presumed",) * 4
    assert [h.what for h in found.health] == ["hosts_unknown"]
    off = meet(seats(replace(few, offset=np.array([0.0, 0.0, 5e5, 0.0]))))
    assert off.clocks is not None and off.clocks.of(2)[0] == pytest.approx(5e5, abs=3_000)
    many = meet(seats(Case(mesh={"dp": 16}, offset=np.zeros(16), drift=np.zeros(16), bias=np.zeros(16), hosts=("",) * 16)))
    assert many.clocks is not None and set(many.clocks.source[1:]) == {"collectives"}


def test_ranks_that_share_nothing_stay_as_they_are() -> None:
    case = Case(mesh={"dp": 2, "tp": 1}, offset=np.array([0.0, 3e6]), drift=np.zeros(2), bias=np.zeros(2))
    alone = [replace(s, work=replace(s.work, comm=tuple(replace(c, ranks=(s.rank, 9)) for c in s.work.comm))) for s in seats(case)]
    found = meet(alone)
    assert found.clocks is not None
    assert found.clocks.of(1) == (0, 0.0, None, "none")
    assert all((a.time == -1).all() for a in found.arrivals)


def test_drift_is_followed() -> None:
    case = Case(mesh={"dp": 2}, offset=np.array([0.0, 1e6]), drift=np.array([0.0, 3e-5]), bias=np.zeros(2), steps=100)
    found = _found(case)
    offset, ppm, half, source = found.of(1)
    assert ppm == pytest.approx(30.0, abs=0.5) and source == "collectives"
    assert offset == pytest.approx(1e6 + 3e-5 * 100 * case.step_ns / 2, abs=2_000)
    assert half is not None and half < LATENCY_NS / 5


def test_two_windows_of_a_run_are_two_seats_on_one_clock() -> None:
    """Rank 1 was traced in one go, the others twice."""
    case = Case(mesh={"dp": 4}, offset=np.array([0.0, 2e6, -3e6, 5e8]), drift=np.array([0.0, 2e-5, 0, -1e-5]), bias=np.zeros(4), steps=60)
    there = []
    for seat in seats(case):
        for half in (slice(0, 90), slice(90, 180)) if seat.rank != 1 else (slice(0, 180),):
            part = {
                f: getattr(seat.work, f)[half]
                for f in ("start", "end", "launched", "level", "track", "linked", "comm_of", "number", "name")
            }
            steps = slice(half.start // 3, half.stop // 3)
            edges = seat.windows.edges[steps.start : steps.stop + 1]
            windows = Windows(seat.windows.steps[steps], edges, edges[1:])
            there.append(replace(seat, work=replace(seat.work, row=np.arange(half.stop - half.start), **part), windows=windows))
    found = meet(there)
    assert len(found.matches) == 180 and found.clocks is not None
    assert found.clocks.clock.tolist() == [0, 0, 1, 2, 2, 3, 3]
    truth = case.ahead(np.array([0.0, case.steps * case.step_ns])).T
    assert (np.abs(found.clocks.offset[:, [0, 2, 3, 5]] - truth) <= found.clocks.error[:, 0] + 2).all()


def test_waits_below_the_error_of_the_clocks_are_not_claimed() -> None:
    case = Case(mesh={"dp": 2}, offset=np.array([0.0, 1e6]), drift=np.zeros(2), bias=np.zeros(2), late=100.0)
    near = meet(seats(case))
    assert near.wait.sum() == 0
    assert any(h.what == "wait_withheld" and h.count == len(near.matches) for h in near.health)
    for seat, at in zip(seats(case), near.arrivals, strict=True):
        assert (at.until > at.time).all() and (at.time == seat.work.start).all()  # unsplit until the last arrival is certain
    far = meet(seats(replace(case, lag=np.array([0.0, 5e6]))))
    late = far.wait.reshape(-1, 2)
    assert late[:, 1].max() == 0
    assert late[:, 0] == pytest.approx(np.full(len(late), 5e6), rel=0.01)


def test_cpus_of_one_host_share_its_clock_whatever_the_scheduler_does() -> None:
    case = Case(mesh={"dp": 2}, offset=np.zeros(2), drift=np.zeros(2), bias=np.array([0.0, 4e5]), hosts=("a", "a"), steps=100)
    there = [replace(s, work=replace(s.work, device="cpu")) for s in seats(case)]
    found = meet(there)
    assert found.clocks is not None and found.clocks.clock.tolist() == [0, 0] and not found.health


def test_clocks_that_jump_leave_collectives_unsplit() -> None:
    """Half of the trace one host's clock is 20 ms off: a line cannot follow, ends come before begins, and no wait is made up."""
    case = Case(mesh={"dp": 2}, offset=np.zeros(2), drift=np.zeros(2), bias=np.zeros(2), steps=40)
    first, second = seats(case)
    jump = np.where(np.arange(len(second.work)) >= 60, 20_000_000, 0)
    moved = replace(second, work=replace(second.work, start=second.work.start + jump, end=second.work.end + jump))
    found = meet([first, moved])
    assert any(h.what in ("crossed_collectives", "wait_withheld") for h in found.health)
    assert found.wait.max(initial=0) < 20_000_000


@pytest.mark.parametrize("mesh", ({"dp": 4}, {"dp": 2, "tp": 2}), ids=str)
def test_waits_over_hosts_are_true_to_within_their_error(tmp_path: Path, mesh: dict[str, int]) -> None:
    """A cluster of one-rank hosts whose clocks are milliseconds off and drift: the split is that of true time."""
    cluster = Cluster(
        mesh=mesh, ranks_per_host=1, steps=12, layers=2, kernels=2, noise=0.1, slow_compute={2: 1.3}, end_jitter_ns=1_000.0,
        offset_ns={1: 4e6, 2: -7e6, 3: 2e9}, drift_ppm={1: 15.0, 3: -40.0}, end_bias_ns={1: 2_000.0},
    )  # fmt: skip
    run = simulate(cluster)
    there = []
    for rank, path in enumerate(write(run, tmp_path)):
        (file,) = of_file(path)
        there.append(Seat(rank, file.parts[0].work, file.parts[0].windows, file.host))
    met = meet(there)
    true: dict[int, list[tuple[float, float]]] = {r: [] for r in range(4)}  # of each rank: begin, and how long until the last one began
    for m in run.moved:
        for rank in np.flatnonzero(m.where).tolist():
            true[rank].append((float(run.local(rank, m.begin[rank])), float(m.last[rank] - m.begin[rank])))
    claimed = 0
    for seat, at in zip(there, met.arrivals, strict=True):
        begin, wait = (np.array(c) for c in zip(*sorted(true[seat.rank]), strict=True))
        rows = np.flatnonzero(seat.work.comm_of >= 0)
        assert (seat.work.start[rows] - BASE_NS).tolist() == begin.tolist()
        found = at.time[rows] - seat.work.start[rows]
        known = (at.time[rows] >= 0) & (at.until[rows] == at.time[rows])
        assert met.clocks is not None
        error = met.clocks.error[met.clocks.clock[seat.rank]].max()
        assert np.abs(found - wait)[known].max() <= error + 2
        claimed += int((known & (found > 0)).sum())
    assert claimed > 0.3 * sum(map(len, true.values()))
    assert not [h for h in met.health if h.what == "crossed_collectives"]
