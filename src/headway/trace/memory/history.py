"""`History`: what the allocator of one device did, as immutable columns, and what it held at the end.

Moment i (0 to n) is the state after i events. A snapshot is taken at moment n, so the state at n is known exactly, and every earlier
one by undoing events from there: what a ring buffer has lost is the beginning, never the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from headway.spec.breakdown import Health
from headway.trace.sweep import EMPTY, NEVER, Ints, Steps


class Action(IntEnum):
    """What one event did."""

    OTHER = 0
    ALLOC = 1
    FREE_REQUESTED = 2
    FREE_COMPLETED = 3
    SEGMENT_ALLOC = 4
    SEGMENT_FREE = 5
    SEGMENT_MAP = 6
    SEGMENT_UNMAP = 7
    OOM = 8
    SNAPSHOT = 9


ACTIONS: Mapping[str, Action] = {a.name.lower(): a for a in Action}
GROWS = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
SHRINKS = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


class Frame(NamedTuple):
    """One line of a stack."""

    file: str
    function: str
    line: int


@dataclass(frozen=True)
class Site:
    """Where a block was asked for: a stack (innermost frame first), or what a profiler knew of the moment."""

    frames: tuple[Frame, ...] = ()
    phase: str = ""
    module: str = ""
    operator: str = ""
    part: str = ""  # what its writer takes it for


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """What is in use at the end: blocks with their address, bytes taken, whether they only await the end of other streams' work."""

    address: Ints = field(default_factory=lambda: EMPTY)
    size: Ints = field(default_factory=lambda: EMPTY)
    awaiting: Ints = field(default_factory=lambda: EMPTY)  # 0 or 1
    site: Ints = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, kw_only=True)
class Segments:
    """What is reserved at the end."""

    address: Ints = field(default_factory=lambda: EMPTY)
    size: Ints = field(default_factory=lambda: EMPTY)
    expandable: Ints = field(default_factory=lambda: EMPTY)  # 0 or 1
    private: Ints = field(default_factory=lambda: EMPTY)  # 1: of a pool of its own, as a CUDA graph has


@dataclass(frozen=True)
class Named:
    """A tensor that the program itself named when the snapshot was taken: [address, address + size) is of part `part`."""

    address: int
    size: int
    part: str


@dataclass(frozen=True, kw_only=True)
class History:
    """One device. `time` is nanoseconds since the epoch, -1 where it is not known; -1 in `site` is none. The `address` of an OOM is what
    the device had free.

    `reserved` and `allocated`, where they are not empty, are the allocator's own totals after each event (profilers write them; they
    know no segments). `named` is what the program said of its tensors, `step_ends` when its steps ended (number -> nanoseconds),
    `module_at` where it was.
    """

    source: str
    device: str
    time: Ints
    action: Ints
    address: Ints
    size: Ints
    site: Ints
    sites: tuple[Site, ...] = ()
    blocks: Blocks = field(default_factory=Blocks)
    segments: Segments = field(default_factory=Segments)
    reserved: Ints = field(default_factory=lambda: EMPTY)
    allocated: Ints = field(default_factory=lambda: EMPTY)
    layout: bool = True  # segments are known
    rank: int | None = None
    named: tuple[Named, ...] = ()
    step_ends: Mapping[int, int] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    module_at: Steps = NEVER  # time -> code of the module whose forward was open
    settings: Mapping[str, object] = field(default_factory=dict)
    health: tuple[Health, ...] = ()

    def __len__(self) -> int:
        return len(self.time)

    def rows(self, *actions: Action) -> Ints:
        """Events of these actions, in order."""
        return np.flatnonzero(np.isin(self.action, [int(a) for a in actions]))


@dataclass(frozen=True, kw_only=True)
class Allocations:
    """Memory events of a profiler, in order of time: bytes given (above 0) or taken back at an address, and totals after it.

    `device` codes into `devices`, `track` into `tracks` (process, thread); -1 in `address`, `allocated`, `reserved` is "not said".
    """

    time: Ints
    device: Ints
    track: Ints
    address: Ints
    size: Ints
    allocated: Ints
    reserved: Ints
    devices: tuple[str, ...]
    tracks: tuple[tuple[str, str], ...]
