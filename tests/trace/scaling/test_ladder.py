from __future__ import annotations

from dataclasses import replace

import pytest

from headway.spec.errors import TraceError
from headway.spec.scaling import Kind, Point
from headway.trace.scaling.ladder import ladders
from headway.trace.scaling.scale import of_points


def point(size: int, batch: float | None, time: float = 1.0, *, family: str = "dit", compute: int = 0, **more: str) -> Point:
    buckets = {"compute.gemm": compute} if compute else {}
    configuration = {k: v for k, v in more.items() if k != "micro"}
    return Point(
        source=f"{family}-{size}-{batch}-{time}", family=family, configuration=configuration, size=size, batch=batch, time=time,
        buckets=buckets, micro_batch=more.get("micro", ""),
    )  # fmt: skip


def test_equal_batch_per_device_is_weak() -> None:
    (g,), apart = ladders([point(n, 4 * n) for n in (8, 16, 32)])
    assert (g.kind, [p.size for p in g.points], apart) == ("weak", [8, 16, 32], [])
    assert "batch per device 4" in g.why


def test_equal_global_batch_is_strong() -> None:
    (g,), _ = ladders([point(n, 256) for n in (32, 8, 16)])
    assert (g.kind, [p.size for p in g.points]) == ("strong", [8, 16, 32]) and "global batch 256" in g.why


def test_batches_that_are_nearly_equal_are_set_right() -> None:
    (g,), _ = ladders([point(8, 8 * 16, 1.0), point(16, 16 * 18, 1.125)])
    assert g.kind == "weak" and "nearly equal" in g.why
    assert [p.time for p in g.points] == pytest.approx([1.0, 1.0])


def test_a_grid_of_both_gives_both() -> None:
    groups, _ = ladders([point(8, 32), point(16, 32), point(16, 64), point(32, 128)])
    assert sorted((g.kind, tuple(p.size for p in g.points)) for g in groups) == [("strong", (8, 16)), ("weak", (8, 16, 32))]


def test_neither_is_refused_with_the_batches() -> None:
    with pytest.raises(TraceError, match=r"neither the global batch nor the batch per device.*8: 32, 16: 100"):
        of_points([point(8, 32), point(16, 100)])


def test_one_size_is_refused() -> None:
    with pytest.raises(TraceError, match="one size only"):
        of_points([point(8, 32), point(8, 64)])


def test_what_keeps_a_size_off_the_ladder_is_said() -> None:
    points = [point(n, 4 * n, device="cpu (x86_64, 1 threads)") for n in (2, 4)] + [point(1, 4, device="cpu (x86_64, 2 threads)")]
    groups, (alone,) = ladders([points[2], *points[:2]])
    assert len(groups) == 1 and alone == (
        "dit: one size only (1 device; dit-1-4-1.0); it is another configuration than dit-2-8-1.0: "
        "device is cpu (x86_64, 2 threads), there cpu (x86_64, 1 threads)"
    )
    _, (alone,) = ladders([*points[:2], replace(points[0], size=1, relative=True)])
    assert "its time is counted in another unit" in alone
    _, (alone,) = ladders([*points[:2], point(1, 4, a="1", b="2", c="x" * 99)])
    assert "a is 1, there not given; " in alone and alone.endswith("..., there not given; 1 more differ")


def test_without_a_batch_compute_tells() -> None:
    weak, _ = ladders([point(8, None, compute=1000), point(32, None, compute=1010)])
    strong, _ = ladders([point(8, None, compute=1000), point(32, None, compute=255)])
    assert (weak[0].kind, strong[0].kind) == ("weak", "strong")
    groups, apart = ladders([point(8, None, compute=1000), point(32, None, compute=500)])
    assert not groups and "--kind" in apart[0]
    groups, _ = ladders([point(8, None), point(32, None)], "weak")
    assert groups[0].why == "as asked"


def test_configurations_stay_apart_and_are_told_apart() -> None:
    groups, _ = ladders([point(n, 4 * n, tp=t, precision="bf16") for n in (8, 16) for t in ("1", "2")])
    assert sorted(g.name for g in groups) == ["dit, tp 1", "dit, tp 2"]


def test_two_measurements_of_a_size_are_one_and_said() -> None:
    (g,), _ = ladders([point(8, 32, 1.0), point(16, 64, 1.0), point(16, 64, 1.21)])
    assert g.points[1].time == pytest.approx(1.105) and len(g.sources[1]) == 2
    assert "mean of 2 measurements that differ by 21.0%" in g.notes[0]


def test_a_micro_batch_that_changes_is_said() -> None:
    (g,), _ = ladders([point(8, 256, micro="4"), point(16, 256, micro="1")])
    assert "micro-batch changes" in g.notes[0]


def test_efficiency_and_what_is_lost() -> None:
    made = of_points([point(n, 4 * n, t, compute=round(t * 1e9)) for n, t in ((8, 1.0), (16, 1.25), (32, 1.6), (64, 2.0))])
    (ladder,) = made.ladders
    assert [r.efficiency for r in ladder.rungs] == pytest.approx([1, 0.8, 0.625, 0.5])
    assert [r.throughput for r in ladder.rungs] == pytest.approx([32, 51.2, 80, 128])
    assert ladder.rungs[-1].lost == {"compute.gemm": 1_000_000_000}
    assert [p.size for p in ladder.predictions] == [128, 256] and all(p.low <= p.time <= p.high for p in ladder.predictions)
    assert "50.0% of the throughput" in ladder.limits


def test_strong_losses_are_against_a_share_of_the_smallest() -> None:
    made = of_points([point(n, 256, t, compute=round(t * 1e9)) for n, t in ((8, 1.0), (16, 0.6))])
    (ladder,) = made.ladders
    assert ladder.rungs[1].efficiency == pytest.approx(1 / 1.2)
    assert ladder.rungs[1].lost == {"compute.gemm": 100_000_000}
    assert ladder.law is None and ladder.predictions == () and "not enough sizes" in ladder.notes[0]


def test_points_off_any_law_are_said_to_be() -> None:
    times = [1.0, 1.15, 1.0, 1.15, 1.0]
    (ladder,) = of_points([point(8 << i, 4 * (8 << i), t) for i, t in enumerate(times)]).ladders
    assert any("the law does not fit" in note for note in ladder.notes) and ladder.predictions


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ((1.0, 1.01, 1.5, 40.0), "the law does not fit, points lie"),
        ((1.0, 1.0, 1.0, 1.35), "the largest size, foretold from the others, is -2"),
        ((1.0, 1.3, 1.0), "the step at 64 could take anything within a factor of"),
    ],
)
@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_what_the_points_do_not_bear_is_not_predicted(times: tuple[float, ...], why: str, kind: Kind) -> None:
    shrink = [1.0 if kind == "weak" else 1.0 / (1 << i) for i in range(len(times))]
    points = [point(8 << i, 4.0 * (8 << i) if kind == "weak" else 64.0, t * s) for i, (t, s) in enumerate(zip(times, shrink, strict=True))]
    (ladder,) = of_points(points).ladders
    assert ladder.predictions == () and ladder.law is not None
    assert [n for n in ladder.notes if n.startswith("nothing is predicted: ") and (why in n or kind == "strong")]
    assert "By the law" not in ladder.limits and "may be" not in ladder.limits
