"""Sizes of one configuration: weak and strong, efficiency, what is lost, what is predicted; and the truth of predictions."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from headway.bench.scaling import of_made
from headway.spec.scaling import Point
from headway.trace.scaling import sheet
from headway.trace.scaling.growth import LEAST_SIZES, terms
from headway.trace.scaling.ladder import ladder


def points(sizes: list[int], batches: list[float], steps: list[float]) -> list[Point]:
    return [Point(devices=n, global_batch=b, step=t) for n, b, t in zip(sizes, batches, steps, strict=True)]


def test_weak_and_strong_and_mixed() -> None:
    assert ladder("a", points([1, 2, 4], [8, 16, 32], [1, 1.1, 1.2])).mode == "weak"
    assert ladder("a", points([1, 2, 4], [8, 8, 8], [1, 0.6, 0.4])).mode == "strong"
    mixed = ladder("a", points([1, 2, 4], [8, 8, 16], [1, 0.6, 0.6]))
    assert mixed.mode == "mixed" and any("several" in n or "mix" in n for n in mixed.notes)


def test_efficiency_is_samples_a_second_and_device() -> None:
    weak = ladder("a", points([4, 1, 2], [32, 8, 16], [1.25, 1.0, 1.0]))
    assert [p.devices for p in weak.points] == [1, 2, 4] and weak.efficiency == pytest.approx((1, 1, 0.8))
    strong = ladder("a", points([1, 2, 4], [8, 8, 8], [1.0, 0.5, 0.5]))
    assert strong.efficiency == pytest.approx((1, 1, 0.5))


@pytest.mark.parametrize("batch", [lambda n: 8.0 * n, lambda n: 512.0], ids=["weak", "strong"])
@pytest.mark.parametrize("grows", ["log", "ring", "skew"])
def test_a_law_is_continued(batch, grows: str) -> None:  # type: ignore[no-untyped-def]
    def step(n: int) -> float:
        t = terms(n, batch(n))
        return 0.02 * t["work"] + 0.01 + {"log": 0.004, "ring": 0.0002, "skew": 0.01}[grows] * t[grows]

    sizes = [8, 16, 32, 64, 128, 256]
    found = ladder("a", points(sizes, [batch(n) for n in sizes], [step(n) for n in sizes]))
    for p, n in zip(found.predictions, (512, 1024), strict=True):
        assert p.devices == n and p.global_batch == batch(n)
        assert p.step == pytest.approx(step(n), rel=0.05) and p.interval[0] <= step(n) <= p.interval[1]
    assert sum(found.terms.values()) == pytest.approx(step(256), rel=0.01)
    (held,) = found.held_out
    assert held.step == step(256) and held.error == pytest.approx(held.predicted / held.step - 1)


def test_what_is_lost_sums_to_the_loss() -> None:
    small = Point(devices=2, global_batch=16, step=100, buckets={"compute.gemm": 80, "comm.wait": 20}, profiled=100)
    large = Point(devices=4, global_batch=32, step=140, buckets={"compute.gemm": 82, "comm.wait": 50, "idle.launch": 8}, profiled=140)
    (loss,) = ladder("a", [small, large]).losses
    assert list(loss.buckets.items())[:2] == [("comm.wait", 30), ("idle.launch", 8)] and sum(loss.buckets.values()) == 40
    strong = dataclasses.replace(large, global_batch=16, buckets={"compute.gemm": 40, "comm.wait": 30}, profiled=70)
    (loss,) = ladder("a", [small, strong]).losses
    assert sum(loss.buckets.values()) == 70 - 100 / 2


def test_few_sizes_say_so() -> None:
    two = ladder("a", points([1, 2], [8, 16], [1, 1.1]))
    assert not two.predictions and not two.terms and any(f"need {LEAST_SIZES}" in n for n in two.notes)
    assert not ladder("a", points([1, 2, 4], [8, 16, 32], [1, 1.1, 1.2])).held_out, "two sizes are too few to predict a third"


@pytest.mark.parametrize(("weak", "least"), [(True, 0.97), (False, 0.92)])
def test_the_largest_of_made_ladders_is_predicted(weak: bool, least: float) -> None:
    found = of_made(weak=weak, law="one growth", noise=0.003, ladders=150)
    assert found["within_5_percent"] >= least and found["interval_holds"] >= 0.95


def test_published_ladders_are_predicted_within_ten_percent(shared: Path) -> None:
    found, _ = sheet.ladders(shared / "published" / "published_runs.csv")
    errors = {ladder.name: held.error for ladder in found for held in ladder.held_out}
    assert len(errors) >= 12 and max(map(abs, errors.values())) < 0.10
