"""The frame of every page: head, title, sections; one self-contained file, written at once or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from headway.report import output
from headway.report.markup import Html, tag
from headway.report.style import CSS

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
SCRIPTS: Final = "; script-src 'unsafe-inline'"
LINKS: Final = 14  # of the bar at the top; a page with more sections has a table of them

Section = tuple[str, str, Html | None]  # id, name, markup


def document(
    title: str,
    sections: Sequence[Section],
    *,
    facts: Html | None = None,
    first: Html | None = None,
    last: Sequence[Html] = (),
    scripts: Sequence[Html] = (),
) -> str:
    """The page as text: heading and `facts`, a bar of links, `first`, the sections that are not None, `last`, `scripts`."""
    shown = [(key, name, part) for key, name, part in sections if part is not None]
    links = tag("div", *(tag("a", name, href=f"#{key}") for key, name, _ in shown[:LINKS]))
    body = tag(
        "body",
        tag("header", tag("div", tag("h1", title), facts), class_="top"),
        tag("nav", links, aria_label="Sections") if shown else None,
        tag("main", first, *(part for _, _, part in shown), *last),
        *scripts,
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY + (SCRIPTS if scripts else "")),
        tag("title", title),
        tag("style", Html(CSS)),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def facts_of(facts: Mapping[str, object]) -> Html:
    """What ran where, in one or two lines; what is not known is left out."""
    return tag("dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in facts.items() if v not in (None, "")), class_="facts")


def section(identity: str, title: str, *children: object, class_: str | None = None) -> Html:
    """One card of the page."""
    return tag("section", tag("h2", title), *children, class_=class_, id=identity)


def scrolled(table: Html, label: str) -> Html:
    """A table that scrolls by itself where the window is narrow."""
    return tag("div", table, class_="scroll", tabindex="0", role="group", aria_label=label)


def table_of(heads: Sequence[str], rows: Sequence[Html], *, words: int = 1, total: Html | None = None) -> Html:
    """A table whose first `words` columns are text and the others numbers; an empty head is a column of bars."""
    head = tag("tr", *(tag("th", h, class_="num" if i >= words and h else None) for i, h in enumerate(heads)))
    return tag("table", tag("thead", head), tag("tbody", *rows), tag("tfoot", total) if total else None)


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a page, all of it or nothing. Raises RunError if the file cannot be written."""
    with output.replaced(path, "page") as part:
        part.write_text(text, encoding="utf-8")
