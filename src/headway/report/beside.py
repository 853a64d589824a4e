"""What inputs that are no timelines say, as lines: of a terminal, and of a section of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from headway.report import format as fmt
from headway.report.document import section
from headway.report.markup import Html, breakable, tag
from headway.report.sheet import Sheet
from headway.spec.breakdown import Breakdown
from headway.spec.counters import KernelCounters
from headway.spec.flight import GroupState, LastCollective
from headway.spec.nccl import NcclLinks

_SHOWN: Final = 12  # lines of a section in a terminal
_RANKS: Final = 8  # named in a line


def sections(b: Breakdown) -> list[tuple[str, list[str]]]:
    """(title, lines) of what `b` carries."""
    found = [
        ("Process groups, by flight recorders", [line for state in b.flight for line in flight_lines(state)]),
        ("Communicators, by NCCL's log", [nccl_line(links) for links in b.nccl]),
        ("Kernels, by Nsight Compute (clocks locked)", counter_lines(b.counters)),
    ]
    return [(title, lines) for title, lines in found if lines]


def print_beside(sheet: Sheet, b: Breakdown) -> None:
    """All sections on a terminal."""
    for title, lines in sections(b):
        sheet.line()
        sheet.line(title, "bold")
        for text in lines[:_SHOWN]:
            sheet.paragraph(text, first="  ", rest="    ")
        if len(lines) > _SHOWN:
            sheet.line(f"  and {len(lines) - _SHOWN} lines more (--json has all)")


def beside_section(b: Breakdown) -> Html | None:
    """All sections of the page; None if there is nothing."""
    found = sections(b)
    if not found:
        return None
    blocks = [tag("div", tag("h3", title), tag("ul", *(tag("li", breakable(line)) for line in lines))) for title, lines in found]
    return section("beside", "Beside the timeline", *blocks)


def nccl_line(c: NcclLinks) -> str:
    """One communicator and what it runs over."""
    parts = [
        f"{c.identity}: {c.size if c.size is not None else '?'} ranks, {len(c.ranks)} logged from {c.hosts} host{'s' * (c.hosts != 1)}"
    ]
    if c.links:
        parts.append("connections " + ", ".join(f"{name} {count}" for name, count in c.links.items()))
    if c.channels:
        parts.append(f"{'/'.join(map(str, c.channels))} channels")
    if c.init_ns is not None:
        parts.append(f"started in {fmt.duration(c.init_ns)}")
    if c.incomplete:
        parts.append(f"start not finished on rank {_ranks(c.incomplete)}")
    if c.operations:
        parts.append("calls " + ", ".join(f"{name} {count}" for name, count in sorted(c.operations.items())))
    if len(set(c.last_operations.values())) > 1:
        least = min(c.last_operations.values())
        behind = [rank for rank, last in c.last_operations.items() if last == least]
        parts.append(f"last opCount {least} on rank {_ranks(behind)}, {max(c.last_operations.values())} on others")
    return "; ".join(parts)


def counter_lines(counters: Sequence[KernelCounters]) -> list[str]:
    """A line for each name: how many launches, and the shares of the peak that the longest reached."""
    groups: dict[str, list[KernelCounters]] = {}
    for c in counters:
        groups.setdefault(c.name, []).append(c)
    lines = []
    for name, mine in sorted(groups.items(), key=lambda kv: -sum(c.duration_ns or 0 for c in kv[1])):
        longest = max(mine, key=lambda c: c.duration_ns or 0)
        shares = (
            ("DRAM", longest.dram_share),
            ("SMs", longest.compute_share),
            ("tensor", longest.tensor_share),
            ("occupancy", longest.occupancy),
        )
        said = [f"{label} {fmt.percent(share)}" for label, share in shares if share is not None]
        time = [fmt.duration(longest.duration_ns)] if longest.duration_ns is not None else []
        lines.append(f"{name[:80]}: {len(mine)} launch{'es' * (len(mine) != 1)}, the longest " + ", ".join([*time, *said]))
    return lines


def flight_lines(state: GroupState) -> list[str]:
    """Where one group stands."""
    name = f"{state.text or 'group'} {state.group}" + (f" of ranks {_ranks(state.ranks)}" if state.ranks else "")
    lines = [f"{name}: {_furthest(state.last)}"] if state.last else []
    if state.behind:
        behind = [one for one in state.last if one.rank in state.behind]
        lines.append(f"{name}: not entered by {', '.join(_last(one) for one in behind[:_RANKS])}")
    if state.stuck:
        stuck = [one for one in state.last if one.rank in state.stuck]
        ranks = ", ".join(f"rank {one.rank} (#{one.oldest})" for one in stuck[:_RANKS])
        lines.append(f"{name}: ended on other ranks, not on {ranks}")
    if state.silent:
        lines.append(f"{name}: no collective of it recorded by rank {_ranks(state.silent)}")
    if state.absent:
        lines.append(f"{name}: no dump of rank {_ranks(state.absent)}")
    for row in state.differ:
        values = "; ".join(f"{value or 'none'} on rank {_ranks(ranks)}" for value, ranks in row["values"].items())
        lines.append(f"{name}: #{row['number']} differs in {row['what']}: {values}")
    if state.pending:
        waits = ", ".join(f"{op} on rank {_ranks(ranks)}" for op, ranks in list(state.pending.items())[:_RANKS])
        lines.append(f"{name}: messages that are not over (numbers are places in the group): {waits}")
    return lines


def _last(one: LastCollective) -> str:
    ended = f", completed #{one.completed}" if one.completed is not None else ""
    return f"rank {one.rank} (last {one.name} #{one.number}{ended})"


def _furthest(last: Sequence[LastCollective]) -> str:
    """The furthest collective, how many ranks are in it, and their states."""
    number = max(one.number for one in last)
    mine = [one for one in last if one.number == number]
    names = "/".join(sorted({one.name for one in mine}))
    states = Counter(f"{one.state or 'unknown'}{' (retired)' if one.retired else ''}" for one in mine)
    return f"{names} #{number} entered by {len(mine)} of {len(last)} ranks that recorded any: " + ", ".join(
        f"{n} {state}" for state, n in sorted(states.items())
    )


def _ranks(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:_RANKS])) + (f" and {len(ranks) - _RANKS} more" if len(ranks) > _RANKS else "")
