"""Many steps of many devices, binned into what one page can hold. Integers stay integers: a bin keeps sums, so nothing is lost.

A page of 10,000 steps and one of 20 carry the same amount of data. Where steps are put together a bin keeps the sum of each name, the
number of steps and the slowest step; where there are too many devices the slowest and the fastest are shown, and all in the heat map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headway.report.colour import RAMP, colours
from headway.report.rows import HEADS, Kind, fold, labelled, totals
from headway.spec.breakdown import Breakdown, StepBreakdown, group
from headway.spec.health import withheld

NOT_SHOWN: Final = "(not shown)"
MAX_BINS: Final = 240  # bars of a chart
MAX_VIEWS: Final = 16  # devices with a chart of their own
MAX_NAMES: Final[Mapping[Kind, int]] = {"buckets": 48, "phases": 24, "modules": 24}
MAX_CELLS: Final = 120_000  # numbers of one partition
MAX_HEAT_ROWS: Final = 128
MAX_HEAT_CELLS: Final = 16_000


def series(breakdown: Breakdown, kind: Kind) -> dict[str, Any] | None:
    """One partition for the stacked chart, or None if no step carries it.

    {"names", "colours", "bins": [[first step, last step]], "views": [{"label", "count", "wall", "max", "cells"}], "note"}: for each bin
    `count` steps of `wall` ns in all, the longest `max` ns; `cells[name][bin]` ns in all. The sum over names is `wall`, exactly.
    """
    devices = [(label, steps) for label, r in labelled(breakdown) if (steps := [s for s in r.steps if getattr(s, kind)])]
    if not devices:
        return None
    names = fold(totals(breakdown, kind), MAX_NAMES[kind])
    names = _veiled(names, breakdown) if kind == "buckets" else names
    means = [sum(s.wall_ns for s in steps) / len(steps) for _, steps in devices]
    chosen = [devices[i] for i in extremes(means, MAX_VIEWS)]
    num_views = len(chosen) + (len(devices) > 1)
    numbers = sorted({s.step for _, steps in devices for s in steps})
    per_bin = max(1, -(-len(numbers) // max(12, min(MAX_BINS, MAX_CELLS // (num_views * len(names))))))
    place, bins = _binned(numbers, per_bin)
    everyone = [("all ranks", [s for _, steps in devices for s in steps])] if len(devices) > 1 else []
    return {
        "names": [name or "(no module)" for name in names],
        "colours": colours(kind, list(names)),
        "bins": bins,
        "views": [_view(label, steps, kind, names, place, len(bins)) for label, steps in everyone + chosen],
        "note": _note(len(numbers), per_bin, len(devices), len(chosen)),
    }


def _veiled(names: Mapping[str, list[str]], breakdown: Breakdown) -> dict[str, list[str]]:
    """`names` with those that a doubt forbids to show as one, so that a bar still is the step."""
    shown = {n: members for n, members in names.items() if withheld(breakdown.health, n) is None}
    rest = [m for n, members in names.items() if n not in shown for m in members]
    return shown | ({NOT_SHOWN: rest} if rest else {})


def extremes(means: Sequence[float], limit: int) -> list[int]:
    """Places, in order, of at most `limit` devices by their mean step: three quarters of them the slowest, the rest the fastest."""
    if len(means) <= limit:
        return list(range(len(means)))
    ordered = sorted(range(len(means)), key=lambda i: -means[i])
    num_slow = limit * 3 // 4
    return sorted(ordered[:num_slow] + ordered[num_slow - limit :])


def heat(breakdown: Breakdown) -> dict[str, Any] | None:
    """Devices x steps for the heat map, or None for fewer than two steps in all: {"rows", "bins", "metrics": {name: [[ns]]}, "note"}.

    A cell is the longest of the steps (and devices) that fall into it, so a single slow one stays visible; None where there is none.
    """
    devices = [(label, list(r.steps)) for label, r in labelled(breakdown) if r.steps]
    numbers = sorted({s.step for _, steps in devices for s in steps})
    if len(numbers) * len(devices) < 2:
        return None
    per_row = -(-len(devices) // MAX_HEAT_ROWS)
    num_rows = -(-len(devices) // per_row)
    per_bin = -(-len(numbers) // min(MAX_BINS, max(1, MAX_HEAT_CELLS // num_rows)))
    place, bins = _binned(numbers, per_bin)
    metrics: dict[str, list[list[int | None]]] = {}
    for i, (_, steps) in enumerate(devices):
        for s in steps:
            for name, ns in (("step time", s.wall_ns), *group(s.buckets).items()):
                grid = metrics.setdefault(name, [[None] * len(bins) for _ in range(num_rows)])
                old = grid[i // per_row][place[s.step]]
                grid[i // per_row][place[s.step]] = ns if old is None else max(old, ns)
    labels = [_span(devices[i][0], devices[min(i + per_row, len(devices)) - 1][0]) for i in range(0, len(devices), per_row)]
    shown = ("step time", *(h for h in HEADS if withheld(breakdown.health, h) is None))
    parts = [f"{per_bin} steps"] * (per_bin > 1) + [f"{per_row} ranks"] * (per_row > 1)
    return {
        "rows": labels,
        "bins": bins,
        "metrics": {name: metrics[name] for name in shown if name in metrics},
        "ramp": list(RAMP),
        "note": f"A cell is the longest of {' x '.join(parts)}." if parts else "A cell is one step of one rank.",
    }


def _binned(numbers: Sequence[int], per_bin: int) -> tuple[dict[int, int], list[list[int]]]:
    """(the bin of each step number, the [first, last] number of each bin)."""
    place = {number: i // per_bin for i, number in enumerate(numbers)}
    return place, [[numbers[i], numbers[min(i + per_bin, len(numbers)) - 1]] for i in range(0, len(numbers), per_bin)]


def _view(
    label: str, steps: Sequence[StepBreakdown], kind: Kind, names: Mapping[str, list[str]], place: Mapping[int, int], num_bins: int
) -> dict[str, Any]:
    row_of = {member: i for i, members in enumerate(names.values()) for member in members}
    count, wall, longest = [0] * num_bins, [0] * num_bins, [0] * num_bins
    cells = [[0] * num_bins for _ in names]
    for s in steps:
        at = place[s.step]
        count[at] += 1
        wall[at] += s.wall_ns
        longest[at] = max(longest[at], s.wall_ns)
        for name, ns in getattr(s, kind).items():
            cells[row_of[name]][at] += ns
    return {"label": label, "count": count, "wall": wall, "max": longest, "cells": cells}


def _note(num_steps: int, per_bin: int, num_devices: int, num_chosen: int) -> str:
    notes = [f"{num_steps:,} step{'s' * (num_steps != 1)}"]
    if per_bin > 1:
        notes.append(f"a bar is the mean of {per_bin} steps that follow each other, the tick above it the slowest of them")
    if num_chosen < num_devices:
        slow = num_chosen * 3 // 4
        notes.append(f"of {num_devices} ranks the {slow} slowest and the {num_chosen - slow} fastest have a chart; the heat map has all")
    return "; ".join(notes) + "."


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first}-{last}"
