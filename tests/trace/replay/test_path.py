"""The critical path adds up, crosses ranks where one waits for another, and names what held the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.trace.explain import explain
from tests.trace.drawing import draw
from tests.trace.simulate import Cluster, simulate, write


def path_of(paths: list[Path]) -> dict[str, Any]:
    found: dict[str, Any] = explain(paths).summary["critical_path"]
    assert sum(found["buckets"].values()) == sum(found["ranks"].values()) == found["wall_ns"]
    assert all(link["ns"] > 0 for link in found["chain"])
    return found


def test_the_path_of_one_device(tmp_path: Path) -> None:
    drawing = """
    main [S0                            ]
    main [load      ][L1]   [L2]
    0.7                  [g1  ][e2        ]
    """
    found = path_of([draw(tmp_path / "t.json", drawing)])
    assert [(x["bucket"], x["ns"] // 1000) for x in found["chain"]] == [
        ("idle.input", 12), ("idle.launch", 4), ("compute.gemm", 6), ("compute.elementwise", 12)
    ]  # fmt: skip
    starts = [x["start_ns"] for x in found["chain"]]
    assert starts == sorted(starts)


def test_the_path_crosses_to_the_late_rank(tmp_path: Path) -> None:
    late = """
    main [S0              ]
    main [load      ][L1]
    0.7                  [n1    ]
    """
    early = """
    main [S0              ]
    main [L1]
    0.7     [n1                 ]
    """
    paths = [draw(tmp_path / "r0.json", early, world=2), draw(tmp_path / "r1.json", late, rank=1, world=2)]
    found = path_of(paths)
    assert found["buckets"]["idle.input"] == 12_000
    assert found["ranks"]["1"] >= 16_000, "until the last has come, the path is that of the last"


@pytest.mark.parametrize("mesh", [{"dp": 2}, {"dp": 2, "tp": 2}, {"pp": 2, "dp": 2}], ids=str)
def test_the_path_of_a_cluster_adds_up(tmp_path: Path, mesh: dict[str, int]) -> None:
    run = simulate(Cluster(mesh=mesh, noise=0.05, slow_compute={1: 1.4}, offset_ns={1: 40_000.0}))
    found = path_of(write(run, tmp_path))
    computed = sum(ns for name, ns in found["buckets"].items() if name.startswith("compute."))
    assert computed > 0.8 * found["wall_ns"]
    assert max(found["ranks"], key=found["ranks"].get) == "1", "the slow rank holds the step"


def test_real_ranks(shared: Path) -> None:
    folder = shared / "traces/facebookresearch_param/et_replay/tests/inputs/dlrm_kineto"
    found = path_of(sorted(folder.glob("*.json")))
    assert len(found["ranks"]) > 1
