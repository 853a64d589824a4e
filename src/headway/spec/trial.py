"""`Trial`: what a finding's patch really gained, against what was predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SCHEMA: Final = "headway.trial/1"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A paired comparison of a run's settings (A) with a finding's patch (B). Times are nanoseconds of a step.

    `gain_ns` is the mean over pairs of A less B, with its interval; the sides of a pair run one after the other from the same start.
    """

    finding: int  # its number in the list of findings, from 1
    what: str
    bucket: str
    patch: Mapping[str, Any]
    predicted_ns: int
    gain_ns: float
    low_ns: float
    high_ns: float
    confidence: float
    step_a_ns: float
    step_b_ns: float
    pairs: tuple[tuple[float, float], ...]  # mean step of A and of B
    b_first: tuple[bool, ...]  # whether B ran first, of each pair
    steps: int  # of each run, of which the first are left out
    warmup: int
    folder: str
    time_ns: int

    @property
    def found(self) -> bool:
        """Whether the gain is certain: the interval lies above 0."""
        return self.low_ns > 0

    @property
    def as_predicted(self) -> bool:
        """Whether the interval holds the predicted gain."""
        return self.low_ns <= self.predicted_ns <= self.high_ns
