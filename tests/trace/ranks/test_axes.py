"""Names of axes: what makers of groups call them, marks, and where ranks lie in a mesh."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.cli.main import main
from headway.spec.errors import TraceError
from headway.trace.explain import explain
from headway.trace.ranks.axes import GROUPS, Mesh, named, parse_mesh
from tests.trace.drawing import span, write
from tests.trace.simulate import groups


@pytest.mark.parametrize(("value", "example"), [(r.value, e) for r in GROUPS for e in r.examples])
def test_every_example_of_the_table(value: str, example: str) -> None:
    assert named(example) == (value or {"mesh_cp_ring": "cp_ring", "headway::comm::dp_shard": "dp_shard", "my_group": "my_group"}[example])


meshes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(lambda sizes: {f"a{i}": n for i, n in enumerate(sizes)})


@given(meshes, st.data())
def test_groups_of_a_mesh_are_found_by_their_ranks(axes: dict[str, int], data: st.DataObject) -> None:
    where = Mesh(tuple(axes.items()))
    name = data.draw(st.sampled_from(sorted(axes)))
    for group in groups(axes, name).tolist():
        assert all(where.group(r, name) == tuple(group) for r in group)
        if len(group) > 1:
            several = sum(s > 1 for s in axes.values()) > 1
            assert where.axis(group) == ("world" if len(group) == prod(axes.values()) and several else name)


def test_products_and_what_is_no_group() -> None:
    where = parse_mesh("pp=2,dp=2,tp=2")
    assert where.axis((0, 1, 2, 3)) == "dp_tp"
    assert where.axis((0, 1, 4, 5)) == "pp_tp"
    assert where.axis(tuple(range(8))) == "world"
    assert [where.axis(r) for r in ((0, 3), (0, 1, 2), (0,), (0, 8))] == ["", "", "", ""]


@pytest.mark.parametrize("text", ("", "tp", "tp=0", "tp=2,tp=2", "tp=2;dp=2", "TP=2"))
def test_a_mesh_that_is_none(text: str) -> None:
    with pytest.raises(TraceError, match="is not an axis of a mesh"):
        parse_mesh(text)


def _pair(folder: Path, **collective: object) -> list[Path]:
    """Two ranks of four, with one all-reduce each along ranks 0 and 1."""
    paths = []
    for rank in (0, 1):
        rows = [
            span("user_annotation", "ProfilerStep#0", 0, 40),
            span("cuda_runtime", "cudaLaunchKernel", 2, 2, correlation=1),
            span("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5 + 6 * rank, 20 - 6 * rank, pid=0, tid=7, device=0, stream=7,
                 correlation=1, **collective),
        ]  # fmt: skip
        paths.append(write(folder / f"r{rank}.json", rows, distributedInfo={"rank": rank, "world_size": 4}))
    return paths


def test_a_mesh_names_what_the_trace_does_not(tmp_path: Path) -> None:
    said = {"Collective name": "allreduce", "Process Group Name": "7", "Process Group Ranks": "[0, 1]", "Group size": 2}
    paths = _pair(tmp_path, **said)
    plain, placed = explain(paths), explain(paths, mesh=parse_mesh("dp_shard=2,tp=2"))
    assert "comm.all_reduce.group-7.transfer" in plain.ranks[0].steps[0].buckets
    assert placed.ranks[0].steps[0].buckets["comm.all_reduce.tp.wait"] == 6_000
    told = _pair(tmp_path / "told", **said, **{"Process Group Description": "DATA_PARALLEL_GROUP"})
    assert "comm.all_reduce.dp.transfer" in explain(told, mesh=Mesh((("dp_shard", 2), ("tp", 2)))).ranks[1].steps[0].buckets


def test_a_mesh_of_another_size_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(p) for p in _pair(tmp_path)]
    assert main(["explain", *paths, "--mesh", "dp_shard=4,tp=2"]) == 2
    assert "the mesh dp_shard=4 x tp=2 has 8 ranks, the run has 4" in capsys.readouterr().err
    with pytest.raises(TraceError, match="has 2 ranks, the run has 4"):
        parse_mesh("tp=2").check(None, [0, 3])


def test_rules_go_from_the_special_to_the_general() -> None:
    """No rule hides a later one: every example is found first by its own."""
    import re

    for earlier, later in pairwise(GROUPS[:-1]):
        assert not any(re.search(earlier.pattern, e, re.IGNORECASE) for e in later.examples)
    assert np.all([len(r.examples) > 0 for r in GROUPS])
