"""The frame of a page that compares: head, title, sections; one self-contained file, written at once or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from headway.report import output
from headway.report.markup import Html, tag
from headway.report.style import CSS
from headway.spec.errors import RunError

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # no script at all
_MORE: Final = """
td.fall { width: 34%; min-width: 110px; padding: .2rem 0; } td.fall svg { display: block; width: 100%; height: 14px; overflow: visible; }
.zero { stroke: var(--line); vector-effect: non-scaling-stroke; } .up { fill: #b0444f; } .down { fill: #12857d; } .level { fill: #8d949e; }
.faint { opacity: .4; } td.text { overflow-wrap: anywhere; } .plot circle { vector-effect: non-scaling-stroke; }
.ideal { fill: none; stroke: var(--soft); stroke-dasharray: 5 4; vector-effect: non-scaling-stroke; }
.dot { stroke-width: 7; stroke-linecap: round; fill: none; vector-effect: non-scaling-stroke; }
"""

LINKS: Final = 9  # of the bar at the top; a page with more sections has a table of them

Section = tuple[str, str, Html | None]  # id, name, markup


def document(title: str, facts: Mapping[str, str], sections: Sequence[Section], *, footer: str) -> str:
    """The page as text; sections that are None are left out."""
    shown = [(key, name, part) for key, name, part in sections if part is not None]
    nav = tag("nav", tag("div", *(tag("a", name, href=f"#{key}") for key, name, _ in shown[:LINKS])), aria_label="Sections")
    listed = tag("dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in facts.items() if v), class_="facts")
    body = tag(
        "body",
        tag("header", tag("div", tag("h1", title), listed), class_="top"),
        nav,
        tag("main", *(part for _, _, part in shown), tag("footer", tag("p", footer))),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", title),
        tag("style", Html(CSS + _MORE)),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def section(identity: str, title: str, *children: object) -> Html:
    """One card of the page."""
    return tag("section", tag("h2", title), *children, id=identity)


def scrolled(table: Html, label: str) -> Html:
    """A table that scrolls by itself where the window is narrow."""
    return tag("div", table, class_="scroll", tabindex="0", role="group", aria_label=label)


def table_of(heads: Sequence[str], rows: Sequence[Html], *, words: int = 1, total: Html | None = None) -> Html:
    """A table whose first `words` columns are text and the others numbers; an empty head is a column of bars."""
    head = tag("tr", *(tag("th", h, class_="num" if i >= words and h else None) for i, h in enumerate(heads)))
    return tag("table", tag("thead", head), tag("tbody", *rows), tag("tfoot", total) if total else None)


def write(path: str | os.PathLike[str], text: str) -> None:
    """Raises RunError if the file cannot be written."""
    target = output.target(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, target)
    except OSError as error:
        part.unlink(missing_ok=True)
        fix = "Name a file in a folder that exists and is writable."
        raise RunError(f"the page cannot be written: {error.strerror or error}", where=str(target), fix=fix) from error
