"""Lines on a console: cut or filled to its width, plain when it is not a terminal.

No boxes: a log file, a pull request or a chat shows what the terminal showed.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

from rich.console import Console
from rich.text import Text


@dataclass(frozen=True)
class Sheet:
    """A console and what it can show."""

    console: Console
    width: int
    fancy: bool  # a terminal: colours and block characters

    def line(self, text: str = "", style: str = "") -> None:
        """One line, cut at the width, never wrapped."""
        shown = Text(clean(text), style=style if self.fancy else "")
        shown.truncate(self.width, overflow="ellipsis" if self.fancy else "crop")
        self.console.print(shown, soft_wrap=True, highlight=False)

    def paragraph(self, text: str, *, first: str = "", rest: str | None = None, style: str = "") -> None:
        """`text` filled to the width; `first` opens the first line, `rest` the others (as wide as `first` by default)."""
        indent = " " * len(first) if rest is None else rest
        for row in wrap(clean(text), self.width, initial_indent=first, subsequent_indent=indent) or [first]:
            self.line(row, style)


def sheet_of(console: Console) -> Sheet:
    """The sheet of a console: at least 40 columns, at most 120."""
    return Sheet(console, max(40, min(console.width, 120)), console.is_terminal and console.encoding.lower().startswith("utf"))


def clean(text: str) -> str:
    """`text` without control characters: a name from a trace cannot move the cursor or colour a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
