"""Worked cases: a drawing of spans and the whole table that must come out of it. A character is a microsecond."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.spec.breakdown import StepBreakdown
from headway.trace.explain import explain
from tests.trace.drawing import US, draw, events, span, write

CASES = {
    "one kernel: idle before it while the host issues, idle after it": (
        """
        main [S0                ]
        main [L1]
        0.7     [g1    ]
        """,
        {0: {"compute.gemm": 8, "idle.launch": 12}},
    ),
    "two streams at once: the first class of the list, each moment once": (
        """
        main [S0                      ]
        main [L1][L2]
        0.7          [e1        ]
        0.9              [g2        ]
        """,
        {0: {"compute.elementwise": 4, "compute.gemm": 12, "idle.launch": 10}},
    ),
    "a collective is exposed only where no compute runs": (
        """
        main [S0                      ]
        main [L1][L2]
        0.7          [g1        ]
        0.9              [n2        ]
        """,
        {0: {"compute.gemm": 12, "comm.all_reduce.world.unsplit": 4, "idle.launch": 10}},
    ),
    "two collectives at once: the one that started first": (
        """
        main [S0                      ]
        main [L1][L2]
        0.7          [r1        ]
        0.9              [n2        ]
        """,
        {0: {"comm.reduce_scatter.world.unsplit": 12, "comm.all_reduce.world.unsplit": 4, "idle.launch": 10}},
    ),
    "copies: both ways at once is h2d; a memset is compute": (
        """
        main [S0                      ]
        main [L1][L2][L3]
        0.7          [d1      ]
        0.9              [h2      ]
        0.9                          [z3]
        """,
        {0: {"copy.d2h": 4, "copy.h2d": 10, "compute.copy": 4, "idle.launch": 10}},
    ),
    "work that runs late belongs to the step that launched it": (
        """
        main [S0        ][S1        ]
        main [L1]        [L2]
        0.7     [g1           ]
        0.7                       [e2]
        """,
        {0: {"idle.launch": 3, "compute.gemm": 15}, 1: {"idle.launch": 3, "compute.elementwise": 4}},
    ),
    "a stall at the head of a step is in that step": (
        """
        main [S0      ][S1                ]
        main [L1]      [load    ][L2]
        0.7      [g1]
        0.7                          [g2]
        """,
        {0: {"idle.launch": 6, "compute.gemm": 4}, 1: {"idle.input": 10, "idle.launch": 6, "compute.gemm": 4}},
    ),
    "the host waits for the device, and the device runs dry": (
        """
        main [S0                          ]
        main [L1][W               ][L2]
        0.7     [g1    ]
        0.7                             [g2]
        """,
        {0: {"idle.launch": 8, "compute.gemm": 12, "idle.sync": 11}},
    ),
    "a wait drawn on the device is not work": (
        """
        main [S0                      ]
        main [L1]             [L2]
        0.7     [g1]
        0.7         [y           ]
        0.7                       [g2]
        """,
        {0: {"idle.launch": 4, "compute.gemm": 8, "idle.sync": 14}},
    ),
    "one gap, several causes: each nanosecond by what the host did then": (
        """
        main [S0                          ]
        main [L1]      [M    ][gc ][L2]
        0.7     [g1]
        0.7                             [g2]
        """,
        {0: {"idle.launch": 11, "compute.gemm": 8, "idle.allocator": 7, "idle.gc": 5}},
    ),
    "a checkpoint and the launch after it": (
        """
        main [S0                      ]
        main [L1][save          ][L2]
        0.7     [g1]
        0.7                         [g2]
        """,
        {0: {"idle.launch": 6, "compute.gemm": 8, "idle.checkpoint": 13}},
    ),
    "unknown launch: counted in the window it starts in, which does not grow": (
        """
        main [S0        ][S1      ]
        main [L1]
        0.7     [g1]
        0.7            [e       ]
        """,
        {0: {"idle.launch": 6, "compute.gemm": 4, "compute.elementwise": 2}, 1: {"compute.elementwise": 8, "idle.launch": 2}},
    ),
    "two devices of one process are two rows": (
        """
        main [S0              ]
        main [L1][L2]
        0.7     [g1]
        1.7         [e2        ]
        """,
        {0: {"compute.gemm": 4, "idle.launch": 14}},
    ),
    "a CPU: leaf operators are kernels, a wrapper is not, addmm with its copy is one kernel": (
        """
        main [S0                                ]
        main   [lin              ] [add]
        main     [addmm       ]
        main       [cp]
        """,
        {0: {"compute.gemm": 14, "compute.elementwise": 5, "idle.launch": 17}},
    ),
    "a CPU: Gloo's threads communicate, exposed while the training thread computes nothing": (
        """
        main [S0                                ]
        main   [mm ] [c ] [add ]
        gloo            [G                ]
        """,
        {0: {"compute.gemm": 5, "compute.elementwise": 6, "comm.all_reduce.world.unsplit": 13, "idle.launch": 12}},
    ),
}


def dedent(drawing: str) -> str:
    """The drawing without the indent of the source."""
    return "\n".join(line[8:] for line in drawing.splitlines())


def micro(table: dict[str, int]) -> dict[str, float]:
    """Nanoseconds -> microseconds."""
    return {k: v / US for k, v in table.items()}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, tmp_path: Path) -> None:
    drawing, expected = CASES[name]
    result = explain([draw(tmp_path / "t.json", dedent(drawing), world=2)])
    found = {s.step: micro(dict(s.buckets)) for s in result.ranks[0].steps}
    assert found == expected


def only(path: Path) -> StepBreakdown:
    """The only step of the first device."""
    (step,) = explain([path]).ranks[0].steps
    return step


def test_hidden_communication_and_concurrency(tmp_path: Path) -> None:
    drawing = """
main [S0                      ]
main [L1][L2][L3]
0.7          [g1        ]
0.8              [e3]
0.9                  [n2        ]
"""
    step = only(draw(tmp_path / "t.json", drawing))
    assert step.hidden_comm_ns == 4 * US
    assert micro(dict(step.hidden_comm_by_axis_ns)) == {"world": 4}
    assert step.concurrency == pytest.approx((12 + 4) / 12)
    assert step.num_kernels == 2
    assert step.comm == ({"collective": "all_reduce", "axis": "world", "count": 1, "bytes": None, "busy_ns": 12 * US, "bus_bytes_s": None},)


def test_phase_and_module_of_work_come_from_its_launch(tmp_path: Path) -> None:
    """Kernels run after the marks have closed. The backward thread has no marks: its phase is what the training thread is in, its module
    that of the forward operator with the same sequence number (f5 and b5)."""
    drawing = """
main [S0                                              ]
main [fwd             ][bwd                     ]
main  [A             ]
main   [f5   ][B ]
main    [L1]   [L2]
auto                       [b5     ]
auto                        [L3]
0.7                  [g1]
0.7                      [g2]
0.7                              [g3  ]
"""
    step = only(draw(tmp_path / "t.json", drawing))
    # idle 0-16 | g1 16-20 (launched at 3) | g2 20-24 (at 10) | idle 24-28 (auto) | g3 28-34 (at 23) | idle 34-50 (main)
    assert micro(dict(step.phases)) == {"forward": 16 + 4 + 4, "backward": 4 + 6 + 10, "other": 6}
    assert micro(dict(step.modules)) == {"a": 8 + 3 + 4 + 4 + 6, "a.b": 4 + 4, "other": 1 + 16}


def test_wait_and_transfer(tmp_path: Path) -> None:
    late = """
main [S0                      ]
main        [L1]
0.7            [n1    ]
"""
    early = """
main [S0                      ]
main [L1]
0.7     [n1           ]
"""
    paths = [draw(tmp_path / "r0.json", early, world=2), draw(tmp_path / "r1.json", late, rank=1, world=2)]
    result = explain(paths)
    by_rank = [micro(dict(r.steps[0].buckets)) for r in result.ranks]
    assert by_rank[0] == {"idle.launch": 11, "comm.all_reduce.world.wait": 7, "comm.all_reduce.world.transfer": 8}
    assert by_rank[1] == {"idle.launch": 18, "comm.all_reduce.world.transfer": 8}
    (late,) = result.summary["lateness"]
    assert (late["rank"], late["wait_ns"], late["share"]) == (1, 7_000, 1.0)
    assert all(f.recoverable_ns > 0 for f in result.findings), "what other findings win already is none of its own"
    alone = explain(paths[:1])
    assert micro(dict(alone.ranks[0].steps[0].buckets)) == {"idle.launch": 11, "comm.all_reduce.world.unsplit": 15}
    assert any(h.what == "missing_ranks" for h in alone.health)


def test_files_that_cannot_be_ranks_of_one_run(tmp_path: Path) -> None:
    drawing = """
main [S0            ]
main [L1]
0.7     [g1     ]
"""
    copies = [draw(tmp_path / f"{name}.json", drawing, world=2) for name in "ab"]
    assert [h.count for h in explain(copies).health if h.what == "repeated_rank"] == [1]
    moved = [event | {"ts": event["ts"] + 40} for event in events(drawing)]
    later = write(tmp_path / "c.json", moved, distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2})
    assert not any(h.what == "repeated_rank" for h in explain([copies[0], later]).health), "two windows of one rank"
    next_window = [event | {"name": event["name"].replace("#0", "#1")} for event in moved]
    write(tmp_path / "w" / "1.json", next_window, distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2})
    (one,) = explain([copies[0], tmp_path / "w" / "1.json"]).ranks
    assert [s.step for s in one.steps] == [0, 1], "two windows of one rank are one rank"
    assert len(explain([copies[0], later]).ranks) == 2, "the same step twice may be two runs"
    other = draw(tmp_path / "d.json", drawing, rank=1, world=4)
    assert [h.what for h in explain([copies[0], other]).health if h.what in ("different_worlds", "repeated_rank")] == ["different_worlds"]


def test_axis_of_a_mark(tmp_path: Path) -> None:
    drawing = """
main [S0                      ]
main [ax    ]
main  [L1]
0.7      [n1           ]
"""
    assert "comm.all_reduce.dp_shard.transfer" in only(draw(tmp_path / "t.json", drawing)).buckets


def test_no_step_marks(tmp_path: Path) -> None:
    drawing = """
main     [L1]
0.7        [g1    ]
"""
    result = explain([draw(tmp_path / "t.json", drawing)])
    (step,) = result.ranks[0].steps
    assert (step.step, micro(dict(step.buckets))) == (0, {"idle.launch": 2, "compute.gemm": 8})
    assert [h.what for h in result.health] == ["no_step_marks"]


def test_a_host_row_with_a_stream_is_not_device_work(tmp_path: Path) -> None:
    """Compiled kernels are launched by host rows that carry a stream; a nested copy of an annotation is drawn on the device too."""
    rows = [
        span("user_annotation", "ProfilerStep#0", 0, 20),
        span("cpu_op", "triton_poi_fused_add_0", 0, 9, stream=7),
        span("cuda_driver", "cuLaunchKernel", 2, 1, correlation=5),
        span("kernel", "triton_poi_fused_add_0", 10, 4, pid=0, tid=7, device=0, stream=7, correlation=5),
        span("gpu_user_annotation", "ProfilerStep#0", 0, 20, pid=0, tid=7),
    ]
    assert micro(dict(only(write(tmp_path / "t.json", rows)).buckets)) == {"compute.elementwise": 4, "idle.launch": 16}


@pytest.mark.parametrize("category", ["user_annotation", "cpu_op", "Operator"])
def test_marks_under_any_category(tmp_path: Path, category: str) -> None:
    """Older files, and ranges made without the Python profiler, call an annotation an operator."""
    rows = [
        span(category, "ProfilerStep#4", 0, 40),
        span(category, "headway::phase::input", 1, 9),
        span(category, "headway::phase::forward", 10, 20),
        span(category, "cudaDeviceSynchronize", 11, 8),
        span("cpu_op", "aten::mm", 20, 5),
    ]
    step = only(write(tmp_path / "t.json", rows))
    assert step.step == 4
    assert micro(dict(step.buckets)) == {"idle.input": 9, "idle.sync": 8, "compute.gemm": 5, "idle.launch": 18}
    assert micro(dict(step.phases)) == {"input": 9, "forward": 20, "other": 11}


def test_gpu_trace_without_a_host(tmp_path: Path) -> None:
    result = explain([write(tmp_path / "t.json", [span("kernel", "gemm", t, 2, pid=0, tid=7, device=0, stream=7) for t in (0, 5)])])
    assert micro(dict(result.ranks[0].steps[0].buckets)) == {"compute.gemm": 4, "idle.unknown": 3}
    assert {h.what for h in result.health} >= {"no_host_rows", "no_step_marks", "unlinked"}


def test_gloo_reduce_scatter_is_known_by_its_operator(tmp_path: Path) -> None:
    """Gloo does a reduce-scatter as an all-reduce; the operator that issued it, FSDP's mark and the shapes tell what it is."""
    shapes = {"Input Dims": [[2080], [4160], []], "Input type": ["float", "float", ""]}
    rows = [
        span("user_annotation", "ProfilerStep#0", 0, 40),
        span("user_annotation", "FSDP::post_backward_reduce (blocks.3)", 1, 8),
        span("cpu_op", "c10d::_reduce_scatter_base_", 2, 3, **shapes),
        span("user_annotation", "gloo:all_reduce", 6, 20, tid=9),
    ]
    step = explain([write(tmp_path / "t.json", rows, distributedInfo={"rank": 0, "world_size": 2})]).ranks[0].steps[0]
    assert micro(dict(step.buckets)) == {"comm.reduce_scatter.dp_shard.unsplit": 20, "idle.launch": 20}
    assert micro(dict(step.modules)) == {"blocks.3": 25, "other": 15}
    (row,) = step.comm
    assert row["bytes"] == 4160 * 4
    assert row["bus_bytes_s"] == pytest.approx(4160 * 4 * 0.5 / 20e-6)
