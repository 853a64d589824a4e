"""Curves as inline SVG that stretches with the page; axis labels are HTML beside it, so text never stretches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from headway.report import format as fmt
from headway.report.curve import FORMATS, TICKS, Curve, Line
from headway.report.markup import Html, tag

WIDTH: Final = 1000  # user units of the plot; the page decides on pixels
HEIGHT: Final = 400


class Frame:
    """The frame of a curve: where a value lies, in [0, 1] from left or bottom."""

    def __init__(self, curve: Curve) -> None:
        known = [v for line in curve.lines for v in (*line.least, *line.largest) if v is not None]
        self.logarithmic = curve.logarithmic
        self.x0, self.x1 = (0, max(curve.samples)) if curve.samples else (0, 1)
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        if not self.logarithmic and low > 0 and low < 0.6 * high:
            low = 0.0
        if low == high:
            low, high = (low - 1, high + 1) if low == 0 else (low - abs(low) * 0.1, high + abs(high) * 0.1)
        self.ticks = log_ticks(low, high) if self.logarithmic else ticks(low, high)
        self.y0, self.y1 = min(low, self.ticks[0]), max(high, self.ticks[-1])

    def x(self, samples: float) -> float:
        """Share of the width."""
        return samples / self.x1 if self.x1 else 0.0

    def y(self, value: float) -> float:
        """Share of the height."""
        a, b, v = (math.log10(n) for n in (self.y0, self.y1, value)) if self.logarithmic else (self.y0, self.y1, value)
        return (v - a) / (b - a)


def ticks(low: float, high: float, num: int = 4) -> list[float]:
    """About `num` round values (1, 2, 2.5 or 5 times a power of ten) that enclose [low, high]."""
    rough = (high - low) / num
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten that enclose [low, high], at most six of them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, -(-(last - first) // 5))
    return [10.0**e for e in range(first, last + stride, stride)]


def figure(curve: Curve, place: int) -> Html:
    """The curve with caption, axes and legend; `place` is where the script finds its data."""
    frame = Frame(curve)
    show = FORMATS[curve.unit]
    caption = tag(
        "figcaption", tag("b", curve.title), tag("span", f"last {show(curve.last)}", class_="last") if len(curve.lines) == 1 else None
    )
    legend = tag("div", *(_key(line, show) for line in curve.lines), class_="keys") if len(curve.lines) > 1 else None
    grid = [tag("path", d=f"M0 {_y(frame, v)}H{WIDTH}", class_="grid") for v in frame.ticks]
    bad = [tag("path", d=f"M{WIDTH * frame.x(s):.1f} 0V{HEIGHT}", class_="bad") for s in curve.bad]
    lines = [shape for line in curve.lines for shape in _shapes(line, curve.samples, frame)]
    svg = tag("svg", *grid, *bad, *lines, viewBox=f"0 0 {WIDTH} {HEIGHT}", preserveAspectRatio="none", aria_hidden="true")
    labels = [tag("span", TICKS[curve.unit](v), class_="y", style=f"bottom:{100 * frame.y(v):.2f}%") for v in frame.ticks]
    ends = [s for s in ticks(0, frame.x1, 5) if s <= frame.x1 * 0.75] if frame.x1 else [0.0]
    below = [tag("span", fmt.tick(s), style=f"left:{100 * frame.x(s):.2f}%") for s in ends]
    plot = tag("div", svg, *labels, class_="plot", tabindex="0", role="group", data_curve=place, aria_label=_spoken(curve, show))
    axis = tag("div", *below, tag("span", "samples", class_="unit"), class_="x")
    note = tag("p", f"{curve.note}.", class_="note") if curve.note else None
    return tag("figure", caption, legend, plot, axis, note, class_="curve")


def curve_data(curve: Curve) -> dict[str, Any]:
    """What the page's script needs to read the curve under a pointer."""
    frame = Frame(curve)
    return {
        "key": curve.key,
        "unit": curve.unit,
        "x1": frame.x1,
        "y0": frame.y0,
        "y1": frame.y1,
        "log": frame.logarithmic,
        "samples": list(curve.samples),
        "lines": [{"name": line.name, "colour": line.colour, "mean": [_short(v) for v in line.mean]} for line in curve.lines],
    }


def _shapes(line: Line, samples: Sequence[int], frame: Frame) -> list[Html]:
    """Band (if a point stands for several periods) and line; a gap where no value is known; a lone point is a dash."""
    runs: list[list[int]] = [[]]
    for i, value in enumerate(line.mean):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(i)
    band, path = "", ""
    for run in (r for r in runs if r):
        xs = [f"{WIDTH * frame.x(samples[i]):.1f}" for i in run]
        points = [f"{x} {_y(frame, v)}" for x, i in zip(xs, run, strict=True) if (v := line.mean[i]) is not None]
        path += "M" + "L".join(points) + ("h2" if len(run) == 1 else "")
        if any(line.least[i] != line.largest[i] for i in run):
            upper = [f"{x} {_y(frame, v)}" for x, i in zip(xs, run, strict=True) if (v := line.largest[i]) is not None]
            lower = [f"{x} {_y(frame, v)}" for x, i in zip(xs, run, strict=True) if (v := line.least[i]) is not None]
            band += "M" + "L".join(upper + lower[::-1]) + "Z"
    shapes = [tag("path", d=band, fill=line.colour, class_="band")] if band else []
    return shapes + ([tag("path", d=path, stroke=line.colour, class_="line")] if path else [])


def _y(frame: Frame, value: float) -> str:
    return f"{HEIGHT * (1 - frame.y(value)):.1f}"


def _key(line: Line, show: Any) -> Html:
    last = next((v for v in reversed(line.mean) if v is not None), None)
    return tag("span", tag("i", style=f"background:{line.colour}"), f"{line.name}: {show(last)}")


def _spoken(curve: Curve, show: Any) -> str:
    return f"{curve.title} over samples seen, last {show(curve.last)}; arrow keys read values"


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
