"""What a flight recorder of torch.distributed holds: `FlightLog`, one a process; and where its groups stand: `GroupState`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class FlightEntry:
    """One collective or message as its rank recorded it. None: not recorded.

    `number` counts the collectives of a group, `p2p` its messages, `operation` both. Sizes are dims, one tuple a tensor. The times of
    start and end are when a watchdog saw them: later than they were, by up to its period.
    """

    group: str
    text: str = ""  # the group's description
    local: str = ""  # the number of the group in this process, as FlightStatus has it
    name: str  # as the library calls it, without the backend: all_reduce, "recv 3<-0"
    backend: str = ""
    number: int | None = None
    p2p: int | None = None
    operation: int | None = None
    is_p2p: bool = False
    state: str = ""  # scheduled, started, completed; a backend that never says it stays scheduled
    retired: bool | None = None  # the watchdog no longer waits for it
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    input_types: tuple[str, ...] = ()
    output_types: tuple[str, ...] = ()
    created_ns: int | None = None
    started_ns: int | None = None
    completed_ns: int | None = None
    duration_ns: int | None = None
    timeout_ms: int | None = None
    frames: tuple[str, ...] = ()  # file:line function, innermost first

    @property
    def done(self) -> bool:
        """Whether it is known to have ended, well or not."""
        return self.state == "completed" or self.completed_ns is not None or self.retired is True


@dataclass(frozen=True, kw_only=True)
class FlightGroup:
    """A process group: its name, what its maker called it, its global ranks (empty: unknown)."""

    name: str
    text: str = ""
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FlightStatus:
    """The last collective of a group of this process (by its local number) that was enqueued, started, completed; None: none."""

    group: str
    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None


@dataclass(frozen=True, kw_only=True)
class FlightLog:
    """The flight recorder of one process. `rank` and `world` are None where nothing says them."""

    source: str
    rank: int | None
    world: int | None
    version: str
    library: str = ""  # version of NCCL
    groups: tuple[FlightGroup, ...] = ()
    status: tuple[FlightStatus, ...] = ()
    entries: tuple[FlightEntry, ...] = ()
    unreadable: int = 0  # entries that could not be read


@dataclass(frozen=True, kw_only=True)
class LastCollective:
    """The furthest collective that one rank entered in one group."""

    rank: int
    number: int
    name: str
    state: str
    retired: bool | None
    inputs: tuple[tuple[int, ...], ...]
    created_ns: int | None
    oldest: int | None = None  # the first of the group that it recorded and did not see end; None where its library never says
    completed: int | None = None  # the last that this rank saw completed in the group, by its status
    frame: str = ""  # where it was called


@dataclass(frozen=True, kw_only=True)
class GroupState:
    """Where the ranks of one group stand. Facts: which of them is at fault they do not say."""

    group: str
    text: str
    ranks: tuple[int, ...]  # members; empty: unknown
    last: tuple[LastCollective, ...]  # in order of rank
    behind: tuple[int, ...]  # ranks that have not entered what another has entered
    stuck: tuple[int, ...]  # ranks whose oldest collective without an end has ended on another: their device does not go on
    silent: tuple[int, ...]  # members whose dump has no collective of this group
    absent: tuple[int, ...]  # members without a dump
    differ: tuple[Mapping[str, Any], ...] = ()  # number, what (name, size, type), values: {value: ranks}
    pending: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # messages that are not over -> ranks that wait for one
