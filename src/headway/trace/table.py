"""`Table`: one trace file as immutable numpy columns; a row is a span, sorted by start.

A track is where a span lives: (process, thread) on the host, (device, stream) on a device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import Health
from headway.trace.memory.history import Allocations
from headway.trace.sweep import EMPTY, Ints


class Kind(IntEnum):
    """What a row is, whatever its writer called it."""

    OTHER = 0
    KERNEL = 1
    MEMCPY = 2
    MEMSET = 3
    DEVICE_MARK = 4  # an annotation drawn on a device: not work
    SYNC = 5  # a wait drawn on a device: not work
    RUNTIME = 6
    OPERATOR = 7
    MARK = 8  # an annotation on a host thread
    PYTHON = 9


DEVICE_WORK = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
ON_DEVICE = (*DEVICE_WORK, Kind.SYNC, Kind.DEVICE_MARK)  # what is drawn on a device
HOST = (Kind.RUNTIME, Kind.OPERATOR, Kind.MARK, Kind.PYTHON)


@dataclass(frozen=True)
class Group:
    """A process group: its name in the file, what its maker called it, its global ranks (empty: unknown)."""

    name: str
    text: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Collective:
    """What the writer said of one collective: normalised name, group, ranks, bytes sent or received (the larger); None: unknown.

    `number`: the group's own count of its collectives; `peer`: of a send or recv, the other rank.
    """

    name: str
    group: str | None = None
    text: str = ""
    ranks: tuple[int, ...] = ()
    size: int | None = None
    bytes: int | None = None
    number: int | None = None
    peer: int | None = None


@dataclass(frozen=True)
class Shape:
    """The inputs of a host operator: dims of each (a list of dims for a list of tensors), and what its writer calls their types."""

    dims: tuple[Any, ...]
    types: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Table:
    """One trace. Times are integer nanoseconds since the epoch of the writer; -1 in an integer column is "none".

    `name` and `track` are codes into `names` and `tracks`.
    """

    source: str
    start: Ints
    end: Ints
    kind: NDArray[np.int8]
    name: Ints
    track: Ints
    device: Ints
    stream: Ints
    correlation: Ints
    sequence: Ints  # autograd sequence number
    forward: Ints  # thread of the forward operator: above 0 on a backward row
    names: tuple[str, ...]
    tracks: tuple[tuple[Any, Any], ...]
    shape: Ints = field(default_factory=lambda: EMPTY)  # code into `shapes`, -1 none; empty: no row has any
    shapes: tuple[Shape, ...] = ()
    place: Ints = field(default_factory=lambda: EMPTY)  # of each row among the spans of the file; empty: unknown
    collectives: Mapping[int, Collective] = field(default_factory=dict)  # by row
    rank: int | None = None
    world: int | None = None
    backend: str = ""
    groups: tuple[Group, ...] = ()
    devices: tuple[str, ...] = ()
    maker: str = "cuda"  # what torch calls devices of this kind: cuda:0, xpu:0, mtia:0
    host: str = ""
    allocations: Allocations | None = None  # what a profiler recorded of memory
    health: tuple[Health, ...] = ()

    def __len__(self) -> int:
        return len(self.start)

    def of(self, *kinds: Kind) -> NDArray[np.bool_]:
        """For each row, whether it is of one of these kinds."""
        wanted = np.zeros(len(Kind), bool)
        wanted[list(kinds)] = True
        return wanted[self.kind]

    def rows(self, *kinds: Kind) -> Ints:
        """Rows of these kinds, in order of start."""
        return np.flatnonzero(self.of(*kinds))

    def named(self, test: Any) -> NDArray[np.bool_]:
        """For each row, whether its name passes `test` (called once a name)."""
        return np.array([bool(test(n)) for n in self.names], bool)[self.name] if len(self) else np.zeros(0, bool)

    def coded(self, rule: Any) -> Ints:
        """For each row, the integer that `rule` gives its name (called once a name)."""
        return np.array([rule(n) for n in self.names], np.int64)[self.name] if len(self) else np.zeros(0, np.int64)
