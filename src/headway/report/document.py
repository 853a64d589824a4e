"""A page as one file: it opens without a network, on a phone as on a wall. Its content policy forbids all that is not inside."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from headway.report import output
from headway.report.markup import Html, tag
from headway.report.style import CSS
from headway.spec.errors import RunError

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
Section = tuple[str, str, Html | None]  # id, name in the navigation, content: a <section> of that id, or nothing


def document(title: str, sections: Sequence[Section], *, facts: Html | None = None, first: Html | None = None, last: Sequence[Html] = (),
             scripts: Sequence[Html] = ()) -> str:  # fmt: skip
    """The page as text: heading and `facts`, navigation, `first`, the sections that there are, `last` and `scripts`."""
    shown = [(key, name, section) for key, name, section in sections if section is not None]
    nav = tag("nav", tag("div", *(tag("a", name, href=f"#{key}") for key, name, _ in shown)), aria_label="Sections") if shown else None
    body = tag(
        "body",
        tag("header", tag("div", tag("h1", title), facts), class_="top"),
        nav,
        tag("main", first, *(section for _, _, section in shown), *last),
        *scripts,
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", title),
        tag("style", Html(CSS)),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a page at once or not at all. Raises RunError if the file cannot be written."""
    target = output.target(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RunError(
            f"the page cannot be written: {error.strerror or error}",
            where=str(target),
            fix="Name a file in a folder that exists and is writable.",
        ) from error


def table(label: str, heads: Sequence[str], rows: Sequence[Sequence[object]], *, words: int = 0) -> Html:
    """A table whose first and last `words` columns are text and whose others are numbers; it scrolls by itself where it is too wide."""

    def number(i: int) -> str | None:
        return None if i == 0 or i >= len(heads) - words else "num"

    head = tag("tr", *(tag("th", h, class_=number(i)) for i, h in enumerate(heads)))
    body = [tag("tr", *(tag("td", cell, class_=number(i)) for i, cell in enumerate(row))) for row in rows]
    content = tag("table", tag("thead", head), tag("tbody", *body))
    return tag("div", content, class_="scroll", tabindex="0", role="group", aria_label=label)
