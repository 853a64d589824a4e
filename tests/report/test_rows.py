from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.report.account import chart_parts
from headway.report.rows import KINDS, collectives, fold, headline, health_lines, hidden, partition, totals, warmup_text
from headway.report.series import MAX_BINS, MAX_HEAT_CELLS, MAX_HEAT_ROWS, extremes, heat, series
from headway.spec.breakdown import Breakdown, Health, RankBreakdown, StepBreakdown
from tests.report.examples import breakdowns, example, mixed


@given(breakdowns(), st.sampled_from(KINDS), st.sampled_from([None, 2, 3]))
def test_a_table_adds_up_to_the_wall(b: Breakdown, kind: str, limit: int | None) -> None:
    part = partition(b, kind, limit=limit)
    wall = sum(s.wall_ns for r in b.ranks for s in r.steps if getattr(s, kind))
    top = [r for r in part.rows if r.depth == 0]
    assert part.wall_ns == wall == sum(r.total_ns for r in top)
    for i, mean in enumerate(part.rank_wall_ns):
        assert math.isclose(mean, sum(r.rank_ns[i] for r in top), rel_tol=1e-9, abs_tol=1e-3)
    for i, row in enumerate(part.rows):  # a head is the sum of the rows below it, down to the next head
        if row.depth == 0 and i + 1 < len(part.rows) and part.rows[i + 1].depth == 1:
            below = [r.depth for r in part.rows[i + 1 :]] + [0]
            assert row.total_ns == sum(r.total_ns for r in part.rows[i + 1 : i + 1 + below.index(0)])


def test_a_module_without_a_name_is_a_row() -> None:
    step = StepBreakdown(step=0, start_ns=0, wall_ns=7, buckets={}, phases={}, modules={"": 7})
    part = partition(Breakdown(ranks=(RankBreakdown(rank=0, device="cpu", steps=(step,)),)), "modules")
    assert [(r.label, r.total_ns) for r in part.rows] == [("(no module)", 7)]


@given(breakdowns(), st.sampled_from(KINDS))
def test_a_chart_holds_every_nanosecond(b: Breakdown, kind: str) -> None:
    data = series(b, kind)
    part = partition(b, kind)
    if data is None:
        assert part.num_steps == 0
        return
    everyone = data["views"][0] if len(data["views"]) > 1 else data["views"][-1]
    assert sum(everyone["wall"]) == part.wall_ns
    assert sum(everyone["count"]) == part.num_steps
    for view in data["views"]:
        for i, wall in enumerate(view["wall"]):
            assert sum(cells[i] for cells in view["cells"]) == wall
            assert view["max"][i] <= wall
    assert len(data["names"]) == len(data["colours"]) == len(everyone["cells"])


@given(breakdowns())
def test_a_row_points_to_its_parts_of_the_chart(b: Breakdown) -> None:
    part = partition(b, "buckets")
    names = list(totals(b, "buckets"))
    for row, places in zip(part.rows, chart_parts(part), strict=True):
        want = [i for i, n in enumerate(names) if (n.partition(".")[0] == row.name if row.depth == 0 else n == row.name)]
        assert places == want


def test_what_cannot_be_trusted_is_one_neutral_part_of_the_chart() -> None:
    doubt = Health(what="no_launches", count=1, withholds=("idle", "comm.all_reduce"))
    b = dataclasses.replace(example(2, 3), health=(doubt,))
    plain, veiled = series(example(2, 3), "buckets"), series(b, "buckets")
    assert plain is not None and veiled is not None
    gone = [n for n in plain["names"] if n.startswith(("idle.", "comm.all_reduce."))]
    assert gone and veiled["names"] == [*(n for n in plain["names"] if n not in gone), "(not shown)"]
    view, before = veiled["views"][0], plain["views"][0]
    assert view["wall"] == before["wall"] == [sum(cells) for cells in zip(*view["cells"], strict=True)]
    part = partition(b, "buckets")
    for row, places in zip(part.rows, chart_parts(part), strict=True):
        names = {veiled["names"][k] for k in places}
        want = {n for n in plain["names"] if n == row.name or (row.depth == 0 and n.startswith(f"{row.name}."))}
        assert names == {"(not shown)" if n in gone else n for n in want}
    grid = heat(b)
    assert grid is not None and "idle" not in grid["metrics"] and "compute" in grid["metrics"]


def test_many_steps_are_binned_and_said_so() -> None:
    b = example(3, 1000)
    data = series(b, "buckets")
    assert data is not None
    assert len(data["bins"]) <= MAX_BINS
    assert data["bins"][0] == [100, 104] and data["bins"][-1][1] == 1099
    assert "mean of 5 steps" in data["note"]
    slowest = max(s.wall_ns for r in b.ranks for s in r.steps)
    assert max(data["views"][0]["max"]) == slowest  # an outlier stays visible
    grid = heat(b)
    assert grid is not None
    assert max(v for row in grid["metrics"]["step time"] for v in row) == slowest
    assert "longest of 5 steps" in grid["note"]


def test_many_ranks_show_the_slowest_and_all_in_the_heat_map() -> None:
    b = example(300, 2)
    data, grid = series(b, "buckets"), heat(b)
    assert data is not None and grid is not None
    assert len(data["views"]) == 17 and "of 300 ranks" in data["note"]
    means = {f"r{r.rank}": sum(s.wall_ns for s in r.steps) for r in b.ranks}
    assert max(means, key=means.__getitem__) in [v["label"] for v in data["views"]]
    assert min(means, key=means.__getitem__) in [v["label"] for v in data["views"]]
    assert len(grid["rows"]) <= MAX_HEAT_ROWS
    assert grid["rows"][0] == "r0-r2"
    assert len(grid["rows"]) * len(grid["bins"]) <= MAX_HEAT_CELLS


def test_extremes_are_the_slowest_and_the_fastest_in_order() -> None:
    means = [5.0, 9.0, 1.0, 7.0, 3.0, 8.0]
    assert extremes(means, 6) == [0, 1, 2, 3, 4, 5]
    assert extremes(means, 4) == [1, 2, 3, 5]


def test_unprofiled_steps_count_for_phases_only() -> None:
    b = mixed()
    assert (partition(b, "buckets").num_steps, partition(b, "phases").num_steps) == (5, 40)
    h = headline(b)
    assert (h.num_steps, h.num_profiled) == (40, 5)


def test_headline_prefers_the_summary_and_takes_the_median_of_steps_otherwise() -> None:
    b = example(1, 3)
    mfus = sorted(s.mfu for s in b.ranks[0].steps if s.mfu is not None)
    assert headline(b).mfu == mfus[1]
    assert headline(dataclasses.replace(b, summary={"mfu": 0.5})).mfu == 0.5
    assert headline(Breakdown(ranks=())).median_ns is None


def test_fold_keeps_the_largest_and_never_hides_a_name() -> None:
    sums = {"a": 1, "(3 smaller)": 50, "b": 9, "c": 2, "d": 3}
    folded = fold(sums, 3)
    assert list(folded) == ["(3 smaller)", "b", "(3 smaller)*"]
    assert sorted(m for members in folded.values() for m in members) == sorted(sums)


def test_communication_is_a_mean_over_profiled_steps() -> None:
    b = example(2, 20)
    assert hidden(b)["dp_shard"] == pytest.approx(21_400_000 + 1000 * 109.5)
    first = collectives(b)[0]
    assert (first.name, first.count, first.bus_bytes_s) == ("reduce_scatter", 22, None)
    assert collectives(b)[1].bus_bytes_s == pytest.approx(2.1e11)


def test_health_lines_have_all_they_know_and_stay_few() -> None:
    plain = Health(what="dropped_events", count=1)
    full = Health(what="x", count=1200, rank=3, affects="idle", text="Lost events.")
    assert health_lines(Breakdown(ranks=(), health=(plain, full))) == ["dropped events", "rank 3: Lost events (1,200); affects idle"]
    many = tuple(Health(what="unlinked", count=r, rank=r, text=f"{r} spans") for r in range(2, 300))
    assert health_lines(Breakdown(ranks=(), health=(*many, plain))) == [
        "298 ranks; the worst is rank 299: 299 spans (299)",
        "dropped events",
    ]


def test_warmup_is_named() -> None:
    assert headline(Breakdown(ranks=(), summary={"warmup_steps": [3]})).warmup == (3,)
    assert warmup_text((3,)).startswith("step 3 took")
    assert warmup_text(range(9)).startswith("steps 0, 1, 2, 3, 4 and more took")


def test_two_devices_of_one_rank_are_told_apart() -> None:
    steps = example(1, 1).ranks[0].steps
    b = Breakdown(ranks=tuple(RankBreakdown(rank=0, device=f"cuda:{i}", steps=steps) for i in range(2)))
    assert partition(b, "buckets").ranks == ("r0 cuda:0", "r0 cuda:1")
