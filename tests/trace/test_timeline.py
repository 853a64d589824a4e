"""Timelines and kernel tables: the same time as the buckets, the same work as the trace."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.spec.event import PHASES
from headway.spec.kernel import KernelUse
from headway.trace.explain import account
from headway.trace.kernels import merged
from tests.trace.drawing import draw, write
from tests.trace.test_sums import traces


@given(st.booleans().flatmap(lambda gpu: traces(gpu=gpu)))
def test_the_pieces_of_a_timeline_sum_to_the_buckets(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = account([write(Path(folder) / "trace.json", rows)])
        lines = {(t.rank, t.device): t for t in found.timelines()}
    for rank in found.breakdown.ranks:
        t = lines[rank.rank, rank.device]
        assert (t.end[:-1] == t.start[1:]).all() and (t.end > t.start).all()
        for k, step in enumerate(rank.steps):
            inside = (t.start >= t.edges[k]) & (t.start < t.edges[k + 1])
            for name, code, names in (("buckets", t.bucket, t.names), ("phases", t.phase, PHASES), ("modules", t.module, t.modules)):
                sums: Counter[str] = Counter()
                for c, ns in zip(code[inside].tolist(), (t.end - t.start)[inside].tolist(), strict=True):
                    sums[names[c]] += ns
                wanted = {n: ns for n, ns in getattr(step, name).items() if ns}
                assert dict(sums) == (wanted or {"other": step.wall_ns} if step.wall_ns else {})


DRAWING = """
main [S0                     ][S1              ]
main  [L1] [L2]                [L3]
0.7      [g1  ] [e2]              [g3      ]
0.8        [n4         ]
"""


def test_kernels_are_added_up_by_name(tmp_path: Path) -> None:
    (rank,) = account([draw(tmp_path / "t.json", DRAWING.strip("\n"))]).breakdown.ranks
    rows = {k.name.split("<")[0]: (k.kind, k.count, k.total_ns, k.median_ns) for k in rank.kernels}
    assert rows == {
        "volta_sgemm_128x64_nn": ("compute.gemm", 2, 16_000, 10_000),
        "void at::native::vectorized_elementwise_kernel": ("compute.elementwise", 1, 4_000, 4_000),
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL": ("comm.all_reduce", 1, 13_000, 13_000),
    }
    assert [k.total_ns for k in rank.kernels] == sorted((k.total_ns for k in rank.kernels), reverse=True)


def test_floors_come_with_shapes(tmp_path: Path) -> None:
    from tests.trace.drawing import span

    rows = [span("user_annotation", "ProfilerStep#0", 0, 100)]
    shapes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    rows += [span("cpu_op", "aten::mm", 10 * k, 8, **(shapes if k < 3 else {})) for k in range(5)]
    (tmp_path / "ceilings.json").write_text("{}")
    from headway.spec.hardware import Ceilings

    ceilings = Ceilings(flops={"fp32": 2 * 64**3 / 4e-6}, memory_bytes_s=1e15, source="test")
    (rank,) = account([write(tmp_path / "t.json", rows)], ceilings=ceilings).breakdown.ranks
    (mm,) = (k for k in rank.kernels if k.name == "aten::mm")
    assert (mm.count, mm.total_ns, mm.known_ns, mm.floor_ns) == (5, 40_000, 24_000, pytest.approx(12_000, abs=2))


def use(**changes: Any) -> KernelUse:
    return KernelUse(**({"name": "k", "kind": "compute.gemm", "count": 2, "total_ns": 20, "median_ns": 10} | changes))


def test_tables_of_several_windows_are_added() -> None:
    a, b = use(floor_ns=5, known_ns=20), use(count=6, total_ns=90, median_ns=14)
    other = use(name="other", total_ns=500)
    assert merged([[a, other], [b]]) == (other, use(count=8, total_ns=110, median_ns=13, floor_ns=5, known_ns=20))
    assert merged([]) == ()


def test_two_devices_of_one_file_have_a_line_each(tmp_path: Path) -> None:
    drawing = "main [S0        ]\n0.7   [g1 ]\n1.7    [g2  ]"
    lines = account([draw(tmp_path / "t.json", drawing)]).timelines()
    assert [(t.device, int(np.diff(t.edges)[0])) for t in lines] == [("cuda:0", 12_000), ("cuda:1", 12_000)]
    assert [t.labels for t in lines] == [("volta_sgemm_128x64_nn",)] * 2
