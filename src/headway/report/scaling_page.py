"""Scaling as one HTML page: throughput and efficiency over devices with law and band, buckets a size, tables."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Final

from headway.report import format as fmt
from headway.report.colour import HEAD_COLOURS, LINES, OTHER
from headway.report.document import Section, document, facts_of, scrolled, section, table_of, write
from headway.report.markup import Html, tag
from headway.report.scaling import extent, heads_of, law_text, rate_text, said, shown_rungs, time_text
from headway.spec.scaling import Ladder, Scaling

WIDTH: Final = 1000
HEIGHT: Final = 400
_APART: Final = 130  # user units between two labels below a chart
Place = Callable[[float], float]


def write_scaling(path: str | os.PathLike[str], s: Scaling) -> None:
    """Write the page. Raises RunError if the file cannot be written."""
    write(path, scaling_page(s))


def scaling_page(s: Scaling) -> str:
    """The page as text."""
    sections: list[Section] = [("all", "All ladders", _overview(s))] if len(s.ladders) > 1 else []
    sections += [(f"ladder-{i}", ladder.name, _ladder(ladder, f"ladder-{i}", LINES[i % len(LINES)])) for i, ladder in enumerate(s.ladders)]
    if s.apart:
        listed = tag("details", tag("summary", f"{len(s.apart)} configurations"), tag("ul", *(tag("li", text) for text in s.apart)))
        sections.append(("apart", "On no ladder", section("apart", "On no ladder", listed)))
    sizes = sorted({r.size for ladder in s.ladders for r in ladder.rungs})
    facts = {"ladders": str(len(s.ladders)), "devices": f"{sizes[0]:,} to {sizes[-1]:,}"}
    footer = "Written by Headway. Efficiency: throughput of a device against that of the smallest size. Bands hold a measurement with 95 %."
    return document("How it scales", sections, facts=facts_of(facts), last=(tag("footer", tag("p", footer)),))


def _overview(s: Scaling) -> Html:
    """All ladders in one chart and one table."""
    lines = [(ladder, LINES[i % len(LINES)]) for i, ladder in enumerate(s.ladders[: len(LINES)])]
    keys = tag("div", *(tag("span", tag("i", style=f"background:{c}"), ladder.name) for ladder, c in lines), class_="keys")
    rows = [
        tag(
            "tr",
            tag("td", tag("a", ladder.name, href=f"#ladder-{i}")),
            tag("td", ladder.kind, class_="kind"),
            tag("td", f"{ladder.rungs[0].size:,} to {ladder.rungs[-1].size:,}", class_="num"),
            tag("td", f"{ladder.rungs[-1].efficiency:.1%}", class_="num"),
            tag("td", said(ladder.predictions[0]) if ladder.predictions else fmt.DASH, class_="num"),
        )
        for i, ladder in enumerate(s.ladders)
    ]
    heads = ("Ladder", "kind", "devices", "efficiency at the largest", "at twice as many, predicted")
    table = scrolled(table_of(heads, rows, words=2), "All ladders")
    return section("all", "All ladders", keys, _chart("efficiency", [*lines]), table)


def _ladder(s: Ladder, identity: str, colour: str) -> Html:
    figures = [_figure("Efficiency", "efficiency", s, colour)]
    if s.rungs[0].throughput is not None:
        figures.insert(0, _figure("Throughput, samples/s", "throughput", s, colour))
    heads = ["Devices", "step", "interval", "samples/s", "efficiency", "MFU", "law", "off the law"]
    rows = [
        tag(
            "tr",
            tag("td", f"{r.size:,}", title=", ".join(r.sources)),
            *(
                tag("td", text, class_="num")
                for text in (
                    time_text(r.time, s.unit),
                    f"{time_text(r.low, s.unit)} to {time_text(r.high, s.unit)}" if r.low is not None and r.high is not None else "",
                    rate_text(r.throughput),
                    f"{r.efficiency:.1%}",
                    fmt.percent(r.mfu),
                    time_text(r.fitted, s.unit) if r.fitted is not None else fmt.DASH,
                    f"{r.time / r.fitted - 1:+.1%}" if r.fitted else fmt.DASH,
                )
            ),
        )
        for r in s.rungs
    ]
    for p in s.predictions:
        interval = f"{time_text(p.low, s.unit)} to {time_text(p.high, s.unit)}"
        texts = (time_text(p.time, s.unit), interval, rate_text(p.throughput), said(p), "", "", "")
        rows.append(tag("tr", tag("td", f"{p.size:,}, predicted"), *(tag("td", text, class_="num soft") for text in texts)))
    unit = "" if s.unit == "s" else " Times are in units of the smallest size's step."
    return section(
        identity,
        s.name,
        tag("p", f"{s.kind} scaling: {s.why}.{unit}", class_="note"),
        tag("p", tag("b", s.limits)),
        tag("div", *figures, class_="curves"),
        _stack(s),
        scrolled(table_of(heads, rows), s.name),
        tag("p", law_text(s), class_="note") if s.law else None,
        *(tag("p", note, class_="note") for note in s.notes),
    )


def _figure(title: str, what: str, s: Ladder, colour: str) -> Html:
    return tag("figure", tag("figcaption", tag("b", title)), _chart(what, [(s, colour)]), class_="curve")


def _chart(what: str, lines: Sequence[tuple[Ladder, str]]) -> Html:
    """Points, law with band and the ideal over devices, both axes logarithmic."""
    sizes = [float(n) for s, _ in lines for n in (*(r.size for r in s.rungs), *(p.size for p in s.predictions))]
    values = [v for s, _ in lines for v in _values(s, what)]
    (x0, x1), (y0, y1) = extent(sizes), extent(values)

    def x(n: float) -> float:
        return WIDTH * math.log(n / x0) / math.log(x1 / x0)

    def y(v: float) -> float:
        return HEIGHT * (1 - math.log(v / y0) / math.log(y1 / y0))

    steps = _round_values(y0, y1)
    shapes = [tag("path", d=f"M0 {y(v):.1f}H{WIDTH}", class_="grid") for v in steps]
    for s, colour in lines:
        shapes += _shapes(s, what, colour, x, y)
    svg = tag("svg", *shapes, viewBox=f"0 0 {WIDTH} {HEIGHT}", preserveAspectRatio="none", aria_hidden="true")
    show = (lambda v: f"{100 * v:.4g} %") if what == "efficiency" else fmt.tick
    labels = [tag("span", show(v), class_="y", style=f"bottom:{100 - 100 * y(v) / HEIGHT:.2f}%") for v in steps]
    ticks: list[float] = []
    for n in sorted(set(sizes)):
        if not ticks or x(n) - x(ticks[-1]) >= _APART:
            ticks.append(n)
    below = [tag("span", f"{n:,.0f}", style=f"left:{x(n) / WIDTH:.2%}") for n in ticks]
    spoken = f"{what} over devices; the same numbers are in the table"
    return tag("div", tag("div", svg, *labels, class_="plot", role="img", aria_label=spoken), tag("div", *below, class_="x"))


def _values(s: Ladder, what: str) -> list[float]:
    measured = [v for r in s.rungs if (v := getattr(r, what)) is not None]
    ends = [v for p in s.predictions for v in (p.efficiency_low, p.efficiency_high)]
    scale = _per_efficiency(s) if what == "throughput" else lambda n: 1.0
    predicted = [e * scale(p.size) for p, e in zip([p for p in s.predictions for _ in (0, 1)], ends, strict=True)]
    return [*measured, *predicted, 1.0 if what == "efficiency" else scale(_end(s))]


def _end(s: Ladder) -> int:
    """The largest size that is drawn."""
    return (s.predictions or s.rungs)[-1].size


def _per_efficiency(s: Ladder) -> Place:
    """Throughput of n devices at efficiency 1."""
    first = s.rungs[0]
    return lambda n: (first.throughput or 0.0) * n / first.size


def _shapes(s: Ladder, what: str, colour: str, x: Place, y: Place) -> list[Html]:
    ideal = _per_efficiency(s) if what == "throughput" else lambda n: 1.0
    ends = (s.rungs[0].size, _end(s))
    shapes = [tag("path", d="M" + "L".join(f"{x(n):.1f} {y(ideal(n)):.1f}" for n in ends), class_="ideal")]
    last = s.rungs[-1]
    if s.predictions:
        mid = [(last.size, last.efficiency), *((p.size, p.efficiency) for p in s.predictions)]
        upper = [(last.size, last.efficiency), *((p.size, p.efficiency_high) for p in s.predictions)]
        lower = [(last.size, last.efficiency), *((p.size, p.efficiency_low) for p in s.predictions)]
        band = [f"{x(n):.1f} {y(e * ideal(n)):.1f}" for n, e in (*upper, *lower[::-1])]
        shapes.append(tag("path", d="M" + "L".join(band) + "Z", fill=colour, class_="band"))
        line = "M" + "L".join(f"{x(n):.1f} {y(e * ideal(n)):.1f}" for n, e in mid)
        shapes.append(tag("path", d=line, stroke=colour, stroke_dasharray="2 3", class_="line"))
    law = [(r.size, r.efficiency * r.time / r.fitted) for r in s.rungs if r.fitted]
    if law:
        shapes.append(tag("path", d="M" + "L".join(f"{x(n):.1f} {y(e * ideal(n)):.1f}" for n, e in law), stroke=colour, class_="line"))
    dots = "".join(f"M{x(r.size):.1f} {y(v):.1f}h0" for r in s.rungs if (v := getattr(r, what)) is not None)
    shapes.append(tag("path", d=dots, stroke=colour, class_="dot"))
    return shapes


def _round_values(low: float, high: float) -> list[float]:
    """A few round values inside [low, high]: 1, 2 and 5 times powers of ten, or even steps where the range is short."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    found = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5) if low <= m * 10.0**e <= high]
    if len(found) < 3:
        step = 10.0 ** math.floor(math.log10(high - low))
        step = next(m * step for m in (0.2, 0.5, 1, 2, 5) if (high - low) / (m * step) <= 5)
        found = [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return found[:: max(1, -(-len(found) // 6))]


def _stack(s: Ladder) -> Html | None:
    """A bar a size, by the first word of its buckets."""
    rungs = shown_rungs(s, 12)
    if len(rungs) < 2:
        return None
    longest = max(sum(r.buckets.values()) for r in rungs)
    names = [h for h in HEAD_COLOURS if any(h in heads_of(r) for r in rungs)]
    keys = tag("div", *(tag("span", tag("i", style=f"background:{HEAD_COLOURS[h]}"), h) for h in names), class_="keys")
    rows = []
    for r in rungs:
        at, parts = 0.0, []
        for head, ns in sorted(heads_of(r).items(), key=lambda kv: names.index(kv[0]) if kv[0] in names else len(names)):
            width = 1000 * ns / longest
            colour = HEAD_COLOURS.get(head, OTHER)
            parts.append(tag("rect", x=f"{at:.1f}", y="0", width=f"{width:.1f}", height="14", fill=colour))
            at += width
        bar = tag("svg", *parts, viewBox="0 0 1000 14", preserveAspectRatio="none", aria_hidden="true")
        most = max(r.lost.items(), key=lambda kv: kv[1], default=("", 0))
        lost = f"{most[0]} {fmt.duration(most[1])}" if most[1] > 0 else ""
        cells = [
            tag("td", f"{sum(r.buckets.values()) / 1e6:,.2f}", class_="num"),
            tag("td", bar, class_="fall"),
            tag("td", lost, class_="num"),
        ]
        rows.append(tag("tr", tag("td", f"{r.size:,}"), *cells))
    table = scrolled(table_of(("Devices", "ms", "traced step by bucket", "most lost to"), rows), "Buckets of a step by size")
    return tag("div", tag("h3", "Where a step goes at each size"), keys, table)
