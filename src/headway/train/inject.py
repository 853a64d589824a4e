"""Delays on purpose: what `guard.inject` plants, so that the accounting can be checked against a known truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headway.runtime.ranges import record_range
from headway.spec.run import Injection

PLANTED = "headway::planted"  # the range of every delay in a trace: where it really was
WAIT = "cudaDeviceSynchronize"  # a CPU has no queue to wait for: the wait carries the name that a profiler gives to the real call


def on_phase(planted: Sequence[Injection], rank: int) -> Callable[[str, int], None] | None:
    """What to call inside each phase as it opens; None if nothing is planted on this rank."""
    mine = [p for p in planted if p.rank in (None, rank)]
    if not mine:
        return None

    def delay(phase: str, step: int) -> None:
        for p in mine:
            if not p.first <= step <= p.last:
                continue
            if p.site == phase:
                with record_range(PLANTED):
                    time.sleep(p.ms / 1e3)
            elif p.site == "sync" and phase == "forward":
                with record_range(PLANTED), record_range(WAIT):
                    time.sleep(p.ms / 1e3)

    return delay
