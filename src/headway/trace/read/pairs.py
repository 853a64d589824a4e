"""Begin and end events of threads, put together to spans."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from headway.trace.sweep import Ints

Moments: TypeAlias = tuple[Ints, Ints, Ints]  # place in the file, track, time


def paired(begins: Moments, ends: Moments) -> tuple[Ints, int]:
    """(time of the end of each begin or -1, how many have no partner).

    Spans of a track nest: an end closes the begin opened last. With the level of an event = begins less ends before it on its track
    (a begin at level d opens it, an end closes d - 1), partners are neighbours among the events of one track and level.
    """
    place, track, time = (np.concatenate(pair) for pair in zip(begins, ends, strict=True))
    num = len(begins[0])
    step = np.where(np.arange(len(place)) < num, 1, -1)
    order = np.lexsort((place, time, track))  # one track after another, each in time; at one moment as the file has them
    sums = np.cumsum(step[order])
    first = np.concatenate(([True], track[order][1:] != track[order][:-1])) if len(order) else np.zeros(0, bool)
    origin = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0)) if len(order) else order
    level = sums - np.where(origin > 0, sums[origin - 1], 0) + (step[order] < 0)  # of the span that an event opens or closes
    by_level = order[np.lexsort((np.arange(len(order)), level, track[order]))]
    of_place = np.empty(len(order), np.int64)
    of_place[order] = level
    level = of_place[by_level]
    left, right = by_level[:-1], by_level[1:]
    match = (left < num) & (right >= num) & (track[left] == track[right]) & (level[:-1] == level[1:])
    close = np.full(num, -1, np.int64)
    close[left[match]] = time[right[match]]
    return close, len(order) - 2 * int(match.sum())
