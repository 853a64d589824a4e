"""Stragglers: each planted kind is found on its rank and told apart; equal ranks are left in peace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.spec.straggler import Straggler
from headway.trace.explain import explain
from tests.trace.simulate import Cluster, simulate, write

SMALL: dict[str, Any] = {"layers": 2, "kernels": 2, "optimizer_kernels": 2, "steps": 6}


def _found(folder: Path, **fields: Any) -> tuple[Straggler, ...]:
    return explain(write(simulate(Cluster(**{**SMALL, **fields})), folder)).stragglers


PLANTED = (
    ("compute", {"slow_compute": {3: 1.15}}, 3, 0.15 * (2 * 6 * 200e3 + 2 * 100e3)),
    ("input", {"late_input_ns": {2: 800e3}}, 2, 800e3),
    ("host", {"slow_host": {5: 6.0}, "kernel_ns": 20e3, "syncs": 2}, 5, None),
    ("host", {"gc_ns": {1: 3e6}}, 1, 3e6 - 4 * 200e3),  # less the kernels that were issued before
    ("link", {"slow_link": {6: 3.0}}, 6, None),
)


@pytest.mark.parametrize(("kind", "planted", "rank", "excess"), PLANTED, ids=[f"{k}-{next(iter(p))}" for k, p, _, _ in PLANTED])
def test_each_kind_is_found_and_told_apart(tmp_path: Path, kind: str, planted: dict[str, Any], rank: int, excess: float | None) -> None:
    found = _found(tmp_path, mesh={"dp": 4, "tp": 2}, noise=0.03, **planted)
    assert [(s.kind, s.rank) for s in found] == [(kind, rank)]
    (one,) = found
    assert one.p < 0.01 and one.interval_ns[0] <= one.excess_ns <= one.interval_ns[1] and one.evidence
    if excess is not None:
        assert one.excess_ns == pytest.approx(excess, rel=0.1)


def test_two_at_once(tmp_path: Path) -> None:
    found = _found(tmp_path, mesh={"dp": 4, "tp": 2}, noise=0.02, slow_compute={0: 1.2}, late_input_ns={7: 1e6})
    assert {(s.kind, s.rank) for s in found} == {("compute", 0), ("input", 7)}


def test_a_pair_of_ranks(tmp_path: Path) -> None:
    (one,) = _found(tmp_path, mesh={"dp": 2}, noise=0.02, slow_compute={1: 1.2})
    assert (one.kind, one.rank) == ("compute", 1)


def test_a_slow_link_of_one_axis_is_its_group(tmp_path: Path) -> None:
    """Four groups along tp, one of them slow; with dp too small to matter nothing tells its two ranks apart."""
    (one,) = _found(tmp_path, mesh={"dp": 4, "tp": 2}, noise=0.02, slow_link={4: 3.0}, gradient_bytes=1024, activation_bytes=64 << 20)
    assert (one.kind, one.rank, one.ranks) == ("link", 4, (4, 5))
    assert any("along tp" in e for e in one.evidence)


def test_one_group_of_all_has_nothing_to_be_compared_with(tmp_path: Path) -> None:
    assert _found(tmp_path, mesh={"dp": 4}, slow_link={1: 3.0}, noise=0.02) == ()


def test_stages_that_do_different_work_are_not_compared(tmp_path: Path) -> None:
    """Stages of a pipeline wait for each other; the planted slow one is compared with its own stage."""
    (one,) = _found(tmp_path, mesh={"pp": 2, "dp": 2}, noise=0.02, slow_compute={2: 1.3}, steps=8)
    assert (one.kind, one.rank) == ("compute", 2)


def test_too_few_steps_prove_nothing(tmp_path: Path) -> None:
    assert _found(tmp_path, mesh={"dp": 4}, slow_compute={1: 1.5}, steps=2) == ()


@pytest.mark.parametrize("apart", (0.0, 0.005))
def test_equal_ranks_are_left_in_peace(tmp_path: Path, apart: float) -> None:
    """60 runs with 5 % noise on everything, and with chips that differ by half a percent for good: at most 5 % with any alarm."""
    alarms = 0
    rng = np.random.default_rng(7)
    for seed in range(30):
        chips = dict(enumerate((1 + apart * rng.standard_normal(8)).tolist()))
        mesh = ({"dp": 8}, {"dp": 4, "tp": 2})[seed % 2]
        alarms += bool(_found(tmp_path / str(seed), mesh=mesh, noise=0.05, seed=seed, slow_compute=chips))
    assert alarms / 30 <= 0.05
