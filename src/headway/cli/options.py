"""Kinds of values, options that several commands share, and how answers are printed."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Option = tuple[str, dict[str, Any]]
Command = tuple[Callable[[argparse.Namespace, Sequence[str]], int], str, list[Option]]  # function, example with its time, options
Commands = Mapping[str, Command]


# ---- kinds of values ----


def count(text: str) -> int:
    """Kind of value: a whole number from 1 up."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got '{text}'")
    return int(text)


def whole(text: str) -> int:
    """Kind of value: a whole number from 0 up."""
    if not text.isdecimal() or int(text) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 up, got '{text}'")
    return int(text)


def number(text: str) -> float:
    """Kind of value: a finite number."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"expected a number, got '{text}'")
    return number


# ---- shared options ----

RUN: Final[Option] = ("run", {"metavar": "RUN", "help": "a run's name (in ./runs) or its folder"})
JSON: Final[Option] = ("--json", {"action": "store_true", "help": "print JSON for programs"})
TIMEOUT: Final[Option] = ("--timeout", {"type": number, "default": 120.0, "metavar": "S", "help": "seconds to wait (120)"})


# ---- answers ----


def console(*, stderr: bool = False) -> Any:
    """A console without automatic colours of numbers; a reader that has seen enough ends the command, and that is no error."""
    from rich.console import Console

    class Answers(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Answers(highlight=False, stderr=stderr)


def print_json(data: Any) -> int:
    """Print `data` as one line of JSON; the exit code 0."""
    from headway.spec.codec import encode

    print(json.dumps(encode(data)))
    return 0


def print_notes(notes: Sequence[str]) -> None:
    """Print notes to stderr."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
