"""What inputs that are no timelines say, as lines: of a terminal, and of a section of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from headway.report.markup import Html, tag
from headway.report.sheet import Sheet
from headway.spec.breakdown import Breakdown
from headway.spec.flight import GroupState, LastCollective

_SHOWN: Final = 12  # lines of a section in a terminal
_RANKS: Final = 8  # named in a line


def sections(b: Breakdown) -> list[tuple[str, list[str]]]:
    """(title, lines) of what `b` carries."""
    found = [("Process groups, by flight recorders", [line for state in b.flight for line in flight_lines(state)])]
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
    blocks = [tag("div", tag("h3", title), tag("ul", *(tag("li", line) for line in lines))) for title, lines in found]
    return tag("section", tag("h2", "Beside the timeline"), *blocks, id="beside")


def flight_lines(state: GroupState) -> list[str]:
    """Where one group stands."""
    name = f"{state.text or 'group'} {state.group}" + (f" of ranks {_ranks(state.ranks)}" if state.ranks else "")
    lines = [f"{name}: {_furthest(state.last)}"] if state.last else []
    if state.behind:
        behind = [one for one in state.last if one.rank in state.behind]
        lines.append(f"{name}: not entered by {', '.join(f'rank {one.rank} (last {one.name} #{one.number})' for one in behind[:_RANKS])}")
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
