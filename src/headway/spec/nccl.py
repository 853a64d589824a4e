"""What NCCL's log says (NCCL_DEBUG=INFO): `NcclLog`, one a process; and each communicator over all its ranks: `NcclLinks`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class NcclComm:
    """A communicator as one rank made it. None: not said.

    `links`: transport (P2P/CUMEM, SHM, NET/IB/GDRDMA, NET/Socket, NVLS, ...) -> connections of channels.
    """

    handle: str  # its address in the process
    identity: str = ""  # commId: the same on all ranks
    rank: int | None = None
    size: int | None = None
    device: int | None = None
    bus: str = ""
    nodes: int | None = None
    complete: bool = False  # whether it says that its start ended
    init_ns: int | None = None
    channels: int | None = None  # of collectives
    rings: int = 0
    links: Mapping[str, int] = field(default_factory=dict)
    peers: Mapping[int, str] = field(default_factory=dict)  # rank -> transport of the first channel to it
    operations: Mapping[str, int] = field(default_factory=dict)  # collective -> calls, where calls are logged
    last_operation: int | None = None  # the highest opCount


@dataclass(frozen=True, kw_only=True)
class NcclWarning:
    """A line of level WARN, and how often it came, numbers apart."""

    text: str
    where: str = ""  # file:line in NCCL
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class NcclLog:
    """What one process wrote."""

    source: str
    host: str
    process: int
    version: str = ""
    network: str = ""  # IB, Socket, a plugin
    comms: tuple[NcclComm, ...] = ()
    warnings: tuple[NcclWarning, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NcclLinks:
    """One communicator over all processes that logged it."""

    identity: str
    size: int | None
    ranks: tuple[int, ...]  # that logged it
    hosts: int
    links: Mapping[str, int]  # transport -> connections of channels, all ranks
    channels: tuple[int, ...]  # the different numbers of channels of its ranks
    init_ns: int | None  # the slowest rank's
    incomplete: tuple[int, ...]  # ranks that began to start it and do not say that they ended
    operations: Mapping[str, int]  # calls of the rank with most
    last_operations: Mapping[int, int]  # rank -> highest opCount
