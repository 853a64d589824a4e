"""A difference of two runs as text of a terminal: verdict, buckets, phases, kernels, memory, settings; 80 columns, correct from 60."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rich.console import Console

from headway.report import format as fmt
from headway.report.sheet import Sheet, sheet_of
from headway.spec.diff import Change, Diff, KernelChange, Side

ROWS: Final = 12  # of a table; the page and --json hold all
KERNELS: Final = 10
_NUMBER: Final = 10
_PLACE: Final = 30
_SMALL: Final = 0.0005  # of a step: rows that change less are put together
VERDICTS: Final = {"noise": "noise", "unknown": "", "real": "real", "same": "", "withheld": ""}


def print_diff(d: Diff, console: Console) -> None:
    """The whole answer, in the order in which one needs it."""
    sheet = sheet_of(console)
    for name, side in (("A", d.a), ("B", d.b)):
        sheet.paragraph(side_text(side), first=f"{name}  ")
    for text in d.warnings:
        sheet.paragraph(text, first="!  ", style="yellow")
    sheet.line()
    sheet.paragraph(headline(d), style="bold")
    sheet.paragraph(d.text, style="bold")
    _table(sheet, "By bucket", d.buckets, d.step)
    _table(sheet, "By phase", d.phases, d.step)
    _kernels(sheet, d)
    if d.memory_total:
        title = f"Memory at the peak ({d.memory_of[0]}, {d.memory_of[1]})"
        _table(sheet, title, d.memory, d.memory_total, unit="MiB", show=lambda n, _: f"{n / (1 << 20):,.1f}")
    _said(sheet, d)


def side_text(side: Side) -> str:
    """What one side is."""
    steps = f"{side.num_steps} step{'s' * (side.num_steps != 1)}"
    ranks = f"{len(side.ranks)} rank{'s' * (len(side.ranks) != 1)}"
    facts = [", ".join(side.paths), f"{ranks} x {steps}", ", ".join(side.devices)]
    facts += [f"batch {side.batch:,}, {fmt.duration(side.sample_ns)} a sample"] if side.batch is not None else []
    return "; ".join(f for f in facts if f)


def headline(d: Diff) -> str:
    """Step times of both with their difference."""
    texts = [f"{fmt.duration(d.step.a)} {_half(d.a)}-> {fmt.duration(d.step.b)} {_half(d.b)}".strip()]
    share = f" ({100 * d.step.delta / d.step.a:+.2f} %)" if d.step.a else ""
    texts.append(f"{signed(d.step.delta)}{share}{interval_text(d.step, d.confidence)}")
    if d.a.sample_ns and d.b.sample_ns and d.a.batch != d.b.batch:
        share = f"{100 * (d.b.sample_ns / d.a.sample_ns - 1):+.2f} %"
        texts.append(f"a sample: {fmt.duration(d.a.sample_ns)} -> {fmt.duration(d.b.sample_ns)} ({share})")
    if d.run:
        run = f"{fmt.duration(d.run.a)} -> {fmt.duration(d.run.b)}, {signed(d.run.delta)}{interval_text(d.run, d.confidence)}"
        texts.append(f"steps that were not traced: {run}")
    return "Step: " + "; ".join(texts)


def signed(ns: float) -> str:
    """A difference in its own unit."""
    return ("+" if ns > 0 else "-" if ns < 0 else "") + fmt.duration(abs(ns))


def interval_text(c: Change, confidence: float) -> str:
    """The interval of a difference, or nothing."""
    if c.low is None or c.high is None or c.low == c.high:
        return ""
    return f", {confidence:.0%} interval {signed(c.low)} to {signed(c.high)}"


def _half(side: Side) -> str:
    return f"+- {fmt.duration(side.high_ns - side.step_ns)} " if side.high_ns is not None and side.high_ns > side.step_ns else ""


def folded(rows: Sequence[Change], total: Change, most: int) -> tuple[list[Change], Change | None]:
    """Rows worth a line, and the others as one, so that the column still adds up."""
    small = _SMALL * max(total.a, total.b, 1)
    kept = [c for i, c in enumerate(rows) if i < most and (abs(c.delta) >= small or (i < 4 and c.delta))] or list(rows[:1])
    rest = rows[len(kept) :]
    if not rest:
        return kept, None
    a, b, delta = (sum(getattr(c, k) for c in rest) for k in ("a", "b", "delta"))
    return kept, Change(name=f"({len(rest)} smaller)", a=a, b=b, delta=delta)


def _table(
    sheet: Sheet,
    title: str,
    rows: Sequence[Change],
    total: Change,
    *,
    unit: str = "ms",
    show: Callable[[float, int], str] = fmt.milliseconds,
) -> None:
    """Name, A, B, difference, share of A's total, verdict."""
    if not rows:
        return
    kept, rest = folded(rows, total, ROWS)
    lines = [*kept, *([rest] if rest else [])]
    width = min(max(24, *(len(c.name) for c in lines)), sheet.width - 3 * _NUMBER - 17)
    decimals = fmt.places(max(total.a, total.b))
    sheet.line()
    sheet.line(title, "bold")
    sheet.line(f"{unit:<{width}}{'A':>{_NUMBER}}{'B':>{_NUMBER}}{'B - A':>{_NUMBER}}{'of A':>9}", "dim")
    for c in [*lines, total]:
        name = "total" if c is total else c.name
        name = name if len(name) <= width else name[: width - 2] + ".."
        if c.verdict == "withheld":
            sheet.line(f"{name:<{width}}{'-':>{_NUMBER}}{'-':>{_NUMBER}}{'-':>{_NUMBER}}{'':>9}  not shown")
            continue
        cells = [show(c.a, decimals), show(c.b, decimals), ("+" if c.delta > 0 else "") + show(c.delta, decimals)]
        share = f"{100 * c.delta / total.a:+.1f} %" if total.a else ""
        mark = "" if c is rest else VERDICTS[c.verdict]
        style = "bold" if c is total else "dim" if c.verdict == "noise" else ""
        sheet.line(f"{name:<{width}}{''.join(f'{x:>{_NUMBER}}' for x in cells)}{share:>9}  {mark}".rstrip(), style)


def _kernels(sheet: Sheet, d: Diff) -> None:
    rows = [k for k in d.kernels if k.delta_ns]
    if not rows or not d.kernel_time or not d.overlap or not d.busy:
        return
    sheet.line()
    sheet.line("Kernels: what their launches cost a step, of all traced steps", "bold")
    sheet.line(f"{'B - A':>{_NUMBER}}{'by count':>{_NUMBER}}{'by length':>{_NUMBER}}  ms", "dim")
    for k in rows[:KERNELS]:
        cells = (k.delta_ns, k.count_ns, k.duration_ns)
        numbers = "".join(f"{x / 1e6:>+{_NUMBER}.3f}" for x in cells)
        sheet.line(f"{numbers}  {kernel_word(k)}: {kernel_name(k)}", "dim" if k.verdict == "noise" else "")
        if place := kernel_place(k):
            sheet.line(f"      {place}", "dim")
    rest = rows[KERNELS:]
    if rest:
        numbers = "".join(f"{sum(getattr(k, n) for k in rest) / 1e6:>+{_NUMBER}.3f}" for n in ("delta_ns", "count_ns", "duration_ns"))
        sheet.line(f"{numbers}  {len(rest)} smaller; --html and --json show all")
    sheet.line(f"{d.kernel_time.delta / 1e6:>+{_NUMBER}.3f}  {'':{2 * _NUMBER}}all kernels", "bold")
    if d.overlap.delta:
        sheet.line(f"{-d.overlap.delta / 1e6:>+{_NUMBER}.3f}  {'':{2 * _NUMBER}}ran beside others")
        sheet.line(f"{d.busy.delta / 1e6:>+{_NUMBER}.3f}  {'':{2 * _NUMBER}}device busy", "bold")


def kernel_word(k: KernelChange) -> str:
    """What happened to a kernel, and whether it may be noise."""
    word = {"appeared": "only in B", "vanished": "only in A"}.get(k.what, k.what)
    counts = f" ({k.count_a:,.3g} -> {k.count_b:,.3g})" if k.what in ("more calls", "fewer calls") else ""
    return word + counts + (", noise" if k.verdict == "noise" else "")


def kernel_name(k: KernelChange) -> str:
    """Its name; both where they differ."""
    if k.name_a and k.name_b and k.name_a != k.name_b:
        return f"{k.name_a[:28]} => {k.name_b[:28]}"
    return k.name_a or k.name_b


def kernel_place(k: KernelChange) -> str:
    """Where it was launched, for kernels put together by that."""
    if k.matched in ("", "name"):
        return ""
    module = k.module if len(k.module) <= _PLACE else ".." + k.module[2 - _PLACE :]  # its end tells more
    return f"same {k.matched}: {' '.join(x for x in (module, k.operator) if x)}"


def _said(sheet: Sheet, d: Diff) -> None:
    if d.settings:
        sheet.line()
        sheet.line("Settings that differ", "bold")
        for s in d.settings:
            sheet.paragraph(f"{plain(s.a)} -> {plain(s.b)}{f'  ({s.kind})' if s.kind else ''}", first=f"  {s.name}: ", rest="    ")
    if d.loss:
        sheet.line()
        sheet.line(f"Loss at {d.loss['samples']:,.0f} samples: {fmt.number(d.loss['a'])} -> {fmt.number(d.loss['b'])}")
    if d.quality:
        sheet.line()
        sheet.line("Samples as judged", "bold")
        for q in d.quality:
            sheet.line(f"  {q.name.replace('_', ' ')}: {fmt.number(q.a)} -> {fmt.number(q.b)}  {VERDICTS[q.verdict]}".rstrip())
    if d.events:
        sheet.line()
        sheet.line("Events", "bold")
        for c in d.events:
            sheet.line(f"  {c.name}: {c.a:,} -> {c.b:,}")


def plain(value: Any) -> str:
    """A setting as one writes it; a dash where there is none."""
    return fmt.DASH if value is None else ", ".join(map(plain, value)) if isinstance(value, (list, tuple)) else str(value)
