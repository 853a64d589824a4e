"""Ranks against each other: who is waited for and why, who is slower than chance, how far apart the clocks are, collectives by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headway.report import format as fmt
from headway.report.document import scrolled, section
from headway.report.markup import Html, tag
from headway.report.sheet import Sheet
from headway.spec.breakdown import Breakdown, RankBreakdown
from headway.spec.health import some
from headway.spec.straggler import Straggler

SHOWN: Final = 5  # ranks in the terminal; the page shows PAGE of them, --json all
PAGE: Final = 32
PARTS: Final = 2  # of what a late rank did
ENOUGH: Final = 3  # steps from which on it can be said that no rank is slow
LEAST: Final = 0.005  # of a step: a shorter wait is not worth a line
_KINDS: Final[Mapping[str, str]] = {
    "compute": "the same kernels take longer",
    "input": "its device waits longer for batches",
    "host": "its device waits longer for the host",
    "link": "its transfers take longer than those of other groups",
}


def print_peers(sheet: Sheet, b: Breakdown) -> None:
    """The section of the terminal; nothing for a single rank."""
    late, slow, clocks = late_ranks(b), b.stragglers, clock_text(b)
    if not late and not slow and not clocks:
        return
    sheet.line()
    sheet.line("Ranks against each other, per step", "bold")
    for row in late[:SHOWN]:
        sheet.paragraph(late_text(row, num_steps(b)), first=f"  rank {row['rank']}: ", rest="    ")
    if len(late) > SHOWN:
        sheet.line(f"  and {len(late) - SHOWN} ranks that are waited for less; --html and --json show them", "dim")
    for s in slow[:SHOWN]:
        sheet.paragraph(straggler_text(s), first=f"  rank {s.rank} is slow: ", rest="    ")
    if late and not slow and num_steps(b) >= ENOUGH:
        sheet.paragraph("no rank is slower than its peers by more than chance", first="  ")
    if clocks:
        sheet.paragraph(clocks, first="  clocks: ", rest="    ")


def num_steps(b: Breakdown) -> int:
    """Profiled steps, at least 1."""
    return int(b.summary.get("num_profiled") or 1)


def late_ranks(b: Breakdown) -> list[Mapping[str, Any]]:
    """The rows of summary.lateness that cost the others something, the costliest first."""
    walls = [s.wall_ns for r in b.ranks for s in r.steps if s.buckets]
    least = LEAST * sum(walls) / len(walls) if walls else 0.0
    rows = [row for row in b.summary.get("lateness") or () if row["wait_ns"] / num_steps(b) > least]
    return sorted(rows, key=lambda row: -row["wait_ns"])


def late_text(row: Mapping[str, Any], steps: int) -> str:
    """How long the others waited for a rank, and what it did meanwhile."""
    waited = f"the others wait {fmt.duration(row['wait_ns'] / steps)} for it, added up"
    waited += f" ({fmt.duration(row['exposed_ns'] / steps)} with nothing else to do)" if row["exposed_ns"] != row["wait_ns"] else ""
    did = _parts(row["buckets"], steps)
    meant = _parts({k: v for k, v in row["excess"].items() if v > 0}, steps)
    return waited + (f"; meanwhile it has {did}" if did else "") + (f"; more than its peers: {meant}" if meant else "")


def _parts(named: Mapping[str, int], steps: int) -> str:
    most = sorted(named.items(), key=lambda kv: -kv[1])[:PARTS]
    return ", ".join(f"{fmt.duration(ns / steps)} {name}" for name, ns in most if ns > 0)


def straggler_text(s: Straggler) -> str:
    """In what a rank is slower, by how much, and how sure that is."""
    low, high = s.interval_ns
    shared = f"; ranks {', '.join(map(str, s.ranks))} share the slow transfers" if len(s.ranks) > 1 else ""
    chance = "p < 0.0001" if s.p < 1e-4 else f"p = {s.p:.2g}"
    interval = f"[{fmt.duration(low)}, {fmt.duration(high)}]"
    return f"{s.kind}, {_KINDS[s.kind]}: {fmt.duration(s.excess_ns)} more than its peers {interval}, {chance}{shared}"


def clock_text(b: Breakdown) -> str:
    """How far the clocks of the ranks are apart, where they were compared by their collectives; '' where they share one."""
    told = [r for r in b.ranks if r.clock_source == "collectives" and r.clock_offset_ns is not None]
    unknown = sorted({r.rank for r in b.ranks if r.clock_source == "none"})
    parts = []
    if told:
        most = max(told, key=lambda r: abs(r.clock_offset_ns or 0))
        parts.append(f"rank {most.rank} is furthest off: {_offset(most)}, from the ends of collectives")
    if unknown and len(b.ranks) > 1:
        parts.append(f"nothing compares those of ranks {some(unknown)} with the others")
    return "; ".join(parts)


def _offset(r: RankBreakdown) -> str:
    sign = "-" if (r.clock_offset_ns or 0) < 0 else "+"
    error = f" +- {fmt.duration(r.clock_interval_ns)}" if r.clock_interval_ns is not None else ""
    drift = f", drift {r.clock_drift_ppm:+.2f} ppm" if r.clock_drift_ppm else ""
    return f"{sign}{fmt.duration(abs(r.clock_offset_ns or 0))}{error}{drift}"


# ---- the page ----


def peers_section(b: Breakdown) -> Html | None:
    """Who is waited for, stragglers and clocks as tables; None where there is nothing to compare."""
    late = late_ranks(b)
    if not late and not b.stragglers and not clock_text(b):
        return None
    steps = num_steps(b)
    return section(
        "peers",
        "Ranks against each other, per step",
        _late_table(late[:PAGE], steps),
        _straggler_table(b.stragglers[:PAGE])
        if b.stragglers or num_steps(b) < ENOUGH
        else tag("p", "No rank is slower than its peers by more than chance.", class_="note"),
        _clock_table([r for r in b.ranks if r.clock_source in ("collectives", "none")][:PAGE]),
    )


def _table(label: str, heads: Sequence[str], rows: Sequence[Sequence[object]], words: int) -> Html:
    """A table whose first and last `words` columns are text and whose others are numbers."""
    text = {0, *range(len(heads) - words, len(heads))}
    body = [tag("tr", *(tag("td", cell, class_=None if i in text else "num") for i, cell in enumerate(row))) for row in rows]
    head = tag("tr", *(tag("th", h, class_=None if i in text else "num") for i, h in enumerate(heads)))
    return scrolled(tag("table", tag("thead", head), tag("tbody", *body)), label)


def _late_table(rows: Sequence[Mapping[str, Any]], steps: int) -> Html | None:
    if not rows:
        return None
    heads = ("Waited for", "wait, added up", "in the open", "share", "meanwhile it has", "more than its peers")
    cells = [
        (
            f"rank {row['rank']}",
            fmt.duration(row["wait_ns"] / steps),
            fmt.duration(row["exposed_ns"] / steps),
            fmt.percent(row["share"]),
            _parts(row["buckets"], steps),
            _parts({k: v for k, v in row["excess"].items() if v > 0}, steps),
        )
        for row in rows
    ]
    return _table("Ranks that others wait for", heads, cells, 2)


def _straggler_table(rows: Sequence[Straggler]) -> Html | None:
    if not rows:
        return None
    heads = ("Slower than its peers", "by", "95 % interval", "chance", "in what")
    cells = [
        (
            f"rank {s.rank}",
            fmt.duration(s.excess_ns),
            " to ".join(map(fmt.duration, s.interval_ns)),
            f"{s.p:.1g}",
            f"{s.kind}: {_KINDS[s.kind]}" + (f" (ranks {', '.join(map(str, s.ranks))})" if len(s.ranks) > 1 else ""),
        )
        for s in rows
    ]
    return _table("Stragglers", heads, cells, 1)


def _clock_table(rows: Sequence[RankBreakdown]) -> Html | None:
    if not rows:
        return None
    cells = [(f"rank {r.rank}", _offset(r) if r.clock_source == "collectives" else fmt.DASH, r.clock_source) for r in rows]
    return _table("Clocks", ("Clock", "ahead of the lowest rank's", "compared by"), cells, 1)


def sizes_table(b: Breakdown) -> Html | None:
    """Collectives by size of message: transfer and bus bandwidth without the wait; None where nothing could be split."""
    rows = [r for r in b.summary.get("collectives") or () if r.get("transfer_ns")]
    if not rows:
        return None
    heads = ("Collective", "axis", "ranks", "message", "calls", "waiting", "transfer", "bus bandwidth", "p10 to p90")
    cells = []
    for r in sorted(rows, key=lambda r: -r["total_ns"])[:PAGE]:
        low, high = r["size_bytes"] or (None, None)
        rate = r.get("bus_bytes_s") or {}
        spread = " to ".join(fmt.metric(rate.get(q), "B/s") for q in ("p10", "p90")) if rate else fmt.DASH
        waiting = fmt.share(r["wait_ns"], r["total_ns"])
        cells.append(
            (
                r["collective"], r["axis"], r["num_ranks"] or fmt.DASH, f"{fmt.size(low)} to {fmt.size(high)}", f"{r['count']:,}", waiting,
                fmt.duration(r["transfer_ns"]["median"]), fmt.metric(rate.get("median"), "B/s"), spread,
            )
        )  # fmt: skip
    return _table("Collectives by size of message", heads, cells, 0)
