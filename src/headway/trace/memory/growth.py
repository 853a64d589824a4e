"""Leaks: call sites whose live bytes at the ends of steps grow and go on growing.

The slope is the mean of the differences from one step end to the next, with its t interval. Without a leak, the differences of a series
that wavers around a level follow each other with opposite signs, so the interval is too wide rather than too narrow. A cache that fills,
or state that is made once, grows only at first: so growth must be there in each third of the steps too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from headway.spec.memory import Growth
from headway.stats.intervals import Interval, mean_interval
from headway.trace.memory.lives import Lives
from headway.trace.sweep import Ints

CONFIDENCE = 0.95  # that of all sites of a device together, none of which leaks, none is named
FEWEST = 6  # step ends that can show a leak
_SHOWN = 10


def grows(values: NDArray[np.float64], confidence: float, *, mostly: bool = False) -> Interval | None:
    """The slope of a series [n] that grows for good: its interval lies above 0 and each third of it rises. None for any other.

    `mostly`: more than half of the differences must rise too. A peak that is never reset needs it: it cannot fall, so that single rises
    prove nothing.
    """
    if len(values) < FEWEST:
        return None
    differences = np.diff(values)
    slope = mean_interval(differences, confidence=confidence)
    thirds = [values[int(i)] for i in np.linspace(0, len(values) - 1, 4)]
    rising = all(b > a for a, b in pairwise(thirds))
    return slope if slope.low > 0 and rising and (not mostly or 2 * (differences > 0).sum() > len(differences)) else None


def at_ends(of: Lives, ends: Ints, label: Ints, num_labels: int) -> NDArray[np.int64]:
    """Live bytes [num_labels, ends] of each label at each end."""
    first = np.searchsorted(ends, of.born, side="left")
    last = np.searchsorted(ends, of.freed, side="left")
    seen = np.flatnonzero(last > first)
    change = np.zeros((num_labels, len(ends) + 1), np.int64)
    np.add.at(change, (label[seen], first[seen]), of.size[seen])
    np.add.at(change, (label[seen], last[seen]), -of.size[seen])
    return np.cumsum(change, axis=1)[:, :-1]


def leaks(of: Lives, ends: Ints, label: Ints, labels: Sequence[tuple[str, str]]) -> tuple[Growth, ...]:
    """The labels (where, part) whose live bytes at `ends` grow for good, the steepest first.

    The first end is left out (state is made in the first step); the confidence is shared by all labels that end higher than they began.
    """
    ends = ends[1:]
    if len(ends) < FEWEST or not len(of):
        return ()
    held = at_ends(of, ends, label, len(labels))
    higher = np.flatnonzero(held[:, -1] > held[:, 0])
    share = 1 - (1 - CONFIDENCE) / max(1, len(higher))
    found = []
    for code in higher.tolist():
        slope = grows(held[code].astype(np.float64), share)
        if slope is not None:
            found.append(
                Growth(
                    where=labels[code][0],
                    part=labels[code][1],
                    slope=slope.estimate,
                    low=slope.low,
                    high=slope.high,
                    confidence=CONFIDENCE,
                    num_steps=len(ends),
                    num_bytes=int(held[code, -1] - held[code, 0]),
                )
            )
    return tuple(sorted(found, key=lambda g: -g.slope)[:_SHOWN])
