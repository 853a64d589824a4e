"""Floors of all devices of a run, against ceilings that the devices of one model share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.spec.breakdown import Health
from headway.spec.hardware import Ceilings
from headway.trace.floor.ceiling import ceilings
from headway.trace.floor.floors import Floors, doubts, floors
from headway.trace.part import Part


@dataclass(frozen=True)
class RunFloors:
    """Floors of each part, in the order given; the ceilings of each model of device; what is doubtful."""

    parts: tuple[Floors, ...]
    ceilings: Mapping[str, Ceilings]
    health: tuple[Health, ...]


def run_floors(placed: Sequence[tuple[int, Part]], measured: Ceilings | None) -> RunFloors:
    """The floors of every (rank, part). `measured`: ceilings of a run or a file; without them the trace's own, else published ones."""
    found: dict[str, Ceilings] = {}
    for model in dict.fromkeys(part.model for _, part in placed):
        seen = [(p.work, p.costs) for _, p in placed if p.model == model]
        known = ceilings(measured, model, seen) if any(c.known.any() for _, c in seen) else None
        if known is not None:
            found[model] = known
    out, health = [], []
    for rank, part in placed:
        one = floors(part.work, part.costs, found.get(part.model))
        out.append(one)
        health += doubts(part.work.device, one, rank)
    return RunFloors(tuple(out), found, tuple(health))


def summary(found: RunFloors) -> dict[str, Any]:
    """The ceilings by model of device, for a summary; "" is a device without a name."""
    return {
        model: {"flops": dict(c.flops), "memory_bytes_s": c.memory_bytes_s, "cache_bytes_s": c.cache_bytes_s, "source": c.source}
        for model, c in found.ceilings.items()
    }
