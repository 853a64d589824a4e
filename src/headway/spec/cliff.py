"""`Cliff`: a place in a run where steps became slower: spikes of one cause, or a shift to another level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

CAUSES: Final = (
    "input", "encode", "checkpoint", "evaluate", "gc", "recompile", "allocator", "shape", "profiler", "clocks", "machine", "unknown",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cliff:
    """Steps of one rank that took longer than the level before them, and why, as the run's events tell it. Times are nanoseconds."""

    kind: Literal["spike", "shift"]
    cause: str  # one of CAUSES
    what: str  # a sentence
    rank: int  # where the cause was seen
    steps: tuple[int, ...]  # of spikes: all; of a shift: its first step
    before_ns: int  # level before: the median step
    after_ns: int  # the new level, or the median spike
    lost_ns: int  # what all these steps took above the level before
    share: float  # of the lost time that the cause accounts for
    evidence: tuple[str, ...] = ()
    action: str = ""
