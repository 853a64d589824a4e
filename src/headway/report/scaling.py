"""How a training scales, as text of a terminal: a table a ladder, what is lost where, the fit, the next sizes and what they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Console

from headway.report import format as fmt
from headway.report.sheet import Sheet, sheet_of
from headway.spec.scaling import TERMS, Ladder, Point, Prediction, Scaling

MODES: Final[Mapping[str, str]] = {
    "weak": "weak: each device has as many samples at every size",
    "strong": "strong: the same batch at every size",
    "mixed": "sizes with several batches",
}
SHOWN: Final = 3  # buckets in which most is lost


def print_scaling(scaling: Scaling, console: Console) -> None:
    """Every ladder; several are compared by one line each at the end."""
    sheet = sheet_of(console)
    for i, ladder in enumerate(scaling.ladders):
        if i:
            sheet.line()
        _ladder(sheet, ladder)
    if len(scaling.ladders) > 1:
        _side_by_side(sheet, scaling)


def _ladder(sheet: Sheet, ladder: Ladder) -> None:
    sheet.paragraph(f"{ladder.name} ({MODES[ladder.mode]})", style="bold")
    for note in ladder.notes:
        sheet.paragraph(note, first="  ! ", style="yellow")
    heads = f"{'devices':>9}{'batch':>9}{'step':>13}{'+-':>9}{'samples/s':>13}{'efficiency':>12}{'MFU':>9}"
    sheet.line(heads.rstrip(), "dim")
    for point, efficiency in zip(ladder.points, ladder.efficiency, strict=True):
        sheet.line(_row(ladder, point, efficiency))
    for loss in ladder.losses:
        most = ", ".join(f"{fmt.duration(ns)} {name}" for name, ns in list(loss.buckets.items())[:SHOWN] if ns > 0)
        lost = fmt.duration(sum(loss.buckets.values()))
        sheet.paragraph(f"{lost} of a profiled step lost: {most or 'nothing'}", first=f"  {loss.devices} devices: ")
    if ladder.terms:
        sheet.paragraph(terms_text(ladder), first="  ")
    for p in ladder.predictions:
        sheet.paragraph(prediction_text(ladder, p), first="  next: ")
    for text in trust(ladder):
        sheet.paragraph(text, first="  trust: ")


def _row(ladder: Ladder, p: Point, efficiency: float) -> str:
    half = fmt.percent((p.interval[1] - p.interval[0]) / 2 / p.step) if p.interval else ""
    rate = fmt.DASH if ladder.relative else fmt.number(p.rate * 1e9)
    mfu = fmt.percent(p.mfu) if p.mfu is not None else ""
    cells = (f"{p.devices:>9,}", f"{p.global_batch:>9,.0f}", f"{step(ladder, p.step):>13}", f"{half:>9}", f"{rate:>13}")
    return "".join((*cells, f"{fmt.percent(efficiency):>12}", f"{mfu:>9}")).rstrip()


def step(ladder: Ladder, value: float) -> str:
    """A step time; a bare number where only its proportions are known."""
    return fmt.number(value) if ladder.relative else fmt.duration(value)


def terms_text(ladder: Ladder) -> str:
    """What the step at the largest size is made of, by the fit."""
    total = sum(ladder.terms.values())
    parts = [f"{fmt.share(v, total)} {TERMS[name]}" for name, v in sorted(ladder.terms.items(), key=lambda kv: -kv[1]) if v > 0.001 * total]
    alone = "; work and fixed time are not told apart in weak scaling" if ladder.mode == "weak" else ""
    return f"a step of {ladder.points[-1].devices:,} devices, by the fit (scatter {fmt.percent(ladder.noise)}): {', '.join(parts)}{alone}"


def prediction_text(ladder: Ladder, p: Prediction) -> str:
    """A size that was not measured."""
    low, high = (step(ladder, v) for v in p.interval)
    size = f"{p.devices:,} devices, batch {p.global_batch:,.0f}"
    return f"{size}: {step(ladder, p.step)} [{low}, {high}], efficiency {fmt.percent(p.efficiency)}"


def trust(ladder: Ladder) -> list[str]:
    """The largest size predicted from the others."""
    return [
        f"{h.devices:,} devices from the smaller sizes alone: {step(ladder, h.predicted)}, measured {step(ladder, h.step)} "
        f"({100 * h.error:+.1f} %)"
        for h in ladder.held_out
    ]


def _side_by_side(sheet: Sheet, scaling: Scaling) -> None:
    sheet.line()
    sheet.line("Side by side, at the largest size of each", "bold")
    for ladder in scaling.ladders:
        last = ladder.points[-1]
        rate = "" if ladder.relative else f", {fmt.rate(last.rate * 1e9, 'samples')}"
        ahead = f", {fmt.percent(ladder.predictions[0].efficiency)} predicted at twice that" if ladder.predictions else ""
        text = f"{last.devices:,} devices: efficiency {fmt.percent(ladder.efficiency[-1])}{rate}{ahead}"
        sheet.paragraph(f"{ladder.name}: {text}", first="  ", rest="    ")
