"""`Straggler`: a rank that is slower than its peers by more than chance, and in what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KINDS: Final = ("compute", "input", "host", "link")


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """One rank's excess over its peers. Nanoseconds are per step.

    Kinds: `compute`, the same kernels take longer; `input`, its device waits longer for batches; `host`, its device waits longer for the
    host to issue work; `link`, its transfers take longer than those of other groups of the axis.
    """

    rank: int
    kind: str
    excess_ns: int  # mean over steps, over the median of its peers
    interval_ns: tuple[int, int]  # 95 %
    p: float  # chance of such an excess among equal ranks, corrected for how many were compared
    ranks: tuple[int, ...] = ()  # of a link: those that share the slow transfers and cannot be told apart
    evidence: tuple[str, ...] = ()
