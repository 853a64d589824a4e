"""The ceilings that floors are counted against: measured, else seen in the trace itself, else published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from headway.spec import record
from headway.spec.errors import TraceError
from headway.spec.hardware import CEILINGS_SCHEMA, Ceilings, published
from headway.trace.floor.cost import FORMATS, Costs
from headway.trace.sweep import Ints
from headway.trace.work import Work

LEAST_NS: Final = 100_000  # a rate over less time is no sustained one
LEAST_BYTES: Final = 64 << 20  # less may come from a cache
TRUSTED: Final = 0.5  # of what is published: a trace whose best is lower has not met its ceiling, and does not tell it


def ceilings_file(path: Path) -> Ceilings:
    """The ceilings in a JSON file: {"flops": {format: x}, "memory_bytes_s": y, "source": ...}. Raises TraceError."""
    fix = 'It holds {"schema": "headway.ceilings/1", "flops": {"bf16": 8e14}, "memory_bytes_s": 3e12, "source": "where from"}.'
    try:
        data = record.load(path.read_bytes())
    except (OSError, ValueError) as error:
        raise TraceError(f"cannot be read as ceilings ({error})", where=str(path), fix=fix) from None
    if not isinstance(data, dict) or data.get("schema", CEILINGS_SCHEMA) != CEILINGS_SCHEMA or (found := told(data)) is None:
        raise TraceError("holds no ceilings", where=str(path), fix=fix)
    return found


def told(data: Any) -> Ceilings | None:
    """Ceilings as a run writes them into its run.json, or as a file holds them; None if they are not."""
    if not isinstance(data, Mapping) or not isinstance(data.get("flops"), Mapping):
        return None
    rates = {str(k): v for k, x in data["flops"].items() if (v := _number(x)) is not None}
    memory, cache, size = (_number(data.get(k)) for k in ("memory_bytes_s", "cache_bytes_s", "cache_bytes"))
    if not rates and memory is None:
        return None
    source = str(data.get("source") or "a file")
    return Ceilings(flops=rates, memory_bytes_s=memory, cache_bytes_s=cache, cache_bytes=int(size or 0), source=source)


def ceilings(measured: Ceilings | None, device: str, seen: Sequence[tuple[Work, Costs]]) -> Ceilings | None:
    """What floors are counted against: `measured` where it says something, else the best that the trace shows, else the data sheet.

    The best of a trace is a lower bound of the ceiling, so the floor it gives is an upper bound: what can be won is at least what is said.
    It is not used where it is less than half of what is published, nor above it: faster algorithms and caches are no higher ceiling.
    """
    sheet = published(device)
    best, memory = _best(seen)
    sources: dict[str, None] = {}
    rates: dict[str, float] = {}
    for name in dict.fromkeys([*(measured.flops if measured else ()), *best, *(sheet.flops if sheet else ())]):
        rates[name], why = _choose(measured, measured.flops.get(name) if measured else None, best.get(name), sheet, _at(sheet, name))
        sources[why] = None
    moved: float | None = None
    options = (measured.memory_bytes_s if measured else None, memory, sheet.memory_bytes_s if sheet else None)
    if any(options):
        moved, why = _choose(measured, options[0], options[1], sheet, options[2])
        sources[why] = None
    if not rates and moved is None:
        return None
    cache, size = (measured.cache_bytes_s, measured.cache_bytes) if measured else (None, 0)
    return Ceilings(flops=rates, memory_bytes_s=moved, cache_bytes_s=cache, cache_bytes=size, source="; ".join(sources))


_SEEN: Final = "the best rate sustained in this trace (the ceiling is at least that)"


def _choose(
    measured: Ceilings | None, first: float | None, seen: float | None, sheet: Ceilings | None, last: float | None
) -> tuple[float, str]:
    if first and measured is not None:
        return first, measured.source
    if seen and (not last or TRUSTED * last <= seen <= last):
        return seen, _SEEN
    assert last and sheet is not None
    return last, sheet.source


def _at(sheet: Ceilings | None, name: str) -> float | None:
    return sheet.flops.get(name) if sheet else None


def _best(seen: Sequence[tuple[Work, Costs]]) -> tuple[dict[str, float], float | None]:
    """(best FLOP/s of each format, best bytes/s) that groups of kernels sustained over at least LEAST_NS."""
    rates: dict[str, float] = {}
    memory = 0.0
    for work, costs in seen:
        rows, time = groups(work, costs)
        long = time >= LEAST_NS
        rows, time = rows[long], time[long]
        for code in np.unique(costs.format[rows[costs.flops[rows] > 0]]).tolist():
            mine = (costs.format[rows] == code) & (costs.flops[rows] > 0)
            best = float((costs.flops[rows[mine]] / time[mine]).max()) * 1e9
            rates[FORMATS[code]] = max(rates.get(FORMATS[code], 0.0), best)
        large = costs.bytes[rows] >= LEAST_BYTES
        if large.any():
            memory = max(memory, float((costs.bytes[rows[large]] / time[large]).max()) * 1e9)
    return rates, memory or None


def groups(work: Work, costs: Costs) -> tuple[Ints, Ints]:
    """(first row of work of each group, summed duration of the group's rows in ns)."""
    known = np.flatnonzero(costs.known)
    ids, first, place = np.unique(costs.group[known], return_index=True, return_inverse=True)
    time = np.zeros(len(ids), np.int64)
    np.add.at(time, place.reshape(-1), (work.end - work.start)[known])
    return known[first], time


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf") else None
