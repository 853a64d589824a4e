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


def at_ends(of: Lives, ends: Ints, rows: Ints) -> Ints:
    """Live bytes [ends] of the lives `rows` at each end."""
    change = np.zeros(len(ends) + 1, np.int64)
    np.add.at(change, np.searchsorted(ends, of.born[rows]), of.size[rows])
    np.add.at(change, np.searchsorted(ends, of.freed[rows]), -of.size[rows])
    return np.cumsum(change)[:-1]


def leaks(of: Lives, ends: Ints, label: Ints, labels: Sequence[tuple[str, str]]) -> tuple[Growth, ...]:
    """The labels (where, part) whose live bytes at `ends` grow for good, the steepest first.

    The first end is left out (state is made in the first step); the confidence is shared by all labels that end higher than they began.
    """
    ends = ends[1:]
    if len(ends) < FEWEST or not len(of):
        return ()
    first, last = (np.bincount(label[rows], of.size[rows], len(labels)) for rows in (of.at(int(ends[0])), of.at(int(ends[-1]))))
    higher = np.flatnonzero(last > first)
    share = 1 - (1 - CONFIDENCE) / max(1, len(higher))
    order = np.argsort(label, kind="stable")  # the lives of label c are order[bounds[c] : bounds[c + 1]]
    bounds = np.searchsorted(label[order], np.arange(len(labels) + 1))
    found = []
    for code in higher.tolist():
        held = at_ends(of, ends, order[bounds[code] : bounds[code + 1]])
        slope = grows(held.astype(np.float64), share)
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
                    num_bytes=int(held[-1] - held[0]),
                )
            )
    return tuple(sorted(found, key=lambda g: -g.slope)[:_SHOWN])
