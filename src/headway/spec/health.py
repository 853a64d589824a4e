"""`Health`: a doubt about a trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Health:
    """Something about a trace that makes a number unreliable: its name, how often, and what it touches."""

    what: str
    count: int
    rank: int | None = None
    affects: str = ""
    text: str = ""
