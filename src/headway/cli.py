"""The command line: one function a command. Each imports its room inside, so that `headway --help` answers at once and needs no torch."""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from headway.spec.errors import HeadwayError, RunError, SpecError, joined


def recipes(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """List the recipes: what each trains, on what, and the command."""
    from headway.recipes.registry import about
    from headway.report.terminal import print_recipes

    texts = about()
    if args.json:
        return _json({"schema": "headway.recipes/1", "recipes": texts})
    print_recipes(texts, _console())
    return 0


def check(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Find every problem of a recipe at once, without torch."""
    from headway.report.terminal import print_problems
    from headway.spec.codec import apply_overrides, encode

    spec, problems = _resolve(args.recipe), []
    try:
        spec = apply_overrides(spec, rest)
    except SpecError as error:
        problems.append(str(error))
    problems += _problems(spec)
    if args.json:
        _json({"schema": "headway.check/1", "problems": problems, "spec": encode(spec)})
    else:
        print_problems(problems, _console(), what=args.recipe)
    return 2 if problems else 0


def train(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Train a recipe, or resume its run: the same command again goes on where it stopped."""
    import dataclasses

    from headway.report.terminal import print_fields
    from headway.runtime import folder, launch
    from headway.spec.codec import apply_overrides
    from headway.spec.run import describe

    spec = _resolve(args.recipe)
    if args.fields:
        print_fields(describe(spec), _console())
        return 0
    spec = apply_overrides(spec, rest)
    path = folder.place(args.run or spec.name)
    spec = dataclasses.replace(spec, name=path.name)
    place = launch.standing(os.environ)
    if problems := _problems(spec):
        raise SpecError(joined(problems))
    launch.match_world(spec.mesh, place)
    if place is None and spec.mesh.world > 1:
        if not args.fresh:
            folder.compatible(path, spec)
        folder.make_folder(path.parent)
        return launch.start_local(args.argv, spec.mesh.world)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # before torch is loaded: its profiler writes notes for tracers of the kernel to stderr
    from headway.train import run

    if place is not None:
        launch.adopt_slurm(os.environ, place)
    launch.follow_parent()
    return run.train(spec, path, place or launch.Place(), fresh=args.fresh)


def status(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Say where a run stands."""
    from headway.report.terminal import print_status
    from headway.runtime import folder

    data = folder.summary(folder.open_run(args.run))
    if args.json:
        return _json({"schema": "headway.status/1", **data})
    print_status(data, _console())
    return 0


def profile(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Trace the next steps of a live run on every rank."""
    from headway.runtime import folder

    run = folder.open_run(args.run)
    before = set((run.path / "traces").glob("*.json.gz"))
    folder.require_live(run.path)
    folder.ask(run.path, "profile", steps=args.steps)
    world = run.info.get("world", 1)
    files = folder.wait_for(lambda: folder.new_traces(run.path, before, world), args.timeout, lambda: folder.ended(run.path))
    if not files:
        raise RunError(
            f"no trace came within {args.timeout:.0f} s",
            where=f"run {run.path}",
            fix="Give it longer with --timeout; see `headway status`.",
        )
    print(f"{len(files)} traces in {run.path / 'traces'}; headway explain {run.path}")
    return 0


def stop(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """End a live run cleanly, with a checkpoint."""
    from headway.runtime import folder

    run = folder.open_run(args.run)
    folder.require_live(run.path)
    folder.ask(run.path, "stop")
    if not folder.wait_for(lambda: folder.ended(run.path), args.timeout):
        raise RunError(
            f"it has not stopped within {args.timeout:.0f} s",
            where=f"run {run.path}",
            fix="It stops at its next log line; wait, or look with `headway status`.",
        )
    print(f"{run.path}: stopped at {folder.status(run.path).get('samples', 0):,} samples; the same train command goes on")
    return 0


def sample(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Draw samples from the EMA weights of a run as a PNG grid, a row a class."""
    from headway.runtime import folder
    from headway.runtime.load import load_network
    from headway.runtime.sample import conditions, grid_png, write_bytes
    from headway.runtime.sample import sample as draw

    run = folder.open_run(args.run)
    condition, num = conditions(run, classes=args.classes, columns=args.columns, text=Path(args.text) if args.text else None)
    loaded = load_network(run, ema=not args.student)
    _notes(loaded.notes)
    images = draw(run, loaded, condition, num, seed=args.seed, steps=args.steps, solver=args.solver, guidance=args.guidance)
    out = Path(args.out) if args.out else run.path / "samples.png"
    write_bytes(out, grid_png(images, args.columns, scale=args.scale or max(1, 64 // images.shape[-1])))
    print(f"{out}: {num} samples, {loaded.weights} weights at {loaded.samples:,} samples, seed {args.seed}")
    return 0


def evaluate(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Judge the samples of a run: does a classifier fitted on the real data see the asked class? Loss by timestep."""
    from headway.evaluate.judge import judge
    from headway.runtime import folder

    run = folder.open_run(args.run)
    result = judge(run, num=args.num, seed=args.seed, steps=args.steps, guidance=args.guidance)
    folder.write_json(run.path / "evaluate.json", result)
    if args.json:
        return _json(result)
    print(result["text"])
    return 0


def explain(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Say where the time of every step went, for a run folder or Kineto traces of any framework."""
    from headway.runtime import folder
    from headway.spec.breakdown import to_json
    from headway.trace.explain import explain as measure

    paths = [p if Path(p).exists() else str(folder.place(p)) for p in args.paths]
    result = measure(paths)
    if args.html:
        _page(Path(args.html), result, paths)
    if args.json:
        return _json(to_json(result))
    from headway.report.terminal import print_breakdown

    print_breakdown(result, _console())
    if args.html:
        print(f"\npage: {args.html}")
    return 0


# ---- kinds of values ----


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got '{text}'")
    return int(text)


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 up, got '{text}'")
    return int(text)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"expected a number, got '{text}'")
    return number


# ---- the table of commands ----

_RUN = ("run", {"metavar": "RUN", "help": "a run's name (in ./runs) or its folder"})
_JSON = ("--json", {"action": "store_true", "help": "print JSON for programs"})
_TIMEOUT = ("--timeout", {"type": _number, "default": 120.0, "metavar": "S", "help": "seconds to wait (120)"})
Option = tuple[str, dict[str, Any]]

COMMANDS: dict[str, tuple[Callable[[argparse.Namespace, Sequence[str]], int], str, list[Option]]] = {
    "recipes": (recipes, "headway recipes", [_JSON]),
    "check": (
        check,
        "headway check digits --mesh.dp-shard 2        (0.2 s)",
        [("recipe", {"metavar": "RECIPE", "help": "name, path.py:fn or run.json"}), _JSON],
    ),
    "train": (
        train,
        "headway train digits --mesh.dp-shard 2 --optim.lr 1e-3        (3 minutes on 2 cores)",
        [
            ("recipe", {"metavar": "RECIPE", "help": "name, path.py:fn, or run.json of an earlier run"}),
            ("--run", {"metavar": "NAME", "help": "name or folder of the run (default: the recipe's name)"}),
            ("--fresh", {"action": "store_true", "help": "start over; an old run of that name is set aside as NAME.1"}),
            ("--fields", {"action": "store_true", "help": "list every field of the recipe with its value and meaning"}),
        ],
    ),
    "status": (status, "headway status digits", [_RUN, _JSON]),
    "profile": (
        profile,
        "headway profile digits --steps 3        (until the next log line)",
        [_RUN, ("--steps", {"type": _count, "default": 3, "metavar": "N", "help": "steps to trace (3)"}), _TIMEOUT],
    ),
    "stop": (stop, "headway stop digits        (until the next log line)", [_RUN, _TIMEOUT]),
    "sample": (
        sample,
        "headway sample digits --columns 10 --guidance 2        (10 s)",
        [
            _RUN,
            ("--out", {"metavar": "FILE", "help": "PNG to write (RUN/samples.png)"}),
            ("--text", {"metavar": "FILE", "help": "text vectors [n, text_dim] as .npy, a row each"}),
            ("--classes", {"default": "", "metavar": "A,B", "help": "classes to draw (all)"}),
            ("--columns", {"type": _count, "default": 10, "metavar": "N", "help": "samples a class (10)"}),
            ("--seed", {"type": _whole, "default": 0, "metavar": "N", "help": "seed (0)"}),
            ("--steps", {"type": _count, "default": 30, "metavar": "N", "help": "solver steps (30)"}),
            ("--solver", {"choices": ("euler", "heun"), "default": "heun", "help": "solver (heun)"}),
            ("--guidance", {"type": _number, "default": 2.0, "metavar": "W", "help": "classifier-free guidance; 1: none (2)"}),
            ("--scale", {"type": _whole, "default": 0, "metavar": "N", "help": "screen pixels a pixel (to about 64 a sample)"}),
            ("--student", {"action": "store_true", "help": "the trained weights instead of their average"}),
        ],
    ),
    "evaluate": (
        evaluate,
        "headway evaluate digits        (20 s)",
        [
            _RUN,
            ("--num", {"type": _count, "default": 200, "metavar": "N", "help": "samples to judge (200)"}),
            ("--seed", {"type": _whole, "default": 0, "metavar": "N", "help": "seed (0)"}),
            ("--steps", {"type": _count, "default": 30, "metavar": "N", "help": "solver steps (30)"}),
            ("--guidance", {"type": _number, "default": 2.0, "metavar": "W", "help": "classifier-free guidance (2)"}),
            _JSON,
        ],
    ),
    "explain": (
        explain,
        "headway explain runs/digits --html report.html        (1 s)",
        [
            ("paths", {"metavar": "PATH", "nargs": "+", "help": "run, Kineto trace (.json, .json.gz), or a folder of traces"}),
            ("--html", {"metavar": "FILE", "help": "write one self-contained page"}),
            _JSON,
        ],
    ),
}


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
        return _run(words)
    except HeadwayError as error:
        from headway.runtime.launch import leave_words

        if not leave_words(error):
            print(f"Error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        from headway.spec.extras import missing_extra

        if (said := missing_extra(error)) is None:
            raise
        print(f"Error: {said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


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


# ---- small parts ----


def _resolve(name: str) -> Any:
    from headway.recipes.registry import resolve

    return resolve(name)


def _problems(spec: Any) -> list[str]:
    from headway.data.probe import problems
    from headway.spec.run import check as rules

    return rules(spec) + problems(spec.data)


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False)


def _json(data: Any) -> int:
    from headway.spec.codec import encode

    print(json.dumps(encode(data)))
    return 0


def _notes(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def _page(out: Path, result: Any, paths: Sequence[str]) -> None:
    """The HTML page; of a run folder with its log, settings and samples."""
    from headway.report.page import write_page
    from headway.runtime import folder

    path = next((Path(p) for p in paths if (Path(p) / "run.json").is_file()), None)
    samples = path / "samples.png" if path else None
    write_page(
        out,
        breakdown=result,
        run=folder.read_json(path / "run.json") if path else None,
        logs=[e for e in folder.read_events(path) if e.get("kind") == "log"] if path else [],
        samples_png=samples.read_bytes() if samples and samples.is_file() else None,
        title=path.name if path else ", ".join(Path(p).name for p in paths),
    )
