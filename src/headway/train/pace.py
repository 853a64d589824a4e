"""Whether steps have become slower and stay so, from the mean step of each log period."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Final

CAPTURED: Final = 3  # steps that are traced then
MOST: Final = 5  # times in one life of a run
SLOWER: Final = 1.25  # times the median period
_LEAST_STEPS = 8  # that must be slow
_PERIODS = 32  # remembered
_FEWEST = 5  # periods before anything can be said


class Pace:
    """The periods of a run so far. After a change it learns the new pace before it can find another."""

    def __init__(self) -> None:
        self._known: deque[float] = deque(maxlen=_PERIODS)
        self._slow: list[tuple[float, int]] = []  # periods in a row that may be a new level: mean step, steps
        self._times = 0

    def slower(self, step_ns: float, steps: int) -> bool:
        """Take a period of `steps` steps of `step_ns` in the mean; True at the one that makes a lasting change certain.

        Slow: above SLOWER times the median and above the median by six median deviations. A slow period that no other follows is a spike.
        """
        if len(self._known) < _FEWEST:
            self._known.append(step_ns)
            return False
        middle = statistics.median(self._known)
        spread = statistics.median(abs(x - middle) for x in self._known)
        if step_ns <= max(SLOWER * middle, middle + 6 * 1.4826 * spread):
            self._known.extend(ns for ns, _ in self._slow)  # a spike: it belongs to the pace
            self._slow.clear()
            self._known.append(step_ns)
            return False
        self._slow.append((step_ns, steps))
        if len(self._slow) < 2 or sum(n for _, n in self._slow) < _LEAST_STEPS:
            return False
        self._known.clear()
        self._slow.clear()
        self._times += 1
        return self._times <= MOST
