"""`Finding`: one cause of lost time, what it would win to remove it, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A cause of lost time. `recoverable_ns` is per step; `patch` is a change of the RunSpec (dotted field -> value) that cures it."""

    what: str
    bucket: str
    recoverable_ns: int
    confidence: float  # 0 to 1
    evidence: tuple[str, ...] = ()
    action: str = ""
    patch: Mapping[str, Any] | None = None
