from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headway.spec.breakdown import Breakdown, RankBreakdown, StepBreakdown
from headway.trace.diff.steps import change, mean_interval, table, traced, untraced, wall


def steps_of(*walls: int, first: int = 0, buckets: bool = True) -> tuple[StepBreakdown, ...]:
    return tuple(
        StepBreakdown(step=first + i, start_ns=0, wall_ns=w, buckets={"compute.gemm": w} if buckets else {}, phases={"forward": w})
        for i, w in enumerate(walls)
    )


def run_of(*ranks: tuple[StepBreakdown, ...]) -> Breakdown:
    return Breakdown(ranks=tuple(RankBreakdown(rank=i, device="cuda:0", steps=s) for i, s in enumerate(ranks)))


def test_a_first_step_that_stands_out_is_left_out_and_named() -> None:
    found = traced(run_of(steps_of(300, 100, 101, 99, first=7)))
    assert found.left_out == (7,) and len(found.rows) == 3


def test_a_first_step_like_the_others_stays() -> None:
    assert traced(run_of(steps_of(104, 100, 101, 99))).left_out == ()
    assert traced(run_of(steps_of(300, 100))).left_out == (), "of two steps nobody knows which is the odd one"


def test_steps_that_not_every_rank_has_are_left_out() -> None:
    found = traced(run_of(steps_of(100, 100, 100, first=3), steps_of(100, 100, 100, first=4)))
    assert [row[0].step for row in found.rows] == [4, 5] and found.left_out == (3, 6)


def test_ranks_without_a_common_step_are_compared_in_order() -> None:
    found = traced(run_of(steps_of(100, 110, first=0), steps_of(120, 130, first=10)))
    assert [[s.wall_ns for s in row] for row in found.rows] == [[100, 120], [110, 130]]


def test_traced_and_other_steps_are_kept_apart() -> None:
    b = run_of((*steps_of(100, 100), *steps_of(50, 50, 50, first=2, buckets=False)))
    assert len(traced(b).rows) == 2 and len(untraced(b).rows) == 3
    assert len(untraced(b, frozenset({2})).rows) == 2


TABLES = st.lists(st.lists(st.integers(0, 10**12), min_size=3, max_size=3), min_size=1, max_size=6)


@given(TABLES, TABLES)
def test_a_table_adds_up_to_the_difference_to_the_nanosecond(a: list[list[int]], b: list[list[int]]) -> None:
    def made(tables: list[list[int]]) -> Breakdown:
        rows = [
            StepBreakdown(step=i, start_ns=0, wall_ns=sum(t), buckets={f"idle.{j}": v for j, v in enumerate(t)}, phases={})
            for i, t in enumerate(tables)
        ]
        return run_of(tuple(rows))

    one, other = traced(made(a)), traced(made(b))
    rows = table(one, other, lambda s: s.buckets)
    mean_a, mean_b = mean_interval(one)[0], mean_interval(other)[0]
    assert sum(c.a for c in rows) == mean_a and sum(c.b for c in rows) == mean_b
    assert sum(c.delta for c in rows) == mean_b - mean_a
    assert [abs(c.delta) for c in rows] == sorted((abs(c.delta) for c in rows), reverse=True)


def verdict(rng: np.random.Generator, shift: float, n: int, deviation: float, memory: float = 0.0) -> str:
    def walls(mean: float) -> list[int]:
        noise = rng.standard_normal(n)
        for i in range(1, n):
            noise[i] = memory * noise[i - 1] + np.sqrt(1 - memory**2) * noise[i]
        return np.rint(mean * (1 + deviation * noise)).astype(int).tolist()

    a, b = (traced(run_of(steps_of(*walls(m)))) for m in (1e8, 1e8 * (1 + shift)))
    return change("step", mean_interval(a)[0], mean_interval(b)[0], a.moments(wall, "step"), b.moments(wall, "step")).verdict


def test_noise_is_called_noise() -> None:
    rng = np.random.default_rng(0)
    for n, memory in ((3, 0.0), (10, 0.0), (30, 0.0), (200, 0.5)):
        found = [verdict(rng, 0.0, n, 0.03, memory) for _ in range(200)]
        assert found.count("noise") >= 190, (n, memory, found.count("noise"))


def test_a_change_of_five_per_cent_is_found() -> None:
    rng = np.random.default_rng(1)
    for n, deviation in ((10, 0.02), (5, 0.01), (40, 0.04)):
        found = [verdict(rng, 0.05, n, deviation) for _ in range(200)]
        assert found.count("real") >= 190, (n, deviation, found.count("real"))


def test_one_step_each_is_no_verdict() -> None:
    assert verdict(np.random.default_rng(2), 0.05, 1, 0.01) == "unknown"
