"""One HTML page about a run, a trace, or both: it opens without a network, on a phone as on a wall, in an incident as in a review.

Everything is in the file: CSS, script, curves as SVG, data as JSON, pictures as data URIs. Its content policy forbids the rest.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from typing import Any

from headway.report import format as fmt
from headway.report.account import (
    communication_section,
    findings_section,
    health_section,
    heat_section,
    partitions,
    time_section,
)
from headway.report.beside import beside_section
from headway.report.curve import Curve, curves
from headway.report.document import Section, document, facts_of, scrolled, section, write
from headway.report.kernels import cliff_section, kernel_section
from headway.report.markup import Html, script_json, tag
from headway.report.memory import memory_section
from headway.report.peers import peers_section
from headway.report.rows import KINDS, headline
from headway.report.script import JS
from headway.report.series import heat, series
from headway.report.svg import curve_data, figure
from headway.report.timeline import lanes, timeline_section
from headway.spec.breakdown import Breakdown
from headway.spec.codec import at
from headway.trace.timeline import Timeline


def write_page(
    path: str | os.PathLike[str],
    *,
    breakdown: Breakdown | None = None,
    timelines: Sequence[Timeline] = (),
    run: Mapping[str, Any] | None = None,
    logs: Sequence[Mapping[str, Any]] = (),
    samples_png: bytes | None = None,
    title: str = "",
) -> None:
    """Write the page at once or not at all. `run` is run.json as a mapping, `logs` the log events, `samples_png` a picture.

    Raises RunError if the file cannot be written.
    """
    write(path, page(breakdown=breakdown, timelines=timelines, run=run, logs=logs, samples_png=samples_png, title=title))


def page(
    *,
    breakdown: Breakdown | None = None,
    timelines: Sequence[Timeline] = (),
    run: Mapping[str, Any] | None = None,
    logs: Sequence[Mapping[str, Any]] = (),
    samples_png: bytes | None = None,
    title: str = "",
) -> str:
    """The page as text."""
    b = breakdown or Breakdown(ranks=())
    parts = partitions(b)
    views = {kind: view for kind in KINDS if (view := series(b, kind)) is not None}
    grid = heat(b)
    drawn = lanes(timelines)
    lines = curves(logs)
    title = title or str(at(run, "spec.name") or "") or "Where the time goes"
    sections: list[Section] = [
        ("health", "Health", health_section(b)),
        ("findings", "Findings", findings_section(b, parts)),
        ("time", "Time", time_section(b, parts, views)),
        ("when", "Timeline", timeline_section(drawn)),
        ("ranks", "Ranks", heat_section(grid)),
        ("peers", "Peers", peers_section(b)),
        ("kernels", "Kernels", kernel_section(b)),
        ("communication", "Communication", communication_section(b)),
        ("memory", "Memory", memory_section(b)),
        ("beside", "Beside", beside_section(b)),
        ("cliffs", "Cliffs", cliff_section(b.cliffs)),
        ("training", "Training", _training(lines)),
        ("samples", "Samples", _samples(samples_png)),
        ("settings", "Settings", _settings(run)),
    ]
    data = {"time": views, "timeline": drawn, "heat": grid, "curves": [curve_data(c) for c in lines]}
    nothing = [tag("section", tag("p", "No steps and no log: nothing to show yet."))] if all(s is None for *_, s in sections) else []
    return document(
        title,
        sections,
        facts=_facts(run),
        first=_tiles(b, lines),
        last=(*nothing, _footer(b)),
        scripts=(script_json(data, identity="data"), tag("script", Html(JS))),
    )


def _facts(run: Mapping[str, Any] | None) -> Html | None:
    """What ran where, in one or two lines."""
    if not run:
        return None
    model, mesh, world = at(run, "spec.model") or {}, at(run, "spec.mesh") or {}, at(run, "info.world")
    axes = [f"{axis} {n}" for axis, n in mesh.items() if isinstance(n, int) and not isinstance(n, bool) and n > 1]
    shape = [f"{model[k]} {word}" for k, word in (("depth", "deep"), ("width", "wide")) if model.get(k)]
    count = at(run, "info.num_parameters")
    facts = {
        "network": ", ".join([str(model.get("name", "")), *shape]) if model else None,
        "parameters": fmt.metric(count, "").strip() if count is not None else None,
        "data": at(run, "spec.data.name"),
        "batch": at(run, "spec.global_batch"),
        "precision": at(run, "spec.precision.compute"),
        "device": " x ".join(str(x) for x in (world, at(run, "info.device")) if x),
        "mesh": ", ".join(axes),
        "peak": _peak(run),
        "git": at(run, "info.git"),
    } | dict(at(run, "info.versions") or {})
    return facts_of(facts)


def _peak(run: Mapping[str, Any]) -> str | None:
    peak, source = at(run, "info.peak_flops"), at(run, "info.peak_source")
    return f"{fmt.metric(peak, 'FLOP/s')}{f' ({source})' if source else ''}" if peak else None


def _tiles(b: Breakdown, lines: Sequence[Curve]) -> Html | None:
    """The few numbers that one asks for first; what is not known is left out."""
    h = headline(b)
    last = {c.key: c.last for c in lines}
    mfu = h.mfu if h.mfu is not None else last.get("mfu")
    rate = h.samples_s if h.samples_s is not None else last.get("samples_s")
    best = max(b.findings, key=lambda f: f.recoverable_ns, default=None)
    seen = max((c.samples[-1] for c in lines), default=None)
    tiles = [
        ("median step", fmt.duration(h.median_ns), h.median_ns),
        ("p95 step", fmt.duration(h.p95_ns), h.p95_ns),
        ("MFU", fmt.percent(mfu), mfu),
        ("HFU, with recomputation", fmt.percent(h.hfu) if h.hfu is not None else "", h.hfu),
        ("samples/s", fmt.integer(rate) if rate is not None and rate >= 100 else fmt.number(rate), rate),
        ("largest finding", fmt.duration(best.recoverable_ns) if best else "", best),
        ("loss, last", fmt.number(last.get("loss")), last.get("loss")),
        ("samples seen", fmt.integer(seen) if seen is None or seen < 10_000_000 else fmt.metric(seen, ""), seen),
        ("ranks x steps", f"{h.num_ranks} x {h.num_steps:,}", h.median_ns),
    ]
    shown = [tag("div", tag("span", name), tag("b", text), class_="tile") for name, text, known in tiles if known is not None]
    return tag("div", *shown, class_="tiles") if shown else None


def _training(lines: Sequence[Curve]) -> Html | None:
    if not lines:
        return None
    return section("training", "Training", tag("div", *(figure(c, i) for i, c in enumerate(lines)), class_="curves"))


def _samples(png: bytes | None) -> Html | None:
    if not png:
        return None
    source = "data:image/png;base64," + base64.b64encode(png).decode("ascii")
    picture = tag("img", src=source, alt="Samples drawn from the network", class_="samples")
    return section("samples", "Samples", picture)


def _settings(run: Mapping[str, Any] | None) -> Html | None:
    """Every field of the run, folded away."""
    fields = _flat(at(run, "spec") or {})
    if not fields:
        return None
    rows = [tag("tr", tag("td", tag("span", k, class_="name")), tag("td", v)) for k, v in fields.items()]
    table = scrolled(tag("table", tag("tbody", *rows)), "Settings")
    return section("settings", "Settings", tag("details", tag("summary", f"{len(fields)} fields"), table))


def _footer(b: Breakdown) -> Html:
    sources = sorted({r.source for r in b.ranks if r.source})
    read = f"Read from {', '.join(sources[:4])}{f' and {len(sources) - 4} more' if len(sources) > 4 else ''}. " if sources else ""
    exactly = "Buckets, phases and modules each add up to the wall time of every step, exactly." if b.ranks else ""
    return tag("footer", tag("p", f"{read}Written by Headway. {exactly}"))


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            out |= _flat(item, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = item
    return out
