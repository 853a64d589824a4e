"""Doubts before numbers: each cause found and counted, and what cannot be trusted is not shown."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from headway.report.page import page
from headway.report.terminal import print_breakdown
from headway.spec.breakdown import Breakdown, group
from headway.spec.health import Health
from headway.trace.explain import explain
from tests.trace.drawing import span, write


def launch(ts: float, number: int, name: str = "cudaLaunchKernel", dur: float = 2) -> dict[str, Any]:
    return span("cuda_runtime", name, ts, dur, correlation=number)


def kernel(ts: float, dur: float, number: int, name: str = "volta_sgemm_128x64_nn", stream: int = 7) -> dict[str, Any]:
    return span("kernel", name, ts, dur, pid=0, tid=stream, device=0, stream=stream, correlation=number)


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    return span("user_annotation", f"ProfilerStep#{number}", ts, dur)


def explained(tmp_path: Path, *rows: dict[str, Any], **fields: Any) -> Breakdown:
    return explain([write(tmp_path / "t.json", rows, **fields)])


def doubt(result: Breakdown, what: str) -> Health:
    return next(h for h in result.health if h.what == what)


def eager(num: int = 100, *, lost: range = range(0)) -> list[dict[str, Any]]:
    """One step of `num` launches with a kernel each, but for those in `lost`."""
    return [
        step(1, 0, 10 * num),
        *(launch(10 * i, i + 1) for i in range(num)),
        *(kernel(10 * i + 4, 6, i + 1) for i in range(num) if i not in lost),
    ]


def graphs(counts: list[int], *, busy_us: float = 40, wait_us: float = 50, per_step: int = 1) -> list[dict[str, Any]]:
    """A step per `per_step` graph launches, each with so many kernels that together take `busy_us`; the host then waits for the device."""
    rows: list[dict[str, Any]] = []
    for i, count in enumerate(counts):
        begin = 1000 * i
        if i % per_step == 0:
            rows.append(step(i // per_step, begin, 1000 * per_step))
        rows += [launch(begin + 5, i + 1, "cudaGraphLaunch", 20), span("cuda_runtime", "cudaStreamSynchronize", begin + 30, wait_us)]
        rows += [kernel(begin + 30 + k * busy_us / count, busy_us / count, i + 1) for k in range(count)]
    return rows


# ---- what was not recorded ----


def test_nothing_is_lost(tmp_path: Path) -> None:
    result = explained(tmp_path, *eager())
    assert not {h.what for h in result.health} & {"dropped_first_kernels", "lost_kernels", "truncated_last_step"}
    assert result.summary["withheld"] == {}
    assert result.summary["busy_share"] == 0.6


def test_first_kernels_dropped_by_the_profiler(tmp_path: Path) -> None:
    result = explained(tmp_path, *eager(lost=range(30)))
    note = doubt(result, "dropped_first_kernels")
    assert (note.count, note.withholds) == (30, ("idle",))
    assert result.summary["busy_share"] is None
    assert result.summary["heads"]["idle"] is None
    assert result.summary["heads"]["compute"]["total_ns"] == 420_000
    assert {n for n, v in result.summary["buckets"].items() if v is None} == {n for n in result.summary["buckets"] if n.startswith("idle")}
    assert not any(f.bucket.startswith("idle") for f in result.findings)


def test_one_lost_of_many_is_said_and_shown(tmp_path: Path) -> None:
    result = explained(tmp_path, *eager(200, lost=range(1)))
    assert (doubt(result, "dropped_first_kernels").count, doubt(result, "dropped_first_kernels").withholds) == (1, ())
    assert result.summary["busy_share"] is not None


def test_the_recording_ends_before_the_last_step(tmp_path: Path) -> None:
    assert doubt(explained(tmp_path, *eager(lost=range(90, 100))), "truncated_last_step").count == 10


def test_kernels_lost_in_between(tmp_path: Path) -> None:
    assert doubt(explained(tmp_path, *eager(lost=range(40, 45))), "lost_kernels").count == 5


def test_launches_into_a_graph_that_is_captured_run_nothing(tmp_path: Path) -> None:
    marks = [span("cuda_runtime", "cudaStreamBeginCapture", 395, 1), span("cuda_runtime", "cudaStreamEndCapture", 445, 1)]
    assert "lost_kernels" not in {h.what for h in explained(tmp_path, *eager(lost=range(40, 45)), *marks).health}


def test_a_graph_replay_without_kernels(tmp_path: Path) -> None:
    """The device is saturated and the trace shows it idle: the number is not shown."""
    result = explained(tmp_path, *graphs([8, 8, 0, 8]))
    assert doubt(result, "graph_under_recorded").count == 1
    assert result.summary["busy_share"] is None


def test_a_graph_replay_with_fewer_kernels_than_its_siblings(tmp_path: Path) -> None:
    assert doubt(explained(tmp_path, *graphs([8, 8, 3, 8, 8])), "graph_under_recorded").count == 1


def test_every_replay_recorded_in_part(tmp_path: Path) -> None:
    """No sibling tells, but the host waits for a device on which next to nothing is recorded."""
    result = explained(tmp_path, *graphs([2, 2, 2, 2], busy_us=40, wait_us=900))
    assert doubt(result, "graph_under_recorded").count == 4
    assert result.summary["busy_share"] is None


def test_different_graphs_are_no_siblings(tmp_path: Path) -> None:
    """Two graphs a step, one large and one small; and a run whose steps replay different numbers of graphs."""
    for counts, per_step in (([9, 2, 9, 2, 9, 2], 2), ([9, 2, 9], 2)):
        result = explained(tmp_path, *graphs(counts, per_step=per_step))
        assert "graph_under_recorded" not in {h.what for h in result.health}
        assert doubt(result, "graph_launches").count == len(counts)


# ---- links and clocks ----


def test_unlinked_kernels(tmp_path: Path) -> None:
    rows = [step(1, 0, 100), launch(1, 1), kernel(5, 10, 1), kernel(20, 10, 0), kernel(40, 10, 0)]
    result = explained(tmp_path, *rows)
    assert doubt(result, "unlinked").count == 2
    assert result.summary["buckets"]["idle.launch"] is None  # causes are read off launches
    assert result.summary["heads"]["idle"]["total_ns"] == 70_000  # the time itself is known


def test_kernels_before_their_launch(tmp_path: Path) -> None:
    rows = [step(1, 0, 100), launch(20, 1), kernel(5, 10, 1), launch(40, 2), kernel(45, 10, 2)]
    result = explained(tmp_path, *rows)
    assert (doubt(result, "before_launch").count, doubt(result, "before_launch").withholds) == (1, ("idle.launch",))


def test_overlap_within_a_stream_is_counted_once(tmp_path: Path) -> None:
    result = explained(tmp_path, step(1, 0, 100), launch(0, 1), launch(2, 2), kernel(5, 10, 1), kernel(12, 10, 2))
    assert doubt(result, "same_stream_overlap").count == 1
    assert group(result.ranks[0].steps[0].buckets)["compute"] == 17_000


# ---- durations ----


def durations(tmp_path: Path, dur: float) -> tuple[Breakdown, int]:
    """Ten kernels of 10 us, 100 us apart on one stream; the fifth lasts `dur`."""
    rows = [step(1, 0, 1000), *(launch(100 * i, i + 1) for i in range(10))]
    rows += [kernel(100 * i + 5, dur if i == 4 else 10, i + 1) for i in range(10)]
    result = explained(tmp_path, *rows)
    return result, group(result.ranks[0].steps[0].buckets)["compute"]


def test_a_duration_over_later_work(tmp_path: Path) -> None:
    for dur in (250, 1e5, 1e9, 1e12):
        result, compute = durations(tmp_path, dur)
        assert doubt(result, "impossible_duration").count == 1
        assert compute == 190_000  # up to the next span and no further
        assert result.summary["busy_share"] is None


def test_a_duration_into_the_next_span_by_many_times_its_median(tmp_path: Path) -> None:
    """One overlap could be two kernels handing over; three milliseconds of a kernel of 10 us is none."""
    rows = [step(1, 0, 9000), *(launch(100 * i, i + 1) for i in range(6)), launch(5000, 7)]
    rows += [kernel(100 * i + 5, 10, i + 1) for i in range(5)] + [kernel(505, 5000, 6), kernel(5005, 10, 7)]
    result = explained(tmp_path, *rows)
    assert doubt(result, "impossible_duration").count == 1


def test_a_long_kernel_is_possible(tmp_path: Path) -> None:
    rows = [step(1, 0, 9000), *(launch(100 * i, i + 1) for i in range(6))]
    rows += [kernel(100 * i + 5, 10, i + 1) for i in range(5)] + [kernel(505, 8000, 6)]
    result = explained(tmp_path, *rows)
    assert "impossible_duration" not in {h.what for h in result.health}
    assert group(result.ranks[0].steps[0].buckets)["compute"] == 8_050_000


def test_a_corrupt_duration_does_not_raise_the_bound_it_is_held_against(tmp_path: Path) -> None:
    """Alone on its stream, no later span is there to be covered: only the rest of the file tells."""
    rows = [step(1, 0, 1000), *(launch(100 * i, i + 1) for i in range(5))]
    rows += [kernel(100 * i + 5, 10, i + 1) for i in range(4)] + [kernel(405, 1e9, 5, stream=9)]
    result = explained(tmp_path, *rows)
    assert doubt(result, "impossible_duration").count == 1
    assert result.ranks[0].steps[0].wall_ns == 1_000_000


def test_times_that_are_days_away(tmp_path: Path) -> None:
    rows = [*eager(20), span("cpu_op", "aten::mm", 5e12, 1), span("cpu_op", "aten::mm", 50, 1e13)]
    result = explained(tmp_path, *rows)
    assert doubt(result, "far_time").count == 2
    assert result.ranks[0].steps[0].wall_ns == 200_000


# ---- shown to people ----


def text(result: Breakdown) -> str:
    console = Console(width=100, record=True, force_terminal=False, file=io.StringIO())
    print_breakdown(result, console)
    return console.export_text()


def test_what_is_withheld_is_said_in_the_place_of_its_number(tmp_path: Path) -> None:
    result = explained(tmp_path, *eager(lost=range(30)))
    lines = text(result).splitlines()
    assert any("first launches without their kernels" in line for line in lines)
    idle = [line for line in lines if line.strip().startswith(("idle", "launch"))]
    assert idle
    assert all("not shown" in line for line in idle)
    assert "not shown" in str(page(breakdown=result))


def test_what_is_sound_is_shown(tmp_path: Path) -> None:
    assert "not shown" not in text(explained(tmp_path, *eager()))
