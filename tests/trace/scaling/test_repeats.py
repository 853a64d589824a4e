from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.spec.scaling import Point
from headway.trace.scaling import repeats
from headway.trace.scaling.scale import of_points
from tests.trace.scaling.test_ladder import point

BUCKETS = {"compute.gemm": 700_000_001, "comm.wait": 299_999_999}


def measured(size: int, time: float, *, buckets: dict[str, int] | None = None, batch: float | None = None, **more: object) -> Point:
    return replace(point(size, batch or 4.0 * size, time), buckets=buckets or {}, **more)  # type: ignore[arg-type]


def test_every_part_is_of_all_measurements() -> None:
    other = {"compute.gemm": 900_000_000, "idle.launch": 500_000_000}
    points = [
        measured(8, 1.0, buckets=BUCKETS, mfu=0.4, error=0.001, num_steps=5),
        measured(16, 1.0, buckets=BUCKETS, mfu=0.4, error=0.001, num_steps=5),
        measured(16, 1.4, buckets=other, mfu=0.2, error=0.001, num_steps=5),
    ]
    (ladder,) = of_points(points).ladders
    rung = ladder.rungs[1]
    assert rung.time == pytest.approx(1.2) and rung.mfu == pytest.approx(0.3) and rung.throughput == pytest.approx(64 / 1.2)
    assert rung.buckets == {"comm.wait": 150_000_000, "compute.gemm": 800_000_000, "idle.launch": 250_000_000}
    assert sum(rung.buckets.values()) / 1e9 == pytest.approx(rung.time)
    assert sum(rung.lost.values()) == sum(rung.buckets.values()) - sum(BUCKETS.values())
    assert rung.low is not None and rung.low < 1.0 and rung.high is not None and rung.high > 1.4, "two runs that differ so much tell little"
    assert len(rung.sources) == 2 and any("16: mean of 2 measurements that differ by 40.0%" in n for n in ladder.notes)


def test_buckets_are_set_right_with_the_time() -> None:
    points = [measured(8, 1.0, buckets=BUCKETS), measured(16, 1.125, batch=16 * 4.5, buckets={"compute.gemm": 1_125_000_000})]
    (ladder,) = of_points(points).ladders
    assert ladder.rungs[1].buckets == {"compute.gemm": 1_000_000_000} and sum(ladder.rungs[1].lost.values()) == 0


@given(st.lists(st.tuples(st.floats(0.5, 2.0), st.dictionaries(st.sampled_from("abc"), st.integers(0, 10**12))), min_size=1, max_size=5))
def test_buckets_add_up_to_the_mean_of_the_sums(drawn: list[tuple[float, dict[str, int]]]) -> None:
    points = [measured(8, time, buckets=buckets) for time, buckets in drawn]
    split = [p.buckets for p in points if p.buckets]
    total = sum(sum(b.values()) for b in split)
    assert sum(repeats.mean(points).buckets.values()) == ((2 * total + len(split)) // (2 * len(split)) if split else 0)


def test_many_sizes_with_repeats_share_one_note() -> None:
    points = [measured(8 * n, 1.0 + 0.01 * k) for n in range(1, 9) for k in range(3)]
    (ladder,) = of_points(points).ladders
    assert [n for n in ladder.notes if "measurements" in n] == [
        "8 sizes are means of 3 measurements each, which differ by up to 2.0% (at 8)"
    ]
