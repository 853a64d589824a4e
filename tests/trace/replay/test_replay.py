"""A replay without a change is the run; with a cause taken out it gains what the run gains without the cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.spec.breakdown import IDLE_CAUSES
from headway.trace.floor.run import run_floors
from headway.trace.part import of_file
from headway.trace.ranks.match import Seat
from headway.trace.ranks.wait import meet
from headway.trace.replay import excerpt
from headway.trace.replay.question import answers, questions
from headway.trace.replay.run import Replay, replay
from headway.trace.replay.simulate import NOTHING, Change, simulate
from tests.trace.drawing import US, draw
from tests.trace.simulate import Cluster, write
from tests.trace.simulate import simulate as simulated


def replayed(paths: Sequence[Path]) -> Replay:
    placed = [
        (file.rank if file.rank is not None else k, file, part) for k, p in enumerate(paths) for file in of_file(p) for part in file.parts
    ]
    seats = [Seat(rank, part.work, part.windows, file.host) for rank, file, part in placed]
    found = run_floors([(rank, part) for rank, _, part in placed], None)
    run = replay(seats, [part.script for *_, part in placed], meet(seats), found.parts)
    assert run is not None
    return run


def cluster(tmp_path: Path, **fields: Any) -> Replay:
    return replayed(write(simulated(Cluster(**fields)), tmp_path))


MESHES = ({"dp": 2}, {"dp_shard": 4}, {"dp": 2, "tp": 2}, {"pp": 2, "dp": 2})


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("overlap", [True, False])
def test_without_a_change_every_node_is_where_it_was(tmp_path: Path, mesh: dict[str, int], overlap: bool) -> None:
    run = cluster(tmp_path, mesh=mesh, overlap=overlap, noise=0.05, steps=3, offset_ns={1: 40_000.0}, end_jitter_ns=500.0)
    assert np.array_equal(run.base.value, run.graph.measured)
    for seat, edges in zip(run.seats, run.base.edges, strict=True):
        assert np.array_equal(edges, seat.windows.edges)


def test_real_traces_are_where_they_were(shared: Path) -> None:
    traces = shared / "traces"
    sets: list[list[Path]] = [
        [traces / "pytorch_kineto/tb_plugin/samples/resnet50_num_workers_0/worker0.1623143566756.pt.trace.json.gz"],
        sorted((traces / "facebookresearch_param/et_replay/tests/inputs/dlrm_kineto").glob("*.json")),
        sorted((traces / "NVIDIA_Megatron-LM/tp2/result").rglob("*.json")),
        [traces / "facebookresearch_HTA/tests/data/df_index_resolver/df_index_resolver.json.gz"],
        [traces / "AMD-AGI_TraceLens/tests/traces/mi300/ddp_resnet18_no_pool/train_resnet18.json.gz"],
    ]
    for paths in sets:
        run = replayed(paths)
        for seat, edges in zip(run.seats, run.base.edges, strict=True):
            assert np.diff(edges) == pytest.approx(np.diff(seat.windows.edges), rel=0.03, abs=2), paths[0]


def test_a_graph_is_simulated_in_one_pass(tmp_path: Path) -> None:
    run = cluster(tmp_path, mesh={"dp": 2}, kernels=8, steps=3)
    assert (run.graph.source < run.graph.node).all()
    assert (np.diff(run.graph.node) >= 0).all()


def one(tmp_path: Path, drawing: str) -> Replay:
    return replayed([draw(tmp_path / "t.json", drawing)])


def test_the_host_moves_up_when_a_cause_is_taken_out_and_kernels_follow(tmp_path: Path) -> None:
    run = one(
        tmp_path,
        """
        main [S0                            ]
        main [load      ][L1]   [L2]
        0.7                  [g1  ][g2   ]
        """,
    )
    assert run.base.step_ns == 32 * US
    assert run.gain(Change(without=frozenset({"input"}))) == 12 * US
    assert run.gain(Change(without=frozenset({"checkpoint"}))) == 0


def test_a_kernel_under_which_input_hides_bounds_the_gain(tmp_path: Path) -> None:
    run = one(
        tmp_path,
        """
        main [S0                            ]
        main [L1][load                ][L2]
        0.7     [g1            ]
        0.7                                [g2]
        """,
    )
    # without the wait g2 is launched at 4 and runs when g1 ends at 19: 23, but the mark of the step ends later, at 32 - 22
    assert run.gain(Change(without=frozenset({"input"}))) == pytest.approx((34 - 19 - 4) * US, abs=1)


def test_a_host_that_waits_for_the_device_is_freed(tmp_path: Path) -> None:
    run = one(
        tmp_path,
        """
        main [S0                            ]
        main [L1][W           ][L2]
        0.7     [g1           ]
        0.7                       [g2   ]
        """,
    )
    without = simulate(run.graph, Change(without=frozenset({"sync"})))
    work = run.seats[0].work
    assert without.value[run.graph.last[0][1]] == work.end[0] + 7 * US < work.end[1], "g2 follows g1 at once"
    assert run.base.step_ns - without.step_ns == 7 * US, "and the host, whose mark ended last, no longer holds the step"


def test_work_made_faster_moves_what_waited_for_it(tmp_path: Path) -> None:
    run = one(
        tmp_path,
        """
        main [S0        ]
        main [L1][L2]
        0.7      [g1            ]
        0.9                      [e2      ]
        """,
    )
    share = np.ones(2)
    share[0] = 0.5
    assert run.gain(Change(share=(share,))) == 8 * US, "e2 began when g1 had ended: it waited for it"


def test_a_collective_ends_when_the_last_has_come_and_data_has_moved(tmp_path: Path) -> None:
    late = """
    main [S0                      ]
    main [load  ][L1]
    0.7             [n1    ]
    """
    early = """
    main [S0                      ]
    main [L1]
    0.7     [n1            ]
    """
    paths = [draw(tmp_path / "r0.json", early, world=2), draw(tmp_path / "r1.json", late, rank=1, world=2)]
    run = replayed(paths)
    without = simulate(run.graph, Change(without=frozenset({"input"})))
    assert [e[-1] - e[0] for e in run.base.edges] == [26 * US, 26 * US]
    ends = [without.value[run.graph.last[k][0]] - run.seats[k].windows.edges[0] for k in (0, 1)]
    assert ends == [11 * US, 11 * US], "rank 1 comes at 3 as rank 0 does; 8 for the data"
    on_time = simulate(run.graph, Change(on_time=frozenset({1})))
    assert on_time.value[run.graph.last[0][0]] - run.seats[0].windows.edges[0] == 11 * US
    assert on_time.value[run.graph.last[1][0]] == run.base.value[run.graph.last[1][0]], "the late rank stays where it was"


@pytest.mark.parametrize(
    ("planted", "change"),
    [
        ({"late_input_ns": {0: 3e6, 1: 3e6}}, Change(without=frozenset({"input"}))),
        ({"gc_ns": {0: 15e6}}, Change(without=frozenset({"gc"}))),
        ({"slow_host": {0: 40.0, 1: 40.0}}, Change(without=frozenset({"launch"}))),
        ({"overlap": False}, Change(hidden=True)),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_a_gain_is_what_the_run_gains_without_the_cause(tmp_path: Path, planted: dict[str, Any], change: Change, seed: int) -> None:
    good = Cluster(noise=0.02, seed=seed, input_ns=0.0)
    bad = simulated(replace(good, **planted))
    run = replayed(write(bad, tmp_path))
    assert run.gain(change) == pytest.approx(bad.step_ns - simulated(good).step_ns, rel=0.15)


def test_gains_are_counted_once(tmp_path: Path) -> None:
    run = cluster(tmp_path, gc_ns={0: 9e6}, late_input_ns={1: 4e6}, slow_compute={1: 1.3}, overlap=False, noise=0.02, steps=4)
    found = answers(run, list(questions(run, IDLE_CAUSES, 1)), 0.0)
    everything = NOTHING
    for answer in found:
        everything = everything & answer.question.change
    assert sum(a.gain_ns for a in found) <= run.base.step_ns
    assert sum(a.gain_ns for a in found) == pytest.approx(run.gain(everything), rel=1e-6)
    assert [a.gain_ns for a in found] == sorted((a.gain_ns for a in found), reverse=True)


def test_a_long_trace_is_replayed_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write(simulated(Cluster(steps=12, late_input_ns={0: 3e6, 1: 3e6}, noise=0.02)), tmp_path)
    whole = replayed(paths)
    monkeypatch.setattr(excerpt, "MOST_ROWS", 500)
    part = replayed(paths)
    assert whole.steps is None and part.steps is not None
    assert sum(len(s.work) for s in part.seats) <= 500 < sum(len(s.work) for s in whole.seats)
    assert part.base.step_ns == pytest.approx(whole.base.step_ns, rel=0.03)
    change = Change(without=frozenset({"input"}))
    assert part.gain(change) == pytest.approx(whole.gain(change), rel=0.1)
