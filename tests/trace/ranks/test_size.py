"""Cost over many ranks: linear in collectives, seconds for a large job."""

from __future__ import annotations

import time

import numpy as np

from headway.trace.host import Host
from headway.trace.ranks.bandwidth import collectives
from headway.trace.ranks.late import late
from headway.trace.ranks.wait import meet
from tests.trace.ranks.skews import Case, seats


def _seconds(steps: int) -> float:
    """CPU seconds for 64 ranks on 8 hosts with 201 collectives a step each."""
    n = 64
    offset = np.repeat(np.random.default_rng(0).normal(0, 1e6, 8), 8)
    case = Case(
        mesh={"pp": 2, "dp": 8, "tp": 4}, offset=offset, drift=np.zeros(n), bias=np.zeros(n), steps=steps, each=67,
        hosts=[f"node{r // 8}" for r in range(n)],
    )  # fmt: skip
    there = seats(case)
    begin = time.process_time()
    met = meet(there)
    assert len(met.matches) == steps * 67 * (n // 2 + n // 8 + n // 4)
    assert met.clocks is not None and len(met.clocks.error) == 8
    rows = late(there, [Host(training=-1, modules=())] * n, met)
    assert len(rows) == n and sum(r["count"] for r in collectives(there, met)) == n * steps * 201
    return time.process_time() - begin


def test_cost_is_linear_and_small() -> None:
    small, large = _seconds(5), _seconds(20)
    assert large < 8.0  # 257,280 collectives of ranks; 1.4 s where this was written
    assert large < 8 * small
