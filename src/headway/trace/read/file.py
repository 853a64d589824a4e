"""What is in a file, whatever its format: the first reader whose test its first bytes pass reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from headway.spec.counters import KernelCounters
from headway.spec.errors import TraceError
from headway.spec.flight import FlightLog
from headway.spec.health import Health
from headway.spec.nccl import NcclLog
from headway.trace.memory.history import History
from headway.trace.read import formats
from headway.trace.read.remote import path_of
from headway.trace.read.source import FIX, head
from headway.trace.table import Table

__all__ = ["FIX", "READERS", "Reader", "Reading", "known", "read"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one file holds; most hold one thing."""

    source: str
    tables: tuple[Table, ...] = ()  # timelines, one a process
    memory: tuple[History, ...] = ()  # what allocators did, one a device
    flight: tuple[FlightLog, ...] = ()  # recorders of collectives, one a process
    nccl: tuple[NcclLog, ...] = ()  # logs of NCCL, one a process
    counters: tuple[KernelCounters, ...] = ()  # of profiled launches, in order
    health: tuple[Health, ...] = ()  # what is doubtful about the file, where no table says it

    @property
    def beside(self) -> bool:
        """Whether the file holds anything that is no timeline."""
        return bool(self.memory or self.flight or self.nccl or self.counters)


@dataclass(frozen=True)
class Reader:
    """One format: its name, whether a file is of it (path, first bytes), and the function that reads it, as "module:function"."""

    name: str
    suits: Callable[[Path, bytes], bool]
    function: str

    def read(self, path: Path) -> Reading:
        """The content of `path`. Raises TraceError."""
        module, _, name = self.function.partition(":")
        result = getattr(import_module(f"headway.trace.read.{module}"), name)(path)
        return result if isinstance(result, Reading) else Reading(source=str(path), tables=(result,))


READERS = (
    Reader("Nsight Systems", formats.is_sqlite, "nsys:read"),
    Reader("XPlane", formats.is_xspace, "xplane:read"),
    Reader("memory snapshot", formats.is_snapshot, "snapshot:read"),
    Reader("flight recorder", formats.is_flight, "flight:read"),
    Reader("Nsight Compute", formats.is_ncu, "ncu:read"),
    Reader("NCCL log", formats.is_nccl, "nccl_log:read"),
    Reader("Nsight Compute report", formats.is_ncu_report, "ncu:binary"),
    Reader("Nsight Systems report", formats.is_nsys_report, "nsys:binary"),
    Reader("Kineto", lambda path, first: True, "kineto:reading"),
)  # in order; the last takes what no other knows and says what is wrong


def known(path: Path) -> bool:
    """Whether the content of a file is of a format that has a mark of its own (Kineto has none: it is JSON)."""
    try:
        first = head(path)
    except TraceError:
        return False
    return any(r.suits(path, first) for r in READERS[:-1])


def read(path: str | Path) -> Reading:
    """The content of `path`. Raises TraceError if it is missing, is of no known format or holds nothing."""
    path = path_of(path)
    first = head(path)
    return next(r for r in READERS if r.suits(path, first)).read(path)
