"""The log of a run as curves over samples seen: pure data. Long logs are put together, with the least and the largest kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headway.report import format as fmt
from headway.report.colour import LINES
from headway.report.format import DASH

MAX_POINTS: Final = 300
LARGEST: Final = 1e100  # that an axis is drawn to; fp32 ends at 3.4e38
LOG_RATIO: Final = 30  # from this ratio of largest to least on, a curve is drawn on a logarithmic axis

Format = Callable[[float | None], str]
FORMATS: Final[Mapping[str, Format]] = {
    "number": fmt.number,
    "samples/s": lambda v: fmt.integer(v) if v is not None and v >= 100 else fmt.number(v),
    "share": fmt.percent,
    "bytes": fmt.size,
}
TICKS: Final[Mapping[str, Format]] = {  # on an axis the title says the unit
    "number": fmt.tick,
    "samples/s": fmt.tick,
    "share": lambda v: DASH if v is None else f"{100 * v:.4g} %",
    "bytes": fmt.size,
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line: the mean of each group of log periods with its least and largest; None where no value is finite."""

    name: str
    colour: str
    mean: tuple[float | None, ...]
    least: tuple[float | None, ...]
    largest: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Lines over samples in one frame."""

    key: str
    title: str
    unit: str  # a key of FORMATS
    samples: tuple[int, ...]  # of the last log period of each group
    lines: tuple[Line, ...]
    last: float | None  # of the first line, not averaged
    logarithmic: bool
    bad: tuple[int, ...]  # samples of the log periods that hold a value that is not finite
    note: str


_NOT_CURVES: Final = frozenset(
    ("kind", "time_ns", "step", "samples", "loss_by_t", "flops_s", "hfu")
)  # these have the shape of samples_s and mfu
MAX_EXTRA: Final = 12  # figures of the user's own objective
_SCALARS: Final = (  # key of a log event, title, unit
    ("loss", "Loss", "number"),
    ("samples_s", "Throughput, samples/s", "samples/s"),
    ("mfu", "MFU", "share"),
    ("grad_norm", "Gradient norm", "number"),
    ("lr", "Learning rate", "number"),
    ("memory_bytes", "Memory, peak", "bytes"),
)


def curves(logs: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Every curve that the log events hold values for; loss by timestep comes after the loss. Events without samples are left out."""
    events = sorted((e for e in logs if _finite(e.get("samples")) is not None), key=lambda e: e["samples"])
    known = {key for key, _, _ in _SCALARS} | _NOT_CURVES
    extra = sorted({k for e in events for k, v in e.items() if k not in known and isinstance(v, (int, float))})[:MAX_EXTRA]
    out = []
    for key, title, unit in (*_SCALARS, *((k, k, "number") for k in extra)):
        values = [e.get(key) for e in events]
        if any(v is not None for v in values):
            out.append(_curve(key, title, unit, events, {title: values}))
        if key == "loss" and (parts := _by_timestep(events)):
            out.append(_curve("loss_by_t", "Loss by timestep t (0 data, 1 noise)", "number", events, parts))
    return out


def _by_timestep(events: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Bin of t -> its losses. `loss_by_t` is a list of equal bins of [0, 1], or a mapping that names its bins."""
    tables: list[Mapping[str, Any]] = []
    for e in events:
        value = e.get("loss_by_t")
        if isinstance(value, Sequence) and not isinstance(value, str):
            n = len(value)
            value = {f"{i / n:.3g} to {(i + 1) / n:.3g}": v for i, v in enumerate(value)}
        tables.append(value if isinstance(value, Mapping) else {})
    names = dict.fromkeys(str(n) for t in tables for n in t)
    return {name: [t.get(name) for t in tables] for name in names}


def _curve(key: str, title: str, unit: str, events: Sequence[Mapping[str, Any]], lines: Mapping[str, Sequence[Any]]) -> Curve:
    per_point = -(-len(events) // MAX_POINTS)
    spans = [range(i, min(i + per_point, len(events))) for i in range(0, len(events), per_point)]
    drawn = tuple(_line(name, LINES[i % len(LINES)], values, spans) for i, (name, values) in enumerate(lines.items()))
    known = [v for line in drawn for v in (*line.least, *line.largest) if v is not None]
    first = next(iter(lines.values()))
    bad = [int(e["samples"]) for i, e in enumerate(events) if any(_is_bad(values[i]) for values in lines.values())]
    notes = [f"a point is the mean of {per_point} log periods, the band their range"] * (per_point > 1)
    notes += [f"not finite in {len(bad)} log period{'s' * (len(bad) != 1)} (dashed)"] * bool(bad)
    logarithmic = bool(known) and min(known) > 0 and max(known) / min(known) > LOG_RATIO and key != "lr"
    notes += ["logarithmic axis"] * logarithmic
    return Curve(
        key=key,
        title=title,
        unit=unit,
        samples=tuple(int(events[s[-1]]["samples"]) for s in spans),
        lines=drawn,
        last=next((x for v in reversed(first) if (x := _finite(v)) is not None), None),
        logarithmic=logarithmic,
        bad=tuple(bad[:MAX_POINTS]),
        note="; ".join(notes),
    )


def _line(name: str, colour: str, values: Sequence[Any], spans: Sequence[range]) -> Line:
    groups = [[x for i in span if (x := _finite(values[i])) is not None] for span in spans]
    return Line(
        name=name,
        colour=colour,
        mean=tuple(math.fsum(g) / len(g) if g else None for g in groups),
        least=tuple(min(g) if g else None for g in groups),
        largest=tuple(max(g) if g else None for g in groups),
    )


def _finite(value: Any) -> float | None:
    """A value that can be drawn: beyond LARGEST it is as good as infinite, and as near to zero as that it is zero."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or _is_bad(value):
        return None
    return float(value) if abs(value) > 1 / LARGEST else 0.0


def _is_bad(value: Any) -> bool:
    return isinstance(value, (int, float)) and not abs(value) <= LARGEST  # nan compares false
