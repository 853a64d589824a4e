"""Where steps end in a history: what the program or a trace beside it says, else the ends of optimizer bursts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headway.trace.memory.history import History
from headway.trace.sweep import Ints

_FEWEST = 2  # bursts that show a loop


@dataclass(frozen=True)
class StepEnds:
    """Moments at which steps end, rising, with their numbers; `told` says by what."""

    moment: Ints
    number: Ints
    told: str

    def of(self, moment: int) -> int | None:
        """The step that is under way at `moment`: the first that ends at it or later; None if that is not known."""
        place = int(np.searchsorted(self.moment, moment))
        return int(self.number[place]) if place < len(self.number) else None


def step_ends(history: History, parts: Sequence[str], marked: Mapping[int, int]) -> StepEnds:
    """`marked` (step -> nanoseconds at its end, from a trace or the events of the run) or what the snapshot says itself, by time; else
    the last event of every burst of optimizer work (`parts[i]` is the part of site i)."""
    timed = (history.time >= 0).all() and len(history) > 0
    for ends, told in ((history.step_ends, "the snapshot"), (marked, "step marks")):
        if timed and ends:
            numbers = np.array(sorted(ends), np.int64)
            at = np.array([ends[k] for k in numbers.tolist()], np.int64)
            inside = (at > history.time[0]) & (at <= history.time[-1] + 10**9)
            rising = np.append(True, np.diff(at) > 0) if len(at) else inside
            keep = inside & rising
            if keep.any():
                return StepEnds(np.searchsorted(history.time, at[keep], side="right").astype(np.int64), numbers[keep], told)
    optimizer = np.array([p == "optimizer" for p in parts] + [False], bool)[history.site]  # the last is for -1
    forward = np.array([p.startswith("activations") or p == "gradients" for p in parts] + [False], bool)[history.site]
    says = np.flatnonzero(optimizer | forward)
    last = says[:-1][optimizer[says[:-1]] & forward[says[1:]]] if len(says) > 1 else says[:0]
    if len(says) and optimizer[says[-1]]:
        last = np.append(last, says[-1])
    if len(last) >= _FEWEST:
        return StepEnds((last + 1).astype(np.int64), np.arange(len(last), dtype=np.int64), "calls of the optimizer")
    return StepEnds(np.zeros(0, np.int64), np.zeros(0, np.int64), "")
