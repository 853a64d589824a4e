"""The sections of the page that a breakdown fills: health, findings, the stacked chart with its tables, ranks, communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headway.report import format as fmt
from headway.report.colour import HEAD_COLOURS, OTHER, RAMP
from headway.report.document import scrolled, section, table_of
from headway.report.markup import Html, breakable, join, tag
from headway.report.peers import sizes_table
from headway.report.rows import (
    KINDS,
    RANK_COLUMNS,
    Kind,
    Partition,
    beyond,
    collectives,
    head_of,
    headline,
    health_lines,
    hidden,
    partition,
    ranked,
    warmup_text,
)
from headway.report.series import MAX_NAMES
from headway.spec.breakdown import Breakdown
from headway.spec.finding import Finding

KIND_NAMES: Final[Mapping[Kind, str]] = {"buckets": "Buckets", "phases": "Phases", "modules": "Modules"}
KIND_DOCS: Final[Mapping[Kind, str]] = {
    "buckets": "What the device did: every nanosecond of a step is in exactly one bucket.",
    "phases": "What the training loop was doing: the same time, cut by phase.",
    "modules": "Which part of the network it belonged to: the same time, cut by module.",
}


def partitions(b: Breakdown) -> dict[Kind, Partition]:
    """The partitions that `b` carries, folded to what a page shows."""
    found = {kind: partition(b, kind, limit=MAX_NAMES[kind]) for kind in KINDS}
    return {kind: part for kind, part in found.items() if part.num_steps}


def health_section(b: Breakdown) -> Html | None:
    """What makes the numbers less certain; None if nothing does."""
    if not b.health:
        return None
    items = [tag("li", text) for text in health_lines(b)]
    return section("health", "What makes these numbers less certain", tag("ul", *items), class_="health")


def findings_section(b: Breakdown, parts: Mapping[Kind, Partition]) -> Html | None:
    """The findings, the most worthwhile first, each linked to the row of its bucket."""
    if not b.findings:
        return None
    part = parts.get("buckets") or parts.get("phases")
    wall_ns = part.mean_wall_ns if part else 0.0
    rows = row_ids(parts)
    items = [_finding(f, wall_ns, rows.get(f.bucket)) for f in ranked(b.findings)]
    return section("findings", "Findings", tag("ol", *items, class_="findings"))


def _finding(f: Finding, wall_ns: float, row: str | None) -> Html:
    colour = HEAD_COLOURS.get(head_of(f.bucket), OTHER)
    width = min(100.0, 100 * f.recoverable_ns / wall_ns) if wall_ns > 0 else 0.0
    bucket = tag("code", breakable(f.bucket))
    won = tag(
        "div",
        tag("b", fmt.duration(f.recoverable_ns), title=exact(f.recoverable_ns)),
        tag("div", tag("i", style=f"width:{width:.1f}%;background:{colour}"), class_="meter"),
        tag("span", f"{fmt.share(f.recoverable_ns, wall_ns)} of a step", class_="soft"),
        class_="won",
    )
    patch = [tag("code", flag) for flag in fmt.flags(f.patch) if flag not in f.action]
    own = beyond(f)
    more = "" if own is None else f" ({fmt.duration(own)}) and what waits for it"
    sure = f"{more} · confidence {100 * f.confidence:.0f} %"
    evidence = tag("details", tag("summary", f"Evidence ({len(f.evidence)})"), tag("ul", *(tag("li", e) for e in f.evidence)))
    what = tag(
        "div",
        tag("b", f.what),
        tag("p", f.action, *(x for p in patch for x in (" ", p))) if f.action or patch else None,
        tag("span", tag("a", bucket, href=f"#{row}") if row else bucket, sure, class_="soft"),
        evidence if f.evidence else None,
        class_="what",
    )
    return tag("li", won, what)


def time_section(b: Breakdown, parts: Mapping[Kind, Partition], views: Mapping[Kind, Mapping[str, Any]]) -> Html | None:
    """The stacked chart with its switches, and a table for each partition."""
    if not parts:
        return None
    first = next(iter(parts))
    options = [tag("label", tag("input", type="radio", name="kind", value=kind, checked=kind == first), KIND_NAMES[kind]) for kind in parts]
    switch = tag("fieldset", *options, class_="switch", aria_label="Cut the step by") if len(parts) > 1 else None
    warmup = headline(b).warmup
    warm = warmup_text(warmup) if warmup else ""
    several = max(len(v["views"]) for v in views.values()) > 1
    pick = tag("label", "Rank", tag("select", id="view"), class_="pick") if several else None
    chart = tag(
        "div",
        tag("svg", viewBox="0 0 1000 400", preserveAspectRatio="none", aria_hidden="true"),
        class_="plot tall",
        id="stack",
        tabindex="0",
        role="group",
        aria_label="Time of each step, stacked; arrow keys read values. The same numbers are in the table below.",
    )
    return section(
        "time",
        "Where a step goes",
        tag("div", switch, pick, class_="controls") if switch or pick else None,
        chart,
        tag("div", class_="x", id="stack-x"),
        tag("p", class_="note", id="stack-note"),
        tag("p", f"{warm[0].upper()}{warm[1:]}.", class_="note") if warm else None,
        *(tag("div", _table(part, views[kind]), data_table=kind) for kind, part in parts.items()),
    )


def row_ids(parts: Mapping[Kind, Partition]) -> dict[str, str]:
    """Bucket -> id of its row; a head counts as a bucket."""
    rows = parts["buckets"].rows if "buckets" in parts else ()
    ids: dict[str, str] = {}
    for i, row in enumerate(rows):
        ids.setdefault(row.name, f"buckets-{i}")
    return ids


def exact(ns: float) -> str:
    """Nanoseconds with separators, for titles."""
    return f"{ns:,.0f} ns"


def _table(part: Partition, view: Mapping[str, Any]) -> Html:
    heads = (KIND_NAMES[part.kind][:-1], "ms", "share", *_rank_heads(part), "")
    decimals = fmt.places(max([part.mean_wall_ns, *part.rank_wall_ns]))
    body = [_line(part, i, members, view["colours"], decimals) for i, members in enumerate(chart_parts(part))]
    total = tag(
        "tr",
        tag("td", "total"),
        tag("td", fmt.milliseconds(part.mean_wall_ns, decimals), class_="num", title=_title(part.wall_ns, part)),
        tag("td", fmt.share(part.wall_ns, part.wall_ns), class_="num"),
        *_rank_cells(part.rank_wall_ns, decimals),
        tag("td"),
        class_="total",
    )
    steps = f"Mean of {part.num_steps:,} step{'s' * (part.num_steps != 1)}"
    steps += f" of {len(part.ranks)} ranks" if len(part.ranks) > 1 else ""
    doc = tag("p", f"{KIND_DOCS[part.kind]} {steps}; hover over a number for the exact nanoseconds.", class_="note")
    return join([scrolled(table_of(heads, body, total=total), f"{KIND_NAMES[part.kind]} of a step"), doc])


def chart_parts(part: Partition) -> list[list[int]]:
    """For each row, the places of its parts in the chart: a head stands for the rows below it. Chart and table have one order; what is
    not shown is one part of the chart, the last.
    """
    rows = part.rows
    leaves = [not (row.depth == 0 and i + 1 < len(rows) and rows[i + 1].depth == 1) for i, row in enumerate(rows)]
    last = sum(leaf and not row.withheld for row, leaf in zip(rows, leaves, strict=True))
    shown = iter(range(last))
    places: list[list[int]] = []
    head: list[int] = []
    for row, leaf in zip(rows, leaves, strict=True):
        mine = [last if row.withheld else next(shown)] if leaf else []
        if row.depth == 0:
            head = mine
        else:
            head += [k for k in mine if k not in head]
        places.append(head if row.depth == 0 else mine)
    return places


def _line(part: Partition, i: int, members: Sequence[int], colours: Sequence[str], decimals: int) -> Html:
    """One row. Its swatch is its colour in the chart; `data-k` names the parts of the chart that it stands for."""
    row = part.rows[i]
    is_head = part.kind == "buckets" and row.depth == 0
    colour = HEAD_COLOURS.get(row.name, OTHER) if is_head else colours[members[0]]
    share = 100 * row.total_ns / part.wall_ns if part.wall_ns > 0 else 0.0
    swatch = tag("i", class_="swatch", style=f"background:{colour}")
    cells = [
        tag("td", fmt.milliseconds(part.mean_ns(row), decimals), class_="num", title=_title(row.total_ns, part)),
        tag("td", fmt.share(row.total_ns, part.wall_ns), class_="num"),
        *_rank_cells(row.rank_ns, decimals),
    ]
    return tag(
        "tr",
        tag("td", tag("div", swatch, tag("span", breakable(row.label), class_=None if is_head else "name"), class_="label")),
        *([tag("td", "not shown", class_="num soft", colspan=str(2 + len(_rank_cells(row.rank_ns, decimals))))] if row.withheld else cells),
        tag("td", None if row.withheld else tag("i", style=f"width:{share:.2f}%;background:{colour}"), class_="bar"),
        id=f"{part.kind}-{i}",
        class_="head" if is_head else "part" if row.depth else None,
        data_k=" ".join(map(str, members)),
    )


def _title(total_ns: int, part: Partition) -> str:
    return f"{exact(total_ns)} in {part.num_steps:,} step{'s' * (part.num_steps != 1)}"


def _rank_heads(part: Partition) -> Sequence[str]:
    if len(part.ranks) <= 1:
        return ()
    return part.ranks if len(part.ranks) <= RANK_COLUMNS else ("least", "median", "largest")


def _rank_cells(values: Sequence[float], decimals: int) -> list[Html]:
    """A cell a rank, or least, median and largest of many."""
    if len(values) <= 1:
        return []
    ordered = sorted(values)
    shown = values if len(values) <= RANK_COLUMNS else (ordered[0], ordered[round(0.5 * (len(ordered) - 1))], ordered[-1])
    return [tag("td", fmt.milliseconds(ns, decimals), class_="num", title=exact(ns)) for ns in shown]


def heat_section(heat: Mapping[str, Any] | None) -> Html | None:
    """The heat map of ranks and steps; the script paints it."""
    if heat is None:
        return None
    options = [tag("option", name) for name in heat["metrics"]]
    rows = heat["rows"]
    every = -(-len(rows) // 16)
    labels = [
        tag("span", label, title=label, class_="y", style=f"bottom:{100 * (1 - (i + 0.5) / len(rows)):.2f}%")
        for i, label in enumerate(rows)
        if i % every == 0
    ]
    height = min(420, max(64, 26 * len(rows)))
    stops = ",".join(RAMP)
    return section(
        "ranks",
        "Ranks and steps",
        tag(
            "div",
            tag("label", "Show", tag("select", *options, id="metric"), class_="pick"),
            tag(
                "div",
                tag("span", id="heat-low"),
                tag("i", style=f"background:linear-gradient(to right,{stops})"),
                tag("span", id="heat-high"),
                class_="scale",
            ),
            class_="controls",
        ),
        tag(
            "div",
            tag("canvas", aria_hidden="true"),
            *labels,
            class_="plot heat",
            id="heat",
            style=f"height:{height}px",
            tabindex="0",
            role="group",
            aria_label="Heat map of ranks and steps; arrow keys read values",
        ),
        tag(
            "div",
            tag("span", heat["bins"][0][0], style="left:0;transform:none"),
            tag("span", f"step {heat['bins'][-1][1]}", class_="unit"),
            class_="x",
        ),
        tag("p", heat["note"], class_="note"),
    )


def communication_section(b: Breakdown) -> Html | None:
    """Collectives with bytes and bandwidth, and what ran hidden under compute."""
    rows, under = collectives(b), hidden(b)
    if not rows and not under:
        return None
    heads = ("Collective", "axis", "calls", "bytes", "busy ms", "bus bandwidth")
    body = [
        tag(
            "tr",
            tag("td", tag("span", c.name, class_="name")),
            tag("td", tag("span", c.axis, class_="name")),
            tag("td", f"{c.count:,.1f}", class_="num"),
            tag("td", fmt.size(c.num_bytes), class_="num"),
            tag("td", fmt.milliseconds(c.busy_ns, fmt.places(rows[0].busy_ns)), class_="num", title=exact(c.busy_ns)),
            tag("td", fmt.metric(c.bus_bytes_s, "B/s"), class_="num"),
        )
        for c in rows
    ]
    text = [tag("p", tag("code", axis), f": {fmt.duration(ns)} of a step ran hidden under compute.") for axis, ns in under.items()]
    table = scrolled(table_of(heads, body, words=2), "Collectives") if rows else None
    return section("communication", "Communication, per step", *text, table, sizes_table(b))
