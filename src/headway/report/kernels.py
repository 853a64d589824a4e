"""The page's kernel table: the kernels that take most time, with their floor and what of it they achieve; and the cliffs of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headway.report import format as fmt
from headway.report.colour import colours
from headway.report.document import scrolled, section, table_of
from headway.report.markup import Html, breakable, tag
from headway.spec.breakdown import Breakdown
from headway.spec.cliff import Cliff
from headway.spec.kernel import KernelUse
from headway.trace.kernels import merged

SHOWN: Final = 40  # of all; --json holds every one


def kernel_rows(b: Breakdown) -> list[KernelUse]:
    """The kernels of all devices added up, the longest first; a median is the largest of the devices'."""
    tables = [rank.kernels for rank in b.ranks]
    largest: dict[tuple[str, str], int] = {}
    for k in (k for table in tables for k in table):
        largest[k.name, k.kind] = max(k.median_ns, largest.get((k.name, k.kind), 0))
    return [replace(k, median_ns=largest[k.name, k.kind]) for k in merged(tables)]


def kernel_section(b: Breakdown) -> Html | None:
    """The table, or None where no kernel is known."""
    rows = kernel_rows(b)
    if not rows:
        return None
    windows = max(1, sum(1 for r in b.ranks for s in r.steps if s.buckets))
    total = sum(k.total_ns for k in rows)
    heads: tuple[str, ...] = ("Kernel", "kind", "launches a step", "ms a step", "share", "median", "floor ms", "at its floor")
    profiled = any(k.counted for k in rows)
    heads += ("DRAM", "SMs", "tensor", "occupancy") if profiled else ()
    swatches = colours("buckets", [k.kind if not k.kind.startswith("comm.") else "comm" for k in rows[:SHOWN]])
    body = [_row(k, colour, windows, total, profiled) for k, colour in zip(rows[:SHOWN], swatches, strict=True)]
    more = f" {len(rows) - SHOWN} more take {fmt.share(sum(k.total_ns for k in rows[SHOWN:]), total)}." if len(rows) > SHOWN else ""
    doc = (
        "Launches of one name added up as they are, whatever ran beside them. Floor: the least time of the work on this device, from its "
        "shapes and ceilings; at its floor: floor over time, of the launches whose shapes are known (~: of less than 90 % of the time)."
    )
    if profiled:
        doc += " DRAM, SMs, tensor and occupancy are shares of the peak that Nsight Compute counted, at its own clocks."
    table = scrolled(table_of(heads, body, words=2), "Kernels by time")
    return section("kernels", "Kernels", table, tag("p", doc + more, class_="note"))


def _row(k: KernelUse, colour: str, windows: int, total: int, profiled: bool) -> Html:
    name = k.name if len(k.name) <= 100 else k.name[:70] + " ... " + k.name[-24:]
    label = tag("div", tag("i", class_="swatch", style=f"background:{colour}"), tag("span", breakable(name), class_="name"), class_="label")
    known = k.floor_ns is not None and k.known_ns > 0
    part = "~" if known and k.known_ns < 0.9 * k.total_ns else ""
    shares = (k.dram_share, k.compute_share, k.tensor_share, k.occupancy) if profiled else ()
    return tag(
        "tr",
        tag("td", label, title=k.name),
        tag("td", k.kind, class_="kind"),
        tag("td", f"{k.count / windows:,.1f}", class_="num"),
        tag("td", fmt.milliseconds(k.total_ns / windows, 3), class_="num", title=f"{k.total_ns:,} ns in all"),
        tag("td", fmt.share(k.total_ns, total), class_="num"),
        tag("td", fmt.duration(k.median_ns), class_="num"),
        tag("td", fmt.milliseconds((k.floor_ns or 0) / windows, 3) if known else "", class_="num"),
        tag("td", f"{part}{fmt.percent((k.floor_ns or 0) / k.known_ns)}" if known else "", class_="num"),
        *(tag("td", fmt.percent(share) if share is not None else "", class_="num") for share in shares),
    )


def cliff_section(cliffs: Sequence[Cliff]) -> Html | None:
    """Where the steps of the run became slower."""
    if not cliffs:
        return None
    return section("cliffs", "Cliffs", tag("ol", *map(_cliff, cliffs), class_="findings"))


def _cliff(c: Cliff) -> Html:
    won = tag("div", tag("b", fmt.duration(c.lost_ns)), tag("span", f"in all, {c.kind}", class_="soft"), class_="won")
    steps = ", ".join(map(str, c.steps[:12])) + (f" and {len(c.steps) - 12} more" if len(c.steps) > 12 else "")
    evidence = tag("details", tag("summary", "Evidence"), tag("ul", *(tag("li", e) for e in (*c.evidence, f"steps {steps}"))))
    what = tag(
        "div",
        tag("b", c.what),
        tag("p", c.action) if c.action else None,
        tag("span", f"{c.cause}, rank {c.rank} · accounts for {fmt.percent(c.share)}", class_="soft"),
        evidence,
        class_="what",
    )
    return tag("li", won, what)
