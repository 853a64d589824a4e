from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.stats.intervals import mean_interval
from headway.stats.paired import Paired, b_goes_first, children_cpu_ns, cpu_ns, run_paired, wall_ns


class Machine:
    """A clock that moves only when work is done on it, and whose speed drifts."""

    def __init__(self, drift: float = 0.0, second: float = 1.0) -> None:
        self.now, self.speed, self.drift, self.second = 0.0, 1.0, drift, second
        self.log: list[str] = []

    def run(self, name: str, work: float) -> None:
        self.now += work * self.speed * (self.second if len(self.log) % 2 else 1.0)
        self.speed *= 1 + self.drift
        self.log.append(name)

    def clock(self) -> int:
        return round(self.now)


def paired(machine: Machine, repeats: int, **options: object) -> Paired:
    return run_paired(lambda: machine.run("a", 1e6), lambda: machine.run("b", 1.1e6), repeats=repeats, clock=machine.clock, **options)  # type: ignore[arg-type]


def test_pairs_alternate_after_the_warmup() -> None:
    machine = Machine()
    result = paired(machine, 4, warmup=1)
    assert "".join(machine.log) == "ab" + "ab" + "ba" + "ab" + "ba"
    assert result.b_first.tolist() == [False, True, False, True]
    assert result.ratios == pytest.approx([1.1] * 4)


def test_drift_cancels() -> None:
    """The machine gets 2 % slower with every run: unpaired halves would differ by a factor, AAAA BBBB by 8 %."""
    result = paired(Machine(drift=0.02), 20)
    interval = result.mean()
    assert interval.estimate == pytest.approx(1.1, rel=1e-6)
    assert interval.contains(1.1)
    assert result.total().estimate == pytest.approx(1.1, rel=0.02)
    assert result.second_over_first().estimate == pytest.approx(1.02, rel=1e-6)


def test_an_effect_of_order_cancels_and_shows() -> None:
    """The second run of a pair is 30 % slower, whichever it is: AB AB AB would find B 43 % slower instead of 10 %."""
    result = paired(Machine(second=1.3), 20)
    assert result.mean().estimate == pytest.approx(1.1, rel=1e-6)
    assert result.second_over_first().estimate == pytest.approx(1.3, rel=1e-6)


@given(st.integers(2, 200), st.integers(0, 1000))
def test_random_order_is_balanced_and_keyed(repeats: int, seed: int) -> None:
    first = b_goes_first(repeats, order="random", seed=seed)
    blocks = first[: repeats // 2 * 2].reshape(-1, 2)
    assert (blocks.sum(axis=1) == 1).all()
    assert (first == b_goes_first(repeats, order="random", seed=seed)).all()
    assert (first[: repeats - 1] == b_goes_first(repeats - 1, order="random", seed=seed)).all()


def test_random_order_differs_from_seed_to_seed() -> None:
    assert len({tuple(b_goes_first(40, order="random", seed=s)) for s in range(20)}) == 20


def test_intervals_of_a_pair_cover() -> None:
    rng = np.random.default_rng(3)
    hits = {"mean": 0, "median": 0}
    for _ in range(400):
        a = rng.lognormal(14, 0.5, 16)
        b = 1.03 * a * rng.lognormal(0, 0.02, 16)
        result = Paired(a_ns=a.astype(np.int64), b_ns=b.astype(np.int64), b_first=b_goes_first(16))
        hits["mean"] += result.mean().contains(1.03)
        hits["median"] += result.median().contains(1.03)
    assert hits["mean"] >= 0.95 * 400 - 3.5 * (400 * 0.05 * 0.95) ** 0.5
    assert hits["median"] >= 0.95 * 400 - 3.5 * (400 * 0.05 * 0.95) ** 0.5


def test_real_clock_sees_three_times_the_work() -> None:
    def work(n: int) -> object:
        return sum(i & 1 for i in range(n))

    ratio = run_paired(lambda: work(30_000), lambda: work(90_000), repeats=15, clock=cpu_ns).median()
    assert 2 < ratio.estimate < 4


def test_clocks_run() -> None:
    for clock in (cpu_ns, wall_ns, children_cpu_ns):
        assert clock() <= clock()


def test_refuses_what_cannot_be_measured() -> None:
    with pytest.raises(ValueError, match="at least 2 pairs"):
        run_paired(lambda: None, lambda: None, repeats=1)
    with pytest.raises(ValueError, match="run A of pair 0 took no time"):
        run_paired(lambda: None, lambda: None, repeats=2, clock=lambda: 5)


def test_an_error_of_a_run_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        run_paired(lambda: 1 // 0, lambda: None, repeats=2)


def test_every_pair_is_kept() -> None:
    machine = Machine()
    spikes = iter([1e6, 1e6, 1e9, 1e6] * 5)
    result = run_paired(lambda: machine.run("a", next(spikes)), lambda: machine.run("b", 1e6), repeats=18, warmup=0, clock=machine.clock)
    assert (result.a_ns >= 1e9).sum() == 4
    assert mean_interval(result.a_ns).n == 18
    assert result.median().estimate == pytest.approx(1.0)  # spikes do not move it
