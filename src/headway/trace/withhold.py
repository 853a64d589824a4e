"""Numbers that a doubt forbids: null in a summary, with the reason beside them; findings that rest on them are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from headway.spec.finding import Finding
from headway.spec.health import Health, withheld

RESTS_ON: Final[Mapping[str, str]] = {
    "busy_share": "idle",
    "exposed_comm_ns": "comm",
    "exposed_comm_share": "comm",
    "hidden_comm_ns": "comm",
    "recoverable_ns": "compute",
    "floor_coverage": "compute",
}  # key of a summary -> the head of the buckets that it is made of
_TABLES: Final = ("heads", "buckets")


def trusted(summary: Mapping[str, Any], health: Sequence[Health]) -> dict[str, Any]:
    """`summary` with null for what is withheld, and "withheld": what -> why."""
    why: dict[str, str] = {}

    def shown(name: str, value: Any, on: str) -> Any:
        doubt = withheld(health, name) or withheld(health, on)
        if doubt is None or value is None:
            return value
        why[name] = doubt.text
        return None

    out = {key: shown(key, value, RESTS_ON.get(key, key)) for key, value in summary.items()}
    for table in _TABLES:
        if out.get(table):
            out[table] = {name: shown(name, value, name) for name, value in out[table].items()}
    return {**out, "withheld": why}


def supported(findings: Iterable[Finding], health: Sequence[Health]) -> tuple[Finding, ...]:
    """The findings whose bucket is shown."""
    return tuple(f for f in findings if withheld(health, f.bucket) is None)
