"""How a training scales, as a page: efficiency and step time over devices with the fit's band, buckets of each size, the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from headway.report import format as fmt
from headway.report.colour import LINES, colours
from headway.report.document import Section, document, table
from headway.report.markup import Html, tag
from headway.report.rows import fold
from headway.report.scaling import MODES, prediction_text, step, terms_text, trust
from headway.report.svg import HEIGHT, WIDTH, ticks
from headway.spec.scaling import Ladder, Scaling

BUCKETS: Final = 12  # with a colour of their own; the others are one
_PAD: Final = 0.04  # of the width, beside the first and the last size


def scaling_page(scaling: Scaling, title: str) -> str:
    """The page as text."""
    sections: list[Section] = [("efficiency", "Efficiency", efficiency_section(scaling.ladders))]
    sections += [(f"ladder-{i}", ladder.name[:40], ladder_section(ladder, i)) for i, ladder in enumerate(scaling.ladders)]
    footer = tag("footer", tag("p", "Efficiency is samples a second and device over that of the smallest size. Written by Headway."))
    return document(title, sections, last=(footer,))


def efficiency_section(ladders: Sequence[Ladder]) -> Html | None:
    """All ladders in one chart: efficiency over devices; dashes go on with the predictions, their band with the intervals."""
    shown = [ladder for ladder in ladders if len(ladder.points) > 1]
    if not shown:
        return None
    sizes = [n for ladder in shown for n in (*(p.devices for p in ladder.points), *(p.devices for p in ladder.predictions))]
    x = _Axis(min(sizes), max(sizes))
    most = max(1.0, *(e for ladder in shown for e in ladder.efficiency))
    marks = ticks(0.0, most)
    shapes: list[Html] = [tag("path", d=f"M0 {_up(v / marks[-1])}H{WIDTH}", class_="grid") for v in marks]
    for i, ladder in enumerate(shown):
        shapes += _efficiency(ladder, x, marks[-1], LINES[i % len(LINES)])
    labels = [tag("span", fmt.percent(v), class_="y", style=f"bottom:{100 * v / marks[-1]:.2f}%") for v in marks]
    keys = [
        tag("span", tag("i", style=f"background:{LINES[i % len(LINES)]}"), f"{ladder.name}: {fmt.percent(ladder.efficiency[-1])}")
        for i, ladder in enumerate(shown)
    ]
    said = "Efficiency over devices: " + "; ".join(_spoken(ladder) for ladder in shown)
    svg = tag("svg", *shapes, viewBox=f"0 0 {WIDTH} {HEIGHT}", preserveAspectRatio="none", aria_hidden="true")
    plot = tag("div", svg, *labels, class_="plot tall", role="img", aria_label=said)
    return tag("section", tag("h2", "Efficiency"), tag("div", *keys, class_="keys"), plot, x.labels("devices"), id="efficiency")


def _spoken(ladder: Ladder) -> str:
    pairs = zip(ladder.points, ladder.efficiency, strict=True)
    return f"{ladder.name} {', '.join(f'{p.devices}: {fmt.percent(e)}' for p, e in pairs)}"


class _Axis:
    """Devices on a logarithmic scale."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, max(high, low + 1)

    def share(self, devices: float) -> float:
        """Share of the width."""
        return _PAD + (1 - 2 * _PAD) * math.log(devices / self.low) / math.log(self.high / self.low)

    def labels(self, unit: str) -> Html:
        """Powers of two, or of four and so on where they are many."""
        first, last = math.ceil(math.log2(self.low)), math.floor(math.log2(self.high))
        stride = max(1, -(-(last - first + 1) // 8))
        sizes = [1 << e for e in range(first, last + 1, stride)] or [self.low]
        spans = [tag("span", fmt.integer(n), style=f"left:{100 * self.share(n):.2f}%") for n in sizes]
        return tag("div", *spans, tag("span", unit, class_="unit"), class_="x")


def _efficiency(ladder: Ladder, x: _Axis, top: float, colour: str) -> list[Html]:
    first = ladder.points[0]
    best = first.rate / first.devices
    measured = [(p.devices, e) for p, e in zip(ladder.points, ladder.efficiency, strict=True)]
    path = "M" + "L".join(f"{WIDTH * x.share(n):.1f} {_up(e / top)}" for n, e in measured)
    out = [tag("path", d=path, stroke=colour, class_="line")]
    dots = "".join(f"M{WIDTH * x.share(n):.1f} {_up(e / top)}h.01" for n, e in measured)
    out.append(tag("path", d=dots, stroke=colour, class_="line", style="stroke-width:7"))
    if ladder.predictions:
        ahead = [measured[-1], *((p.devices, p.efficiency) for p in ladder.predictions)]
        path = "M" + "L".join(f"{WIDTH * x.share(n):.1f} {_up(e / top)}" for n, e in ahead)
        out.append(tag("path", d=path, stroke=colour, class_="line", style="stroke-dasharray:5 5"))
        edges = [[(ahead[0][0], ahead[0][1])], [(ahead[0][0], ahead[0][1])]]
        for p in ladder.predictions:
            for edge, value in zip(edges, p.interval, strict=True):
                edge.append((p.devices, min(top, p.global_batch / p.devices / max(value, 1e-9) / best)))
        band = [f"{WIDTH * x.share(n):.1f} {_up(e / top)}" for n, e in (*edges[0], *reversed(edges[1]))]
        out.append(tag("path", d="M" + "L".join(band) + "Z", fill=colour, class_="band"))
    return out


def _up(share: float) -> str:
    return f"{HEIGHT * (1 - share):.1f}"


def ladder_section(ladder: Ladder, place: int) -> Html:
    """One ladder: its sizes, where a step goes at each, what is lost, the fit and what it predicts."""
    rows = [
        (
            f"{p.devices:,}",
            f"{p.global_batch:,.0f}",
            step(ladder, p.step),
            " to ".join(step(ladder, v) for v in p.interval) if p.interval else fmt.DASH,
            f"{p.num_steps:,}" if p.num_steps else fmt.DASH,
            fmt.DASH if ladder.relative else fmt.number(p.rate * 1e9),
            fmt.percent(e),
            fmt.percent(p.mfu),
            p.source,
        )
        for p, e in zip(ladder.points, ladder.efficiency, strict=True)
    ]
    heads = ("Devices", "batch", "step", "95 % interval", "steps", "samples/s", "efficiency", "MFU", "source")
    return tag(
        "section",
        tag("h2", ladder.name),
        tag("p", f"{MODES[ladder.mode].capitalize()}.", class_="note"),
        *(tag("p", note, class_="note") for note in ladder.notes),
        table(f"Sizes of {ladder.name}", heads, rows, words=1),
        _stack(ladder),
        _losses(ladder),
        tag("h3", "The fit") if ladder.terms else None,
        tag("p", terms_text(ladder), class_="note") if ladder.terms else None,
        *(tag("p", tag("b", "Next: "), prediction_text(ladder, p)) for p in ladder.predictions),
        *(tag("p", tag("b", "Trust: "), text) for text in trust(ladder)),
        id=f"ladder-{place}",
    )


def _stack(ladder: Ladder) -> Html | None:
    """A bar a size: a profiled step by bucket, as shares of it."""
    shown = [p for p in ladder.points if p.buckets and p.profiled]
    if not shown:
        return None
    sums: dict[str, int] = {}
    for p in shown:
        for name, ns in p.buckets.items():
            sums[name] = sums.get(name, 0) + round(ns)
    parts = fold(dict(sorted(sums.items(), key=lambda kv: -kv[1])), BUCKETS)
    paint = dict(zip(parts, colours("buckets", list(parts)), strict=True))
    bars = []
    for p in shown:
        pieces = [
            tag("i", style=f"width:{100 * ns / (p.profiled or 1):.2f}%;background:{paint[name]}", title=f"{name}: {fmt.duration(ns)}")
            for name, members in parts.items()
            if (ns := sum(p.buckets.get(m, 0.0) for m in members)) > 0
        ]
        bars.append(tag("div", tag("span", f"{p.devices:,}", class_="soft"), tag("div", *pieces, class_="stack"), class_="size"))
    keys = [tag("span", tag("i", style=f"background:{paint[name]}"), name) for name in parts]
    return tag("div", tag("h3", "Where a profiled step goes at each size"), tag("div", *keys, class_="keys"), *bars)


def _losses(ladder: Ladder) -> Html | None:
    if not ladder.losses:
        return None
    names = list(dict.fromkeys(name for loss in ladder.losses for name in loss.buckets))
    names.sort(key=lambda n: -max(loss.buckets.get(n, 0.0) for loss in ladder.losses))
    heads = ("Lost against the smallest size", *(f"{loss.devices:,} devices" for loss in ladder.losses))
    rows = [(name, *(fmt.duration(loss.buckets.get(name, 0.0)) for loss in ladder.losses)) for name in names[: 2 * BUCKETS]]
    rows.append(("all", *(fmt.duration(sum(loss.buckets.values())) for loss in ladder.losses)))
    return table(f"What {ladder.name} loses by bucket", heads, rows)
