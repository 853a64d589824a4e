"""Finds the command, runs it, and turns errors into one paragraph and an exit code.

Commands live beside this file by what they are for, one function a command. Each imports its room inside, so that `headway --help`
answers at once and needs no torch.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from headway.cli import analysis, compare, model, training
from headway.cli.options import Commands
from headway.spec.errors import HeadwayError, SpecError
from headway.spec.outside import from_outside

COMMANDS: Commands = {**training.COMMANDS, **model.COMMANDS, **analysis.COMMANDS, **compare.COMMANDS}


class _Parser(argparse.ArgumentParser):
    """Errors in our own words, with the nearest name."""

    def error(self, message: str) -> NoReturn:
        raise SpecError(message, where=self.prog, fix=f"See `{self.prog} --help`.")


def _parser() -> _Parser:
    about = "Trains diffusion transformers and accounts for every millisecond of every step."
    parser = _Parser(prog="headway", description=about, allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for name, (function, example, options) in COMMANDS.items():
        text = (function.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example: {example}",
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in ("train", "check"):
            sub.usage = f"headway {name} [-h] [options] RECIPE [--field value ...]"
        for flag, how in options:
            sub.add_argument(flag, **how)
        sub.set_defaults(function=function)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0, 2 for what the user can put right, 130 for Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words)
        sys.stdout.flush()  # a reader that is gone is met here, not when Python ends
        return code
    except HeadwayError as error:
        return _say(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if (known := from_outside(error)) is None:
            raise
        return _say(known)


def _say(error: HeadwayError) -> int:
    """One paragraph, by the process that people look at; the exit code."""
    from headway.runtime.launch import leave_words

    same = error.relayed or (isinstance(error, SpecError) and os.environ.get("LOCAL_RANK", "0") != "0")  # settings are those of all ranks
    if not leave_words(error) and not same:
        print(f"Error: {error}", file=sys.stderr)
    return 2


def _run(words: list[str]) -> int:
    parser = _parser()
    first = next((w for w in words if not w.startswith("-")), None)
    if first is not None and first not in COMMANDS:
        close = difflib.get_close_matches(first, list(COMMANDS), n=1)
        hint = f"Did you mean `headway {close[0]}`? " if close else ""
        raise SpecError(f"no command '{first}'", fix=f"{hint}Commands: {', '.join(COMMANDS)}.")
    args, rest = parser.parse_known_args(words)
    if args.version:
        from headway import __version__

        print(f"headway {__version__}")
        return 0
    if args.command is None:
        parser.print_help()
        return 0
    if rest and args.command not in ("train", "check"):
        known = [flag for flag, _ in COMMANDS[args.command][2] if flag.startswith("--")]
        close = difflib.get_close_matches(rest[0], known, n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        raise SpecError(f"unknown option {rest[0]}", where=f"headway {args.command}", fix=f"{hint}See `headway {args.command} --help`.")
    args.argv = words
    function: Callable[[argparse.Namespace, Sequence[str]], int] = args.function
    return function(args, rest)
