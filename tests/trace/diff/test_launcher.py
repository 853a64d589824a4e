"""Which operator launched a kernel: the innermost one open at the launch, against a plain search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.spec.kernel import KernelUse
from headway.trace.explain import explain
from headway.trace.host import hosts
from headway.trace.kernels import merged
from headway.trace.launcher import launchers
from headway.trace.read.file import read
from headway.trace.work import works
from tests.trace.drawing import span, write


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Spans of one thread, properly nested."""
    out: list[tuple[int, int]] = []

    def fill(low: int, high: int, level: int) -> None:
        at = low
        while level < 4 and high - at > 1 and draw(st.booleans()):
            begin = draw(st.integers(at, high - 1))
            end = draw(st.integers(begin + 1, high))
            out.append((begin, end))
            fill(begin, end, level + 1)
            at = end

    fill(0, 60, 0)
    return out


@given(nested(), st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_the_innermost_open_operator(tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], times: list[int]) -> None:
    rows: list[dict[str, Any]] = [span("cpu_op", f"aten::op{i}", a, b - a) for i, (a, b) in enumerate(spans)]
    for k, t in enumerate(times, 1):
        rows.append(span("cuda_runtime", "cudaLaunchKernel", t, 0, correlation=k))
        rows.append(span("kernel", f"kernel{k}", 100 + k, 1, pid=0, tid=7, device=0, stream=7, correlation=k))
    table = read(write(tmp_path_factory.mktemp("t") / "t.json", rows)).tables[0]
    (work,) = works(table, hosts(table))
    found = launchers(table, work)
    for k, t in enumerate(times, 1):
        around = [i for i, (a, b) in enumerate(spans) if a <= t < b]
        deepest = max(around, key=lambda i: (spans[i][0], -spans[i][1], i), default=None)
        (row,) = [r for r in range(len(work)) if work.names[work.name[r]] == f"kernel{k}"]
        name = found.names[found.code[row]] if found.code[row] >= 0 else None
        same = {f"aten::op{i}" for i in around if deepest is not None and spans[i] == spans[deepest]}
        assert name in same if around else name is None


def test_kernels_say_their_operator_and_how_steps_vary(tmp_path: Path) -> None:
    rows = []
    for s, length in enumerate((10, 14)):
        rows += [
            span("user_annotation", f"ProfilerStep#{s}", 100 * s, 90),
            span("cpu_op", "aten::linear", 100 * s + 1, 20),
            span("cpu_op", "aten::addmm", 100 * s + 2, 10),
            span("cuda_runtime", "cudaLaunchKernel", 100 * s + 3, 1, correlation=s + 1),
            span("kernel", "sgemm", 100 * s + 5, length, pid=0, tid=7, device=0, stream=7, correlation=s + 1),
        ]
    (rank,) = explain([write(tmp_path / "t.json", rows)]).ranks
    (use,) = rank.kernels
    assert (use.operator, use.count, use.num_steps, use.total_ns) == ("aten::addmm", 2, 2, 24_000)
    assert use.deviation_ns == pytest.approx(2000 * 2**0.5)


def test_tables_of_several_traces_are_one() -> None:
    """The deviation over all windows, those included in which it never ran."""

    def use(name: str, steps: list[int]) -> KernelUse:
        mean = sum(steps) / len(steps)
        deviation = (sum((x - mean) ** 2 for x in steps) / (len(steps) - 1)) ** 0.5
        return KernelUse(
            name=name, kind="compute.gemm", count=len(steps), total_ns=sum(steps), median_ns=1, num_steps=len(steps), deviation_ns=deviation
        )

    found = {k.name: k for k in merged([[use("a", [3, 5]), use("b", [1, 1])], [use("a", [9, 1, 4])]])}
    assert found["a"].num_steps == found["b"].num_steps == 5
    values = [3, 5, 9, 1, 4]
    mean = sum(values) / 5
    assert found["a"].deviation_ns == pytest.approx((sum((v - mean) ** 2 for v in values) / 4) ** 0.5)
    values = [1, 1, 0, 0, 0]
    assert found["b"].deviation_ns == pytest.approx((sum((v - 0.4) ** 2 for v in values) / 4) ** 0.5)


def test_the_table_is_plain_data(tmp_path: Path) -> None:
    from headway.spec.breakdown import to_json

    rows = [span("cpu_op", "aten::mm", 0, 9), span("cpu_op", "aten::add", 10, 5)]
    data = json.loads(json.dumps(to_json(explain([write(tmp_path / "t.json", rows)]))))
    assert {k["operator"] for k in data["ranks"][0]["kernels"]} == {"aten::mm", "aten::add"}
