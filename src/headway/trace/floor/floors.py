"""The floor of each step and kernel class: the least time that its work can take on this device.

    floor of a group of kernels = max(FLOPs / ceiling of their format, bytes / ceiling of the memory)

A floor above the measured time means that a ceiling or a formula is wrong: it counts as the measured time, and the excess is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import COMPUTE_CLASSES, Health, StepBreakdown
from headway.spec.hardware import Ceilings
from headway.trace.floor.ceiling import groups
from headway.trace.floor.cost import FORMATS, Costs
from headway.trace.pieces import Pieces
from headway.trace.sweep import Ints
from headway.trace.work import NUM_CLASSES, Work

SAID: Final = 0.05  # of the known time: floors above what was measured by more than this are said
_WIDER: Final = {"tf32": ("fp32",), "fp32": (), "bf16": ("fp16",), "fp16": ("bf16",)}  # where a format has no ceiling of its own


@dataclass(frozen=True)
class Floors:
    """Per row of work: the least share of its time, in [0, 1], NaN where it is unknown; and by how much floors exceeded the time."""

    share: NDArray[np.float64]
    excess_ns: int  # floors over the measured time, summed
    known_ns: int

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether the floor of each row is known."""
        return ~np.isnan(self.share)


def floors(work: Work, costs: Costs, ceilings: Ceilings | None) -> Floors:
    """The floor of each row of `work`: of a group of kernels, each has its share of the time."""
    share = np.full(len(work), np.nan)
    if ceilings is None or not costs.known.any():
        return Floors(share, 0, 0)
    rows, time = groups(work, costs)
    least = _least_ns(costs.flops[rows], costs.bytes[rows], costs.format[rows], ceilings)
    usable = ~np.isnan(least) & (time > 0)
    excess = np.where(usable, np.maximum(least - time, 0), 0.0).sum()
    part = np.where(usable, np.minimum(least / np.maximum(time, 1), 1.0), np.nan)
    by_group = dict(zip(costs.group[rows].tolist(), part.tolist(), strict=True))
    known = np.flatnonzero(costs.known)
    share[known] = [by_group[g] for g in costs.group[known].tolist()]
    return Floors(share, round(float(excess)), int(time[usable].sum()))


def _least_ns(flops: NDArray[np.float64], moved: NDArray[np.float64], form: Ints, ceilings: Ceilings) -> NDArray[np.float64]:
    """Nanoseconds; NaN where the ceiling that would bind is not known."""
    rate = np.array([_rate(name, ceilings) for name in FORMATS])[form]
    busy = np.where(flops > 0, flops / rate * 1e9, 0.0)
    memory = ceilings.memory_bytes_s or np.nan
    fits = (moved <= ceilings.cache_bytes) if ceilings.cache_bytes_s else np.zeros(len(moved), bool)
    speed = np.where(fits, max(memory, ceilings.cache_bytes_s or 0.0), memory)
    least = np.fmax(busy, moved / speed * 1e9)
    unknown = np.where(flops > 0, np.isnan(rate), np.isnan(speed))
    return np.where(unknown, np.nan, least)


def _rate(name: str, ceilings: Ceilings) -> float:
    return next((ceilings.flops[n] for n in (name, *_WIDER.get(name, ())) if n in ceilings.flops), np.nan)


def with_floors(steps: Sequence[StepBreakdown], work: Work, pieces: Pieces, found: Floors) -> tuple[StepBreakdown, ...]:
    """`steps` of one device with their floors, over the time in which each kernel has the device to itself (as buckets count it)."""
    if not found.known.any():
        return tuple(steps)
    num = len(steps)
    least, measured = np.zeros((num, NUM_CLASSES)), np.zeros((num, NUM_CLASSES), np.int64)
    runs = pieces.owner >= 0
    runs[runs] &= (work.level[pieces.owner[runs]] < NUM_CLASSES) & found.known[pieces.owner[runs]]
    row, window, length = pieces.owner[runs], pieces.window[runs], pieces.length[runs]
    np.add.at(measured, (window, work.level[row]), length)
    np.add.at(least, (window, work.level[row]), length * found.share[row])
    return tuple(_filled(step, least[k], measured[k]) for k, step in enumerate(steps))


def _filled(step: StepBreakdown, least: NDArray[np.float64], measured: Ints) -> StepBreakdown:
    compute = sum(ns for name, ns in step.buckets.items() if name.startswith("compute."))
    seen = np.flatnonzero(measured)
    lowest = {COMPUTE_CLASSES[i]: round(float(least[i])) for i in seen.tolist()}
    return replace(
        step,
        floors=lowest,
        floor_coverage=float(measured.sum()) / compute if compute else None,
        recoverable={name: int(measured[COMPUTE_CLASSES.index(name)]) - ns for name, ns in lowest.items()},
    )


def doubts(device: str, found: Floors, rank: int) -> list[Health]:
    """What is said where floors exceed the measured time."""
    if found.excess_ns <= SAID * found.known_ns:
        return []
    text = (
        f"floors of kernels on {device} exceed their measured time by {found.excess_ns / 1e6:.2f} ms "
        f"({found.excess_ns / found.known_ns:.0%} of it): a ceiling is too low, or work fits into a cache; they count as the measured time"
    )
    return [Health(what="floor_above_measured", count=1, rank=rank, affects="floors, recoverable compute", text=text)]
