"""Reports as text of a terminal: 80 columns, correct from 60; plain ASCII without colour when the console is not a terminal.

A table is laid out by hand, a line a row: columns of ranks, then bars, get what room the names and the numbers leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from rich.console import Console

from headway.report import format as fmt
from headway.report.beside import print_beside, sections
from headway.report.peers import print_peers
from headway.report.rows import (
    RANK_COLUMNS,
    Partition,
    Row,
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
from headway.report.sheet import Sheet, sheet_of
from headway.spec.breakdown import Breakdown
from headway.spec.finding import Finding

STYLES: Final = {"compute": "blue", "comm": "dark_orange", "copy": "magenta", "idle": "red"}
NUM_FINDINGS: Final = 5  # shown; the page and --json hold all
NUM_CLIFFS: Final = 5
_NUMBER: Final = 9  # width of a column of milliseconds
_SHARE: Final = 8
_NAME: Final = 24  # a name is never cut below this


def print_breakdown(b: Breakdown, console: Console) -> None:
    """Health, one summary line, buckets, phases, communication and findings of `b`, in the order in which one needs them."""
    sheet = sheet_of(console)
    _health(sheet, b)
    _summary(sheet, b)
    buckets, phases = partition(b, "buckets"), partition(b, "phases")
    if buckets.num_steps:
        _table(sheet, buckets, f"Where a step goes (mean of {_rows(buckets)})")
    if phases.num_steps and not buckets.num_steps:
        sheet.paragraph("No step was traced: buckets and findings need a trace (--observe.profile-steps auto, or headway profile RUN).")
    if phases.num_steps:
        _table(sheet, phases, f"By phase (mean of {_rows(phases)})")
    _communication(sheet, b)
    print_peers(sheet, b)
    _findings(sheet, b, buckets.mean_wall_ns or phases.mean_wall_ns)
    _cliffs(sheet, b)
    if b.memory:
        from headway.report.memory import print_memory  # few breakdowns have any, and its section is large

        print_memory(sheet, b)
    print_beside(sheet, b)


def _health(sheet: Sheet, b: Breakdown) -> None:
    if not b.health:
        return
    sheet.line("Health: what makes these numbers less certain", "bold yellow")
    for text in health_lines(b):
        sheet.paragraph(text, first="  ! ", style="yellow")
    sheet.line()


def _summary(sheet: Sheet, b: Breakdown) -> None:
    h = headline(b)
    if h.median_ns is None:
        if not b.memory and not sections(b):
            sheet.line("No steps: nothing to account for.", "bold")
        return
    steps = f"{h.num_steps} step{'s' * (h.num_steps != 1)}"
    profiled = f" ({h.num_profiled} profiled)" if h.num_profiled != h.num_steps else ""
    facts = [
        f"{h.num_ranks} rank{'s' * (h.num_ranks != 1)} x {steps}{profiled}",
        f"step {fmt.duration(h.median_ns)} median, {fmt.duration(h.p95_ns)} p95",
    ]
    facts += [f"MFU {fmt.percent(h.mfu)}"] * (h.mfu is not None) + [f"HFU {fmt.percent(h.hfu)} with recomputation"] * (h.hfu is not None)
    facts += [fmt.rate(h.samples_s, "samples")] * (h.samples_s is not None)
    for row in wrap("   ".join(facts).replace(" ", "\0").replace("\0\0\0", "   "), sheet.width):
        sheet.line(row.replace("\0", " "), "bold")
    if h.warmup:
        sheet.paragraph(warmup_text(h.warmup))


def _rows(part: Partition) -> str:
    steps = f"{part.num_steps} step{'s' * (part.num_steps != 1)}"
    return steps if len(part.ranks) == 1 else f"{steps} of {len(part.ranks)} ranks"


def _table(sheet: Sheet, part: Partition, title: str) -> None:
    """Name, ms, share, then a column a rank (or least, median, largest), then a bar in what is left."""
    names = [("  " * r.depth) + r.label for r in part.rows]
    room = sheet.width - _NUMBER - _SHARE  # for names, ranks and bars
    heads, columns = _rank_columns(part, room - _NAME)
    room -= _NUMBER * len(heads)
    name_width = min(max(_NAME, *map(len, names)), room)
    bar_width = min(room - name_width - 2, 30)
    if bar_width < (6 if sheet.fancy else 12):  # too coarse to say anything
        bar_width = 0
    decimals = fmt.places(max([part.mean_wall_ns, *part.rank_wall_ns]))

    def line(name: str, mean_ns: float, ranks: Sequence[float], style: str, bar: bool = True, withheld: bool = False) -> None:
        cells = [f"{fmt.milliseconds(mean_ns, decimals):>{_NUMBER}}", f"{fmt.share(mean_ns, part.mean_wall_ns):>{_SHARE}}"]
        cells += [f"{fmt.milliseconds(ns, decimals):>{_NUMBER}}" for ns in ranks]
        drawn = _bar(mean_ns, part.mean_wall_ns, bar_width, sheet.fancy) if bar and bar_width and not withheld else ""
        cells = [f"{'-':>{_NUMBER}}", f"{'-':>{_SHARE}}", *(f"{'-':>{_NUMBER}}" for _ in ranks), "  not shown"] if withheld else cells
        sheet.line(f"{_cut(name, name_width, sheet.fancy):<{name_width}}{''.join(cells)}  {drawn}".rstrip(), style)

    sheet.line()
    sheet.line(title, "bold")
    sheet.line(f"{'':<{name_width}}{'ms':>{_NUMBER}}{'share':>{_SHARE}}" + "".join(f"{h:>{_NUMBER}}" for h in heads), "dim")
    for i, (row, name) in enumerate(zip(part.rows, names, strict=True)):
        line(name, part.mean_ns(row), [c[i] for c in columns], _style(part, row), withheld=row.withheld)
    line("total", part.mean_wall_ns, [c[-1] for c in columns], "bold", bar=False)


def _rank_columns(part: Partition, room: int) -> tuple[list[str], list[list[float]]]:
    """Heads and columns (a value a row, then the wall) for the ranks, as detailed as there is room for."""
    if len(part.ranks) <= 1:
        return [], []
    values = [r.rank_ns for r in part.rows] + [part.rank_wall_ns]
    if len(part.ranks) <= RANK_COLUMNS and room >= len(part.ranks) * _NUMBER and max(map(len, part.ranks)) < _NUMBER:
        return list(part.ranks), [list(c) for c in zip(*values, strict=True)]
    ordered = [sorted(v) for v in values]
    spread = {"least": 0.0, "median": 0.5, "largest": 1.0}
    if room < 3 * _NUMBER:
        spread = {"least": 0.0, "largest": 1.0} if room >= 2 * _NUMBER else {}
    return list(spread), [[o[round(q * (len(o) - 1))] for o in ordered] for q in spread.values()]


def _style(part: Partition, row: Row) -> str:
    if part.kind != "buckets":
        return ""
    colour = STYLES.get(head_of(row.name), "")
    return f"bold {colour}".strip() if row.depth == 0 else colour


def _cut(name: str, width: int, fancy: bool) -> str:
    """`name` in `width` columns: the middle goes, since the head and the last part tell names apart."""
    if len(name) <= width:
        return name
    mark = "…" if fancy else ".."
    keep = width - len(mark)
    head = keep - keep // 2
    return name[:head] + mark + name[len(name) - keep // 2 :]


def _bar(part: float, whole: float, width: int, fancy: bool) -> str:
    """A bar of `part` of `whole`: eighths of a block on a terminal, whole marks elsewhere."""
    share = part / whole if whole > 0 else 0.0
    if not fancy:
        return "#" * round(share * width)
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _communication(sheet: Sheet, b: Breakdown) -> None:
    under, rows = hidden(b), collectives(b)
    if not under and not rows:
        return
    sheet.line()
    sheet.line("Communication, per step", "bold")
    for axis, ns in under.items():
        sheet.line(f"  {axis}: {fmt.duration(ns)} hidden under compute")
    for c in rows:
        parts = [f"{fmt.duration(c.busy_ns)} busy", f"{c.count:,.3g} calls"]
        parts += [fmt.size(c.num_bytes)] * (c.num_bytes is not None)
        parts += [f"{fmt.metric(c.bus_bytes_s, 'B/s')} on the bus"] * (c.bus_bytes_s is not None)
        sheet.paragraph(", ".join(parts), first=f"  {c.name} {c.axis}: ", rest="    ")


def _findings(sheet: Sheet, b: Breakdown, wall_ns: float) -> None:
    if not b.findings:
        return
    found = ranked(b.findings)
    sheet.line()
    sheet.line("Findings: time of a step that could be won back", "bold")
    for i, f in enumerate(found[:NUM_FINDINGS], 1):
        sheet.paragraph(f.what, first=f"{i:>2}. ", style="bold")
        won = f"{fmt.duration(f.recoverable_ns)} ({fmt.share(f.recoverable_ns, wall_ns)}){_where(f)}, "
        sheet.paragraph(f"{won}confidence {100 * f.confidence:.0f} %", first="    ")
        if f.action:
            sheet.paragraph(f.action, first="    do: ")
        if f.patch:
            flags = " ".join(fmt.flags(f.patch))
            sheet.paragraph(f"{flags}   (measure it: headway try RUN --finding {i})", first="    try: ")
    if len(found) > NUM_FINDINGS:
        sheet.line(f"    and {len(found) - NUM_FINDINGS} smaller; --html and --json show all", "dim")


def _cliffs(sheet: Sheet, b: Breakdown) -> None:
    if not b.cliffs:
        return
    sheet.line()
    sheet.line("Cliffs: where steps became slower", "bold")
    for c in b.cliffs[:NUM_CLIFFS]:
        sheet.paragraph(f"{c.what} (rank {c.rank}; {fmt.duration(c.lost_ns)} in all)", first="  - ")
        sheet.paragraph("; ".join(c.evidence), first="    ")
        sheet.paragraph(c.action, first="    do: ")
    if len(b.cliffs) > NUM_CLIFFS:
        sheet.line(f"    and {len(b.cliffs) - NUM_CLIFFS} smaller; --json shows all", "dim")


def _where(f: Finding) -> str:
    """Where the time lies that a finding wins: its bucket, and what others wait for it where that is more."""
    own = beyond(f)
    return f" of {f.bucket}" if own is None else f": {fmt.duration(own)} of {f.bucket} and what waits for it"
