"""What one file gives to the whole: each of its devices with its work, its windows and its host, and what is doubtful about them.

A file is read and reduced by itself, in any process; the timeline (`Table`) ends here. What a later stage needs of it becomes a field of
`Part`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headway.spec.breakdown import Health
from headway.spec.counters import KernelCounters
from headway.spec.flight import FlightLog
from headway.spec.nccl import NcclLog
from headway.trace import health as doubts
from headway.trace.floor.cost import Costs, costs
from headway.trace.host import Host, hosts
from headway.trace.launcher import Launchers, launchers
from headway.trace.memory.history import History
from headway.trace.memory.profiler import histories
from headway.trace.memory.retry import Retries, retries
from headway.trace.read.file import read
from headway.trace.replay.script import Script, script
from headway.trace.table import Table
from headway.trace.windows import Windows, windows
from headway.trace.work import Work, works


@dataclass(frozen=True, kw_only=True)
class Part:
    """One device of one file."""

    work: Work
    windows: Windows
    host: Host
    costs: Costs  # FLOPs and bytes of each row of work
    script: Script  # what a replay needs beside the work
    launchers: Launchers  # the operator of each row of work
    model: str = ""  # what the device is called


@dataclass(frozen=True, kw_only=True)
class FileParts:
    """One process of one file. `rank` and `world` are None where the file does not say; `health` has no rank yet."""

    source: str
    rank: int | None = None
    world: int | None = None
    host: str = ""  # name of the machine
    parts: tuple[Part, ...] = ()
    health: tuple[Health, ...] = ()
    memory: tuple[History, ...] = ()  # what allocators did, one a device
    retries: Retries = field(default_factory=Retries)  # of the allocator, within steps
    flight: tuple[FlightLog, ...] = ()
    nccl: tuple[NcclLog, ...] = ()
    counters: tuple[KernelCounters, ...] = ()

    @property
    def beside(self) -> bool:
        """Whether it holds no timeline, but something else."""
        return not self.parts and bool(self.memory or self.flight or self.nccl or self.counters)


def of_file(path: Path) -> tuple[FileParts, ...]:
    """Every process of a file. Raises TraceError."""
    reading = read(path)
    found = tuple(map(of_table, reading.tables))
    if not reading.beside:
        return found
    rest = FileParts(
        source=reading.source,
        health=reading.health,
        memory=reading.memory,
        flight=reading.flight,
        nccl=reading.nccl,
        counters=reading.counters,
    )
    return (*found, rest)


def of_table(table: Table) -> FileParts:
    """The devices of one process."""
    table = doubts.refuse_impossible(table)
    host = hosts(table)
    parts = tuple(_part(table, work, host) for work in works(table, host))
    health = (*doubts.of_table(table), *(h for part in parts for h in doubts.of_work(part.work)))
    memory = histories(table.allocations, table, host) if table.allocations is not None else ()
    spans = [(int(p.windows.edges[0]), int(p.windows.edges[-1])) for p in parts]
    return FileParts(
        source=table.source, rank=table.rank, world=table.world, host=table.host, parts=parts, health=health, memory=memory,
        retries=retries(table, memory, spans),
    )  # fmt: skip


def _part(table: Table, work: Work, host: Host) -> Part:
    steps = windows(table, work)
    return Part(
        work=work,
        windows=steps,
        host=host,
        costs=costs(table, work),
        script=script(table, work, steps, host),
        launchers=launchers(table, work),
        model=_model(table, work.device),
    )


def _model(table: Table, device: str) -> str:
    """What a file calls a device (cuda:1); its only name where all have one, and '' where it says nothing."""
    number = int(device.rpartition(":")[2]) if ":" in device else 0
    return table.devices[number] if number < len(table.devices) else next(iter(table.devices), "")
