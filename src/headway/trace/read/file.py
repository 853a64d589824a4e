"""What is in a file, whatever its format: the first reader whose test its first bytes pass reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from headway.trace.memory.history import History
from headway.trace.read.source import FIX, head
from headway.trace.table import Table

__all__ = ["FIX", "READERS", "Reader", "Reading", "read"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one file holds; most hold one thing."""

    source: str
    tables: tuple[Table, ...] = ()  # timelines, one a process
    memory: tuple[History, ...] = ()  # what allocators did, one a device


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


def _is_snapshot(path: Path, first: bytes) -> bool:
    """The dict that torch.cuda.memory pickles, or the same as JSON: its first key is near the beginning."""
    return first.lstrip()[:1] in (b"\x80", b"{") and any(
        key in first[:64] for key in (b"segments", b"device_traces", b"allocator_settings")
    )


READERS = (
    Reader("Nsight Systems", lambda path, first: first.startswith(b"SQLite format 3\0"), "nsys:read"),
    Reader("memory snapshot", _is_snapshot, "snapshot:read"),
    Reader("Kineto", lambda path, first: True, "kineto:reading"),
)  # in order; the last takes what no other knows and says what is wrong


def read(path: str | Path) -> Reading:
    """The content of `path`. Raises TraceError if it is missing, is of no known format or holds nothing."""
    path = Path(path)
    first = head(path)
    return next(r for r in READERS if r.suits(path, first)).read(path)
