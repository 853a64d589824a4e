"""Memory of all ranks of one input: each history with what the trace and the events of its rank know; counters where nothing else is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headway.spec.memory import Growth, MemoryBreakdown
from headway.trace.gather import Input, rank_in_name
from headway.trace.memory.account import NUM_POINTS, Beside, account
from headway.trace.memory.growth import CONFIDENCE, FEWEST, grows
from headway.trace.memory.history import History
from headway.trace.part import FileParts
from headway.trace.sweep import NEVER, Ints


def breakdowns(timelines: Sequence[tuple[int, FileParts]], snapshots: Sequence[FileParts], given: Input) -> tuple[MemoryBreakdown, ...]:
    """One for each (rank, device): of a snapshot if there is one (the fullest of several), else of a profiler's events, else of counters.

    `timelines` are traces with their ranks, `snapshots` files that hold memory only.
    """
    found: list[tuple[int, History]] = [(rank, h) for rank, file in timelines for h in file.memory]
    for i, file in enumerate(snapshots):
        named = rank_in_name(file.source)
        said = next((h.rank for h in file.memory if h.rank is not None), i if named is None else named)
        found += [(said, h) for h in file.memory]
    best: dict[tuple[int, str], MemoryBreakdown] = {}
    for rank, history in found:
        made = account(history, rank, beside=_beside(rank, timelines, given), spec=given.spec)
        made = replace(made, health=tuple(replace(h, rank=rank) for h in made.health))
        old = best.get((rank, history.device))
        if old is None or (made.measured == "snapshot", made.reserved_bytes) > (old.measured == "snapshot", old.reserved_bytes):
            best[rank, history.device] = made
    told = _counters(given.events.logs, str(given.info.get("device", "cpu")))
    if told is not None and not any(rank == 0 for rank, _ in best):
        best[0, told.device] = told
    return tuple(best[key] for key in sorted(best))


def _beside(rank: int, timelines: Sequence[tuple[int, FileParts]], given: Input) -> Beside:
    ends = {s.step: s.start_ns + s.wall_ns for s in given.events.steps.get(rank, ())}
    modules: tuple[str, ...] = ()
    at = NEVER
    for part in (p for r, file in timelines if r == rank for p in file.parts):
        if len(part.windows.steps) > 1:
            ends |= dict(zip(part.windows.steps, part.windows.ends.tolist(), strict=True))
        if part.host.modules and not modules:
            modules, at = part.host.modules, part.host.module_of.get(part.host.training, NEVER)
    return Beside(step_ends=ends, modules=modules, module_at=at)


def _counters(logs: Sequence[Mapping[str, Any]], device: str) -> MemoryBreakdown | None:
    """The peak that the log lines of rank 0 tell, and whether it goes on growing. A peak is never reset, so only steady growth counts."""
    rows = [(r.get("time_ns"), r.get("step"), r.get("memory_bytes")) for r in logs]
    good = [(t, s, b) for t, s, b in rows if all(isinstance(v, int) and 0 <= v < 1 << 62 for v in (t, s, b))]
    if not good or not any(b for _, _, b in good):
        return None
    time, step, size = (np.array(c, np.int64) for c in zip(*good, strict=True))
    top = int(size.argmax())
    return MemoryBreakdown(
        rank=0,
        device=device,
        measured="counters",
        reserved_bytes=int(size[top]),
        allocated_bytes=None,
        parts={"unknown.counters": int(size[top])},
        time_ns=int(time[top]),
        step=int(step[top]),
        event=top,
        num_events=len(size),
        growth=_growing(step, size),
        num_steps=len(size),
        steps_from="log lines",
        curve=tuple(zip(*(c[:: -(-len(size) // NUM_POINTS)].tolist() for c in (time, size, size)), strict=True)),
    )


def _growing(step: Ints, size: Ints) -> tuple[Growth, ...]:
    rest = slice(len(size) // 4, None)  # until then kernels are compiled, caches fill, shapes are met for the first time
    periods = float(np.diff(step[rest]).mean()) if len(step[rest]) >= FEWEST else 0.0
    slope = grows(size[rest].astype(np.float64), CONFIDENCE, mostly=True)
    if slope is None or periods <= 0:
        return ()
    return (
        Growth(
            where="the peak of the process",
            part="unknown.counters",
            slope=slope.estimate / periods,
            low=slope.low / periods,
            high=slope.high / periods,
            confidence=CONFIDENCE,
            num_steps=len(size[rest]),
            num_bytes=int(size[-1] - size[rest][0]),
        ),
    )
