"""`Health`: a doubt about a trace, and the numbers that are not shown because of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_SOME: Final = 8  # ranks that a text names


@dataclass(frozen=True, kw_only=True)
class Health:
    """Something about a trace that makes a number unreliable: its name, how often, and what it touches.

    `withholds` names buckets, whole (idle.launch) or by their head (idle), and keys of a summary, that cannot be trusted at all: they are
    null in a summary and no finding rests on them.
    """

    what: str
    count: int
    rank: int | None = None
    affects: str = ""
    text: str = ""
    withholds: tuple[str, ...] = ()


def some(ranks: Sequence[int]) -> str:
    """The first ranks of many in words: 0, 1, 2, ..."""
    return ", ".join(map(str, ranks[:_SOME])) + (", ..." if len(ranks) > _SOME else "")


def withheld(health: Iterable[Health], name: str) -> Health | None:
    """The first doubt for which the bucket or key `name` is not shown; None if it is."""
    return next((h for h in health for w in h.withholds if name == w or name.startswith(f"{w}.")), None)
