"""A difference of two runs as one HTML page: a waterfall from A to B, kernels, memory, settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

from headway.report import format as fmt
from headway.report.diff import VERDICTS, headline, kernel_place, kernel_word, plain, side_text
from headway.report.document import Section, document, facts_of, scrolled, section, table_of, write
from headway.report.markup import Html, breakable, tag
from headway.spec.diff import Change, Diff, KernelChange

SHOWN: Final = 60  # kernels; --json holds every one


def write_diff(path: str | os.PathLike[str], d: Diff) -> None:
    """Write the page. Raises RunError if the file cannot be written."""
    write(path, diff_page(d))


def diff_page(d: Diff) -> str:
    """The page as text."""
    sections: list[Section] = [
        ("verdict", "Verdict", section("verdict", "Verdict", tag("p", tag("b", d.text)), tag("p", headline(d)))),
        ("health", "Doubts", _doubts(d)),
        ("buckets", "Buckets", _waterfall("buckets", "From A to B, by bucket", d.buckets, d.step)),
        ("phases", "Phases", _waterfall("phases", "From A to B, by phase", d.phases, d.step)),
        ("kernels", "Kernels", _kernels(d)),
        ("memory", "Memory", _waterfall("memory", "Memory at the peak, from A to B", d.memory, d.memory_total, size=True)),
        ("settings", "Settings", _settings(d)),
        ("events", "Events", _events(d)),
    ]
    facts = {"A": side_text(d.a), "B": side_text(d.b)}
    footer = "Written by Headway. Buckets, phases, kernels and memory each add up to the difference, exactly."
    return document("What changed from A to B", sections, facts=facts_of(facts), last=(tag("footer", tag("p", footer)),))


def _doubts(d: Diff) -> Html | None:
    if not d.warnings:
        return None
    return tag(
        "section",
        tag("h2", "What makes the two hard to compare"),
        tag("ul", *(tag("li", w) for w in d.warnings)),
        class_="health",
        id="health",
    )


def _waterfall(identity: str, title: str, rows: Sequence[Change], total: Change | None, *, size: bool = False) -> Html | None:
    """A row a part; its bar begins where the one before ended, so that they lead from A to B."""
    if not rows or total is None:
        return None
    at, lows, highs = total.a, [total.a, total.b], [total.a, total.b]
    for c in rows:
        at += c.delta
        lows.append(at)
        highs.append(at)
    low, high = min(lows), max(highs)
    low = max(0, low - max(1, round(0.1 * (high - low)), round(0.01 * high)))

    def x(value: float) -> float:
        return 1000 * (value - low) / (high - low)

    at, body = total.a, [_line("A", None, total.a, total, x, (low, total.a), "level", size)]
    for c in rows:
        if c.delta:
            body.append(_line(c.name, c, c.b, total, x, (at, at + c.delta), "up" if c.delta > 0 else "down", size))
        at += c.delta
    body.append(_line("B", None, total.b, total, x, (low, total.b), "level", size))
    heads = ("Part", "MiB" if size else "ms", "B - A", "from A to B", "of A", "interval", "verdict")
    same = sum(not c.delta for c in rows)
    note = [
        "Faint bars may be noise: 0 is in their interval." if any(c.verdict == "noise" for c in rows) else "",
        f"{same} more did not change." if same else "",
    ]
    table = scrolled(table_of(heads, body), title)
    return section(identity, title, table, tag("p", " ".join(n for n in note if n), class_="note"))


def _line(
    name: str, c: Change | None, value: int, total: Change, x: Callable[[float], float], ends: tuple[int, int], kind: str, size: bool
) -> Html:
    """One row of a waterfall; `c` is None for the two totals."""
    left, right = sorted((x(ends[0]), x(ends[1])))
    hidden = c is not None and c.verdict == "withheld"
    faint = " faint" if c is not None and c.verdict == "noise" else ""
    bar = tag(
        "svg",
        tag("rect", x=f"{left:.1f}", y="0", width=f"{max(right - left, 2):.1f}", height="14", class_=kind + faint),
        viewBox="0 0 1000 14",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    show = _mib if size else _ms
    delta = "" if c is None else "not shown" if hidden else ("+" if c.delta > 0 else "") + show(c.delta)
    interval = f"{_sign(c.low, show)} to {_sign(c.high, show)}" if c and c.low is not None and c.high is not None and not hidden else ""
    return tag(
        "tr",
        tag("td", tag("span", breakable(name), class_="name") if c else tag("b", name)),
        tag("td", "" if hidden else show(value), class_="num", title=f"{value:,} {'bytes' if size else 'ns'}"),
        tag("td", delta, class_="num", title=f"{c.delta:+,} {'bytes' if size else 'ns'}" if c else None),
        tag("td", None if hidden else bar, class_="fall"),
        tag("td", f"{100 * c.delta / total.a:+.1f} %" if c and total.a and not hidden else "", class_="num"),
        tag("td", interval, class_="num soft"),
        tag("td", c.verdict if c and c.verdict in ("real", "noise") else "", class_="num"),
        class_="head" if c is None else None,
    )


def _sign(value: int, show: Callable[[int], str]) -> str:
    return ("+" if value > 0 else "") + show(value)


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"


def _mib(num: int) -> str:
    return f"{num / (1 << 20):,.1f}"


def _kernels(d: Diff) -> Html | None:
    rows = [k for k in d.kernels if k.delta_ns]
    if not rows or not d.kernel_time or not d.overlap or not d.busy:
        return None
    heads = ("What", "kernel", "kind", "launches A", "B", "ms A", "B", "B - A", "by count", "by length")
    rest = rows[SHOWN:]
    more = f" {len(rest)} smaller ones add {sum(k.delta_ns for k in rest) / 1e6:+.3f} ms." if rest else ""
    doc = (
        "Launches of one name or, where names differ, of one place, a step, over all traced steps. All together "
        f"{d.kernel_time.delta / 1e6:+.3f} ms; "
        f"less {d.overlap.delta / 1e6:+.3f} ms that ran beside others, the device was busy {d.busy.delta / 1e6:+.3f} ms longer.{more}"
    )
    table = scrolled(table_of(heads, [_kernel(k) for k in rows[:SHOWN]], words=3), "Kernels")
    return section("kernels", "Kernels", table, tag("p", doc, class_="note"))


def _kernel(k: KernelChange) -> Html:
    names = [k.name_a] + ([k.name_b] if k.name_b != k.name_a else [])
    place = kernel_place(k) or " ".join(x for x in (k.module, k.operator) if x)
    shown = [tag("span", breakable(n if len(n) < 90 else n[:64] + " ... " + n[-20:]), class_="name", title=n) for n in names if n]
    cell = tag("td", *(x for s in shown for x in (s, tag("br"))), tag("span", place, class_="soft"), class_="text")
    numbers = [f"{k.count_a:,.4g}", f"{k.count_b:,.4g}", _ms(k.a_ns), _ms(k.b_ns)]
    numbers += [f"{x / 1e6:+,.3f}" for x in (k.delta_ns, k.count_ns, k.duration_ns)]
    return tag("tr", tag("td", kernel_word(k)), cell, tag("td", k.kind, class_="kind"), *(tag("td", n, class_="num") for n in numbers))


def _settings(d: Diff) -> Html | None:
    if not d.settings:
        return None
    rows = [
        tag("tr", tag("td", tag("span", breakable(s.name), class_="name")), tag("td", plain(s.a)), tag("td", plain(s.b)), tag("td", s.kind))
        for s in d.settings
    ]
    return section("settings", "Settings that differ", scrolled(table_of(("Field", "A", "B", "kind"), rows, words=4), "Settings"))


def _events(d: Diff) -> Html | None:
    rows = [(c.name, f"{c.a:,}", f"{c.b:,}") for c in d.events]
    if d.loss:
        rows.append((f"loss at {d.loss['samples']:,.0f} samples", fmt.number(d.loss["a"]), fmt.number(d.loss["b"])))
    rows += [(f"{q.name.replace('_', ' ')} {VERDICTS[q.verdict]}".strip(), fmt.number(q.a), fmt.number(q.b)) for q in d.quality]
    if not rows:
        return None
    body = [tag("tr", tag("td", name), tag("td", a, class_="num"), tag("td", b, class_="num")) for name, a, b in rows]
    return section("events", "Events, loss and quality", scrolled(table_of(("", "A", "B"), body), "Events"))
