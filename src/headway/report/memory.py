"""Memory of devices at their peak: lines of a terminal, and a section of the page, from the same `MemoryBreakdown`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headway.report import format as fmt
from headway.report.colour import OTHER
from headway.report.document import scrolled, section, table_of
from headway.report.markup import Html, breakable, join, tag
from headway.report.sheet import Sheet
from headway.report.svg import HEIGHT, WIDTH, ticks
from headway.spec.breakdown import Breakdown
from headway.spec.memory import Growth, MemoryBreakdown, Pin, Saving

COLOURS: Final = {
    "parameters": "#2a5fad", "gradients": "#e0861a", "optimizer": "#1f8f86", "activations": "#4a90d9", "collectives": "#f0a548",
    "encoders": "#8257b8", "workspace": "#a3d5cf", "fragmentation": "#b0444f", "unknown": "#8d949e",
}  # fmt: skip
MEASURED: Final = {
    "snapshot": "a memory snapshot, by block",
    "profiler": "a profiler's memory events, by block, without segments",
    "counters": "the log lines of the run, totals only",
}
NUM_PARTS: Final = 16  # rows of a table; what is smaller is put together by its first word
_SHOWN: Final = 5  # pins, leaks, savings of a terminal
_WAYS: Final = 12  # of the page
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))  # of the curve's axis
_DEVICES: Final = 4  # with a section of their own; the fullest


def fullest(b: Breakdown) -> list[MemoryBreakdown]:
    """All devices, the fullest first."""
    return sorted(b.memory, key=lambda m: (-m.reserved_bytes, m.rank, m.device))


def rows(m: MemoryBreakdown, limit: int = NUM_PARTS) -> list[tuple[str, int]]:
    """(part, bytes), the largest first; the smallest are put together as "<first word> (others)". They sum to reserved_bytes."""
    parts = sorted(m.parts.items(), key=lambda kv: (-kv[1], kv[0]))
    kept, rest = parts[:limit], parts[limit:]
    folded: dict[str, int] = {}
    for name, num in rest:
        folded[name.partition(".")[0]] = folded.get(name.partition(".")[0], 0) + num
    return sorted([*kept, *((f"{head} (others)", num) for head, num in folded.items())], key=lambda kv: (-kv[1], kv[0]))


def headline(m: MemoryBreakdown) -> str:
    """What the peak is and how it is known, in one sentence."""
    free = f", {fmt.size(m.allocated_bytes)} of it allocated" if m.allocated_bytes is not None else ""
    at = f" in step {m.step}" if m.step is not None else ""
    return f"rank {m.rank} {m.device}: {fmt.size(m.reserved_bytes)} reserved at the peak{free}{at}; from {MEASURED[m.measured]}"


def pin_text(p: Pin) -> str:
    """One segment and what holds it."""
    held = ", ".join(f"{b.num_blocks} x {b.where} ({fmt.size(b.num_bytes)}, {b.part})" for b in p.blocks)
    return (
        f"{fmt.size(p.free_bytes)} free of {fmt.size(p.segment_bytes)}, pieces of {fmt.size(p.largest_free_bytes)} at most, held by {held}"
    )


def growth_text(g: Growth) -> str:
    """One leak with its interval."""
    low, high = fmt.size(g.low), fmt.size(g.high)
    return f"{g.where} ({g.part}) grows by {fmt.size(g.slope)} a step [{low}, {high}], {fmt.size(g.num_bytes)} in {g.num_steps} steps"


def no_growth(m: MemoryBreakdown) -> str:
    """What can be said without a leak."""
    if m.num_steps < 7:
        return "Leaks: too few step ends to look for any"
    return f"Leaks: none at {m.num_steps} step ends ({m.steps_from})"


def oom_text(m: MemoryBreakdown) -> str:
    """The last request that failed, and why it did; "" if none did."""
    if not m.failures:
        return ""
    f = m.failures[-1]
    free = f"{fmt.size(f.reserved_bytes - f.allocated_bytes)} were reserved and free"
    piece = f", {fmt.size(f.largest_free_bytes)} at most in one piece" if f.largest_free_bytes is not None else ""
    left = f", {fmt.size(f.device_free_bytes)} left on the device" if f.device_free_bytes is not None else ""
    before = f" ({len(m.failures)} failed)" if len(m.failures) > 1 else ""
    return f"Out of memory: a request of {fmt.size(f.requested_bytes)} failed while {free}{piece}{left}{before}"


# ---- terminal ----


def print_memory(sheet: Sheet, b: Breakdown) -> None:
    """The fullest device in full, a line for the others; nothing if no memory was recorded."""
    if not b.memory:
        return
    first, *others = fullest(b)
    sheet.line()
    sheet.line("Memory", "bold")
    sheet.paragraph(headline(first), first="  ", rest="    ")
    for text in (f"{h.what} {h.count:,}: {h.text}" for h in first.health):
        sheet.paragraph(text, first="  ! ", style="yellow")
    if oom_text(first):
        sheet.paragraph(oom_text(first), first="  ! ", style="bold red")
    if first.measured != "counters":
        width = min(max(24, *(len(name) for name, _ in rows(first))), sheet.width - 22)
        for name, num in rows(first):
            sheet.line(f"  {name[:width]:<{width}}{fmt.size(num):>11}{fmt.share(num, first.reserved_bytes):>9}")
        sheet.line(f"  {'total':<{width}}{fmt.size(first.reserved_bytes):>11}{fmt.share(1, 1):>9}", "bold")
    _list(sheet, "Segments that something small holds", [pin_text(p) for p in first.pins if 2 * p.free_bytes > p.segment_bytes])
    _list(sheet, "Leaks", [growth_text(g) for g in first.growth])
    if not first.growth and first.measured != "counters":
        sheet.line(f"  {no_growth(first)}", "dim")
    if first.savings:
        sheet.line("  To make the peak smaller (each by itself, at most)")
        for s in first.savings[:_SHOWN]:
            sheet.paragraph(f"{s.what}: {fmt.size(s.saves_bytes)} ({fmt.share(s.saves_bytes, first.reserved_bytes)})", first="    - ")
            sheet.paragraph(" ".join((s.action, *fmt.flags(s.patch))), first="      do: ")
    for m in others[: _SHOWN - 1]:
        sheet.paragraph(headline(m), first="  ", rest="    ")
    if len(others) >= _SHOWN:
        sheet.line(f"  and {len(others) - _SHOWN + 1} devices with less; --html and --json show all", "dim")


def _list(sheet: Sheet, title: str, texts: Sequence[str]) -> None:
    if texts:
        sheet.line(f"  {title}")
    for text in texts[:_SHOWN]:
        sheet.paragraph(text, first="    - ")


# ---- page ----


def memory_section(b: Breakdown) -> Html | None:
    """The fullest devices, each with its bar, table, curve, pins, leaks and savings; the others in a table. None without any memory."""
    if not b.memory:
        return None
    devices = fullest(b)
    shown, others = devices[:_DEVICES], devices[_DEVICES:]
    rest = [[m.device, str(m.rank), fmt.size(m.reserved_bytes), fmt.size(m.allocated_bytes)] for m in others]
    others_table = _plain_table(("Device", "rank", "reserved", "allocated"), rest, "Other devices") if rest else None
    return section("memory", "Memory", *map(_device, shown), others_table)


def _device(m: MemoryBreakdown) -> Html:
    notes = [f"{h.what} {h.count:,}: {h.text}" for h in m.health] + [t for t in (oom_text(m),) if t]
    loose = [pin_text(p) for p in m.pins]
    detailed = m.measured != "counters"
    held = [[h.where, h.part, f"{h.num_blocks:,}", fmt.size(h.num_bytes)] for h in m.held]
    return join(
        [
            tag("p", f"{headline(m)}."),
            tag("ul", *(tag("li", n) for n in notes), class_="soft") if notes else None,
            _bar(m) if detailed else None,
            _parts(m) if detailed else None,
            _curve(m) if len(m.curve) > 1 else None,
            tag("h3", "To make the peak smaller") if m.savings else None,
            tag("ol", *(_saving(s, m) for s in m.savings[:_WAYS]), class_="findings") if m.savings else None,
            tag("h3", "Leaks") if m.growth else None,
            tag("ul", *(tag("li", growth_text(g)) for g in m.growth)) if m.growth else None,
            tag("p", f"{no_growth(m)}.", class_="note") if detailed and not m.growth else None,
            _folded(f"Segments that something holds ({len(loose)})", tag("ul", *(tag("li", t) for t in loose))) if loose else None,
            _folded(
                f"What is alive at the peak ({len(held)} places)",
                _plain_table(("Place", "part", "blocks", "bytes"), held, "Alive at the peak"),
            )
            if held
            else None,
        ]
    )


def _bar(m: MemoryBreakdown) -> Html:
    """One bar of the peak, stacked by first word, in the order of `COLOURS`."""
    sums = heads(m)
    at, shapes = 0.0, []
    for head, num in sums.items():
        width = WIDTH * num / m.reserved_bytes if m.reserved_bytes else 0.0
        title = tag("title", f"{head}: {fmt.size(num)}, {fmt.share(num, m.reserved_bytes)}")
        shapes.append(
            tag("rect", title, x=f"{at:.2f}", y=0, width=f"{width:.2f}", height=40, fill=COLOURS.get(head, OTHER), class_="bar-gap")
        )
        at += width
    keys = [tag("span", tag("i", style=f"background:{COLOURS[h]}"), f"{h}: {fmt.share(n, m.reserved_bytes)}") for h, n in sums.items()]
    label = "; ".join(f"{h} {fmt.share(n, m.reserved_bytes)}" for h, n in sums.items())
    svg = tag("svg", *shapes, viewBox=f"0 0 {WIDTH} 40", preserveAspectRatio="none", role="img", aria_label=f"Memory at the peak: {label}",
              style="display:block;width:100%;height:34px")  # fmt: skip
    return join([svg, tag("div", *keys, class_="keys", style="margin-top:.5rem")])


def heads(m: MemoryBreakdown) -> dict[str, int]:
    """Parts summed by their first word, in the order of `COLOURS`."""
    sums = {head: sum(n for name, n in m.parts.items() if name.partition(".")[0] == head) for head in COLOURS}
    return {head: num for head, num in sums.items() if num}


def _parts(m: MemoryBreakdown) -> Html:
    body = []
    for name, num in rows(m):
        colour = COLOURS.get(name.partition(".")[0].partition(" ")[0], OTHER)
        share = 100 * num / m.reserved_bytes if m.reserved_bytes else 0.0
        swatch = tag("i", class_="swatch", style=f"background:{colour}")
        body.append(
            tag(
                "tr",
                tag("td", tag("div", swatch, tag("span", breakable(name), class_="name"), class_="label")),
                tag("td", fmt.size(num), class_="num", title=f"{num:,} bytes"),
                tag("td", fmt.share(num, m.reserved_bytes), class_="num"),
                tag("td", tag("i", style=f"width:{share:.2f}%;background:{colour}"), class_="bar"),
            )
        )
    total = tag("td", fmt.size(m.reserved_bytes), class_="num", title=f"{m.reserved_bytes:,} bytes")
    foot = tag("tr", tag("td", "total"), total, tag("td", fmt.share(1, 1), class_="num"), tag("td"), class_="total")
    return scrolled(table_of(("Part", "bytes", "share", ""), body, total=foot), "Memory by part")


def _curve(m: MemoryBreakdown) -> Html:
    """Reserved and allocated over the recording; the numbers of its ends beside it."""
    begin, end = m.curve[0][0], m.curve[-1][0]
    scale, unit = next(((s, u) for s, u in _UNITS if m.reserved_bytes >= 2 * s), _UNITS[-1])
    marks = ticks(0, max(m.reserved_bytes, 1) / scale, 4)
    top = marks[-1] * scale
    x = [WIDTH * (at - begin) / max(1, end - begin) for at, _, _ in m.curve]
    lines = []
    for place, colour in ((1, COLOURS["fragmentation"]), (2, COLOURS["activations"])):
        path = "M" + "L".join(f"{at:.1f} {HEIGHT * (1 - point[place] / top):.1f}" for at, point in zip(x, m.curve, strict=True))
        lines.append(tag("path", d=path, stroke=colour, class_="line"))
    grid = [tag("path", d=f"M0 {HEIGHT * (1 - v * scale / top):.1f}H{WIDTH}", class_="grid") for v in marks]
    labels = [tag("span", fmt.tick(v), class_="y", style=f"bottom:{100 * v * scale / top:.2f}%") for v in marks]
    svg = tag("svg", *grid, *lines, viewBox=f"0 0 {WIDTH} {HEIGHT}", preserveAspectRatio="none", aria_hidden="true")
    span = fmt.duration(end - begin) if m.time_ns is not None else f"{end - begin:,} events"
    key = [("reserved", COLOURS["fragmentation"])] + [("allocated", COLOURS["activations"])] * (m.measured != "counters")
    return tag(
        "figure",
        tag("figcaption", tag("b", f"Over the recording, {unit}"), tag("span", span, class_="last")),
        tag("div", *(tag("span", tag("i", style=f"background:{colour}"), name) for name, colour in key), class_="keys"),
        tag("div", svg, *labels, class_="plot", role="img", aria_label=f"Memory over {span}, at most {fmt.size(m.reserved_bytes)}"),
        class_="curve",
        style="margin-top:1.2rem",
    )


def _saving(s: Saving, m: MemoryBreakdown) -> Html:
    width = min(100.0, 100 * s.saves_bytes / m.reserved_bytes) if m.reserved_bytes else 0.0
    colour = COLOURS.get(s.part.partition(".")[0], OTHER)
    won = tag(
        "div",
        tag("b", fmt.size(s.saves_bytes), title=f"{s.saves_bytes:,} bytes"),
        tag("div", tag("i", style=f"width:{width:.1f}%;background:{colour}"), class_="meter"),
        tag("span", f"at most, {fmt.share(s.saves_bytes, m.reserved_bytes)} of the peak", class_="soft"),
        class_="won",
    )
    flags = " ".join(fmt.flags(s.patch))
    evidence = tag("ul", *(tag("li", e) for e in s.evidence)) if s.evidence else None
    return tag(
        "li",
        won,
        tag(
            "div",
            tag("b", s.what),
            tag("p", s.action, *((" ", tag("code", flags)) if flags else ())),
            tag("span", f"Assumes: {s.assumes}. Confidence {100 * s.confidence:.0f} %", class_="soft"),
            _folded(f"Evidence ({len(s.evidence)})", evidence) if evidence else None,
            class_="what",
        ),
    )


def _folded(title: str, *children: object) -> Html:
    return tag("details", tag("summary", title), *children)


def _plain_table(names: Sequence[str], lines: Sequence[Sequence[str]], label: str) -> Html:
    """Two columns of names, then numbers."""
    rows = [
        tag("tr", *(tag("td", breakable(c) if i < 2 else c, class_="num" if i > 1 else "name") for i, c in enumerate(line)))
        for line in lines
    ]
    return scrolled(table_of(names, rows, words=2), label)
