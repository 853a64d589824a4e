"""How good two runs are: what `headway evaluate` wrote into each, compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headway.spec import record
from headway.spec.diff import Quality, Verdict

_HOW: Final = ("num", "seed", "steps", "guidance")  # samples were drawn and judged; they differ: not the same judgement
_NOT_QUALITY: Final = frozenset((*_HOW, "samples"))


def quality(a: Path, b: Path) -> tuple[tuple[Quality, ...], list[str]]:
    """(figures that both runs have, warnings)."""
    one, other = _judged(a), _judged(b)
    if not one or not other:
        return (), []
    differs = [f"{k} {one.get(k)} and {other.get(k)}" for k in _HOW if one.get(k) != other.get(k)]
    left, right = _figures(one), _figures(other)
    rows = tuple(_row(name, left[name], right[name]) for name in left if name in right)
    return rows, [f"samples were judged in different ways: {', '.join(differs)}"] if differs and rows else []


def _judged(path: Path) -> dict[str, Any]:
    """The judgement of a run folder; nothing if it was not judged, or not to the end."""
    try:
        data = record.load((path / "evaluate.json").read_bytes()) if path.is_dir() else {}
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _figures(data: Mapping[str, Any]) -> dict[str, tuple[float, float | None, float | None]]:
    """Name -> (value, ends of its interval)."""
    out: dict[str, tuple[float, float | None, float | None]] = {}
    for name, value in data.items():
        inner = value.get("interval", value) if isinstance(value, Mapping) else {"estimate": value}
        found = _number(inner.get("estimate")) if isinstance(inner, Mapping) else None
        if found is not None and name not in _NOT_QUALITY:
            out[name] = (found, _number(inner.get("low")), _number(inner.get("high")))
    return out


def _row(name: str, a: tuple[float, float | None, float | None], b: tuple[float, float | None, float | None]) -> Quality:
    (one, low_a, high_a), (other, low_b, high_b) = a, b
    verdict: Verdict = "same" if one == other else "unknown"
    if one != other and low_a is not None and high_a is not None and low_b is not None and high_b is not None:
        verdict = "real" if high_a < low_b or high_b < low_a else "noise"
    return Quality(name=name, a=one, b=other, verdict=verdict)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None
