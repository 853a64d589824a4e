"""HTML by construction: what is not `Html` is escaped, so a hostile name cannot become markup wherever it lands."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any, Final

_VOID: Final = frozenset({"img", "input", "meta", "br"})


class Html(str):
    """Text that is markup already. Only this module makes it, and the page for its own CSS and script."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. `class_` is class, `data_x` is data-x; None and False leave an attribute out, True writes it bare."""
    shown = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{join(children)}</{name}>")


def join(children: Iterable[object]) -> Html:
    """Children in order, escaped unless they are `Html`; None and False are left out."""
    return Html("".join(c if isinstance(c, Html) else _text(c) for c in children if c is not None and c is not False))


def breakable(name: str) -> Html:
    """A dotted name that may break after a dot or an underscore, and nowhere else if that is enough."""
    return Html(_text(name).replace(".", ".<wbr>").replace("_", "_<wbr>"))


def script_json(data: Any, *, identity: str) -> Html:
    """`data` in a script element that is not run. `<`, `>` and `&` are written as escapes, so no text can close the element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return tag("script", Html(text), type="application/json", id=identity)


def _text(value: object) -> str:
    """Escaped, and without the control characters that HTML forbids."""
    return html.escape("".join(c if c.isprintable() or c in "\n\t" else "�" for c in str(value)), quote=True)


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{_text(value)}"'
