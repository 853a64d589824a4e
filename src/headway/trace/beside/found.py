"""All that the files of one call hold beside timelines and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.spec.breakdown import RankBreakdown
from headway.spec.counters import KernelCounters
from headway.spec.flight import FlightLog
from headway.spec.health import Health
from headway.spec.nccl import NcclLog
from headway.trace.beside import counters, flight, nccl
from headway.trace.part import FileParts


@dataclass(frozen=True)
class Beside:
    """Logs and counters, in order of the files, and what is doubtful about those files."""

    flights: tuple[FlightLog, ...]
    logs: tuple[NcclLog, ...]
    counters: tuple[KernelCounters, ...]
    notes: tuple[Health, ...]

    def __bool__(self) -> bool:
        return bool(self.flights or self.logs or self.counters)

    def fields(self) -> dict[str, Any]:
        """Fields of a Breakdown."""
        return {"flight": flight.groups(self.flights), "nccl": nccl.links(self.logs), "counters": self.counters}

    def health(self, rows: Sequence[RankBreakdown]) -> list[Health]:
        """Everything doubtful; `rows` hold the kernels that counters are for."""
        names = [k.name for row in rows for k in row.kernels]
        return [*self.notes, *flight.health(self.flights), *nccl.health(self.logs), *counters.health(names, self.counters)]


def beside(files: Sequence[FileParts]) -> Beside:
    """What `files` hold."""
    return Beside(
        tuple(log for f in files for log in f.flight),
        tuple(log for f in files for log in f.nccl),
        tuple(c for f in files for c in f.counters),
        tuple(h for f in files if f.beside for h in f.health),
    )
