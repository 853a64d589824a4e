"""Scaling as text of a terminal: a table a ladder, what limits it, the next doublings; 80 columns, correct from 60."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from rich.console import Console

from headway.report import format as fmt
from headway.report.rows import head_of
from headway.report.sheet import Sheet, sheet_of
from headway.spec.scaling import Ladder, Prediction, Rung, Scaling

LADDERS: Final = 20  # the page and --json hold all
BUCKETS: Final = 6  # that grew most
SIZES: Final = 5  # columns of buckets: the smallest, the largest and some between
_NUMBER: Final = 10


def print_scaling(s: Scaling, console: Console) -> None:
    """Every ladder, the longest first."""
    sheet = sheet_of(console)
    for i, ladder in enumerate(s.ladders[:LADDERS]):
        if i:
            sheet.line()
        _ladder(sheet, ladder)
    if len(s.ladders) > LADDERS:
        sheet.line()
        sheet.line(f"and {len(s.ladders) - LADDERS} shorter ladders; --html and --json show all", "dim")
    if s.apart:
        sheet.line()
        sheet.line("On no ladder", "bold")
        for text in s.apart[:5]:
            sheet.paragraph(text, first="  - ")
        if len(s.apart) > 5:
            sheet.line(f"    and {len(s.apart) - 5} more; --json shows all", "dim")


def time_text(value: float, unit: str) -> str:
    """A step time: seconds in their own unit, or a multiple of the smallest size's."""
    return fmt.duration(value * 1e9) if unit == "s" else f"{value:.4g}"


def _ladder(sheet: Sheet, s: Ladder) -> None:
    sheet.paragraph(s.name, style="bold")
    sheet.paragraph(f"{s.kind} scaling: {s.why}")
    rated = any(r.throughput is not None for r in s.rungs)
    known = any(r.mfu is not None for r in s.rungs)
    heads = ["devices", "step", "+-", *["samples/s"] * rated, " efficiency", *["MFU"] * known, *["law"] * (s.law is not None)]
    sheet.line("".join(f"{h:>{_NUMBER}}" for h in heads), "dim")
    for r in s.rungs:
        half = time_text(r.high - r.time, s.unit) if r.high is not None and r.high > r.time else ""
        cells = [f"{r.size:,}", time_text(r.time, s.unit), half]
        cells += [rate_text(r.throughput)] * rated + [f"{r.efficiency:>11.1%}"] + [fmt.percent(r.mfu)] * known
        cells += [time_text(r.fitted, s.unit)] if r.fitted is not None else []
        sheet.line("".join(f"{c:>{_NUMBER}}" for c in cells))
    for p in s.predictions:
        cells = [f"{p.size:,}", time_text(p.time, s.unit), "", *[rate_text(p.throughput)] * rated, f"{p.efficiency:>11.1%}"]
        low, high = (f"{e:.0%}" for e in (p.efficiency_low, p.efficiency_high))
        sheet.line("".join(f"{c:>{_NUMBER}}" for c in cells) + f"  predicted, {low} to {high}", "dim")
    _buckets(sheet, s)
    sheet.paragraph(s.limits, style="bold")
    if s.law:
        sheet.paragraph(law_text(s))
    for note in s.notes:
        sheet.paragraph(note, first="! ", style="yellow")


def rate_text(value: float | None) -> str:
    """Samples a second."""
    return fmt.DASH if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def law_text(s: Ladder) -> str:
    """The law in shares of the step at the largest size, and how well it foretold that."""
    if s.law is None:
        return ""
    shares = ", ".join(f"{name} {share:.1%}" for name, share in sorted(s.law.parts.items(), key=lambda kv: -kv[1]) if share >= 0.0005)
    held = f"; the largest size, foretold from the others, is {s.law.held_out:+.1%} off" if s.law.held_out is not None else ""
    return f"Law at {s.rungs[-1].size:,}: {shares}; points lie {s.law.residual:.1%} off it{held}."


def grown(s: Ladder) -> list[str]:
    """Buckets by the time that the largest size loses to them, the most first."""
    return [name for name, ns in s.rungs[-1].lost.items() if ns > 0]


def shown_rungs(s: Ladder, most: int = SIZES) -> list[Rung]:
    """Rungs with buckets: all of a few, else the ends and some between."""
    rungs = [r for r in s.rungs if r.buckets]
    if len(rungs) <= most:
        return rungs
    return [rungs[round(i * (len(rungs) - 1) / (most - 1))] for i in range(most)]


def _buckets(sheet: Sheet, s: Ladder) -> None:
    rungs = shown_rungs(s, min(SIZES, (sheet.width - 24 - _NUMBER) // _NUMBER))
    names = grown(s)[:BUCKETS] or sorted(s.rungs[-1].buckets, key=lambda n: -s.rungs[-1].buckets[n])[:BUCKETS]
    if len(rungs) < 2:
        return
    heads = "".join(f"{r.size:>{_NUMBER},}" for r in rungs)
    sheet.line(f"{'ms a step, traced':<24}{heads}{'lost':>{_NUMBER}}", "dim")
    for name in names:
        cells = [fmt.milliseconds(r.buckets.get(name, 0), 2) for r in rungs] + [fmt.milliseconds(rungs[-1].lost.get(name, 0), 2)]
        label = name if len(name) <= 24 else name[:11] + ".." + name[-11:]
        sheet.line(f"{label:<24}" + "".join(f"{c:>{_NUMBER}}" for c in cells))
    others = [n for n in {n for r in rungs for n in r.buckets} if n not in names]
    if others:
        cells = [fmt.milliseconds(sum(r.buckets.get(n, 0) for n in others), 2) for r in rungs]
        cells.append(fmt.milliseconds(sum(rungs[-1].lost.get(n, 0) for n in others), 2))
        sheet.line(f"{f'({len(others)} more)':<24}" + "".join(f"{c:>{_NUMBER}}" for c in cells))


def heads_of(r: Rung) -> dict[str, int]:
    """Buckets of a rung by their first word."""
    out: dict[str, int] = {}
    for name, ns in r.buckets.items():
        out[head_of(name)] = out.get(head_of(name), 0) + ns
    return out


def extent(values: Sequence[float]) -> tuple[float, float]:
    """A range for a logarithmic axis with some air."""
    low, high = min(values), max(values)
    return low / 1.15, high * 1.15 if math.isfinite(high) else low * 10


def said(p: Prediction) -> str:
    """A prediction's efficiency with its interval."""
    return f"{p.efficiency:.1%} ({p.efficiency_low:.0%} to {p.efficiency_high:.0%})"
