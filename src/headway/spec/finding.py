"""`Finding`: one cause of lost time, what it would win to remove it, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A cause of lost time. `recoverable_ns` is per step; `patch` is a change of the RunSpec (dotted field -> value) that cures it.

    `bucket_ns` is all of its bucket in a step. More can be won than that: others wait for what is slow. Both are means over steps and
    devices.
    """

    what: str
    bucket: str
    recoverable_ns: int
    confidence: float  # 0 to 1
    evidence: tuple[str, ...] = ()
    action: str = ""
    patch: Mapping[str, Any] | None = None
    bucket_ns: int | None = None
