"""Commands that say where time went. None needs torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.cli.options import JSON, RUN, Commands, console, count, print_json, whole
from headway.cli.outputs import claim


def explain(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Say where time and memory of every step went, for a run folder or Kineto traces of any framework."""
    from headway.spec.breakdown import to_json
    from headway.trace.explain import account
    from headway.trace.floor.ceiling import ceilings_file
    from headway.trace.ranks.axes import parse_mesh

    paths = [found(p) for p in args.paths]
    claim(args, [*paths, args.ceilings])
    ceilings = ceilings_file(Path(args.ceilings)) if args.ceilings else None
    mesh = parse_mesh(args.mesh) if args.mesh else None
    answer = account(paths, engine=args.engine, workers=args.workers, watch=watch, ceilings=ceilings, mesh=mesh)
    result = answer.breakdown
    timelines = answer.timelines() if args.html or args.perfetto else ()
    if args.html:
        _page(Path(args.html), result, timelines, paths)
    if args.perfetto:
        from headway.report.perfetto import write_perfetto

        write_perfetto(args.perfetto, timelines)
    if args.json:
        return print_json(to_json(result))
    from headway.report.terminal import print_breakdown

    print_breakdown(result, console())
    if args.html:
        print(f"\npage: {args.html}")
    if args.perfetto:
        print(f"trace: {args.perfetto}, to open in ui.perfetto.dev")
    return 0


def attempt(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Run a finding's patch as a paired A/B: what it gains against what was predicted."""
    from headway.report.trial import print_trial
    from headway.runtime import folder
    from headway.spec.trial import SCHEMA
    from headway.study import trial

    run = folder.open_run(args.run)
    tell = (lambda text: None) if args.json else (lambda text: print(text, file=sys.stderr))
    done, _ = trial.attempt(run, args.finding, pairs=args.pairs, steps=args.steps, tell=tell)
    if args.json:
        return print_json({"schema": SCHEMA, **trial.to_json(done)})
    print_trial(done, console())
    return 0


# ---- parts ----


def _pairs(text: str) -> int:
    if (number := count(text)) < 2:
        raise argparse.ArgumentTypeError(f"an interval needs 2 pairs or more, got {number}")
    return number


def found(name: str) -> str:
    """`name` itself if it is a path or an address, else the folder of the run called so."""
    if "://" in name or os.path.lexists(name):
        return name
    from headway.runtime import folder

    return str(folder.place(name))


def watch(files: Sequence[Path]) -> Any:
    """A bar while files are read."""
    from rich.console import Console

    from headway.report.reading import reading

    return reading(files, Console(stderr=True))


def _page(out: Path, result: Any, timelines: Sequence[Any], paths: Sequence[str]) -> None:
    """The HTML page; of a run folder with its log, settings and samples."""
    from headway.report.page import write_page
    from headway.runtime import folder

    path = next((Path(p) for p in paths if "://" not in p and (Path(p) / "run.json").is_file()), None)
    samples = path / "samples.png" if path else None
    write_page(
        out,
        breakdown=result,
        timelines=timelines,
        run=folder.read_json(path / "run.json") if path else None,
        logs=[e for e in folder.read_events(path) if e.get("kind") == "log"] if path else [],
        samples_png=samples.read_bytes() if samples and samples.is_file() else None,
        title=path.name if path else ", ".join(Path(p).name for p in paths),
    )


COMMANDS: Commands = {
    "explain": (
        explain,
        "headway explain runs/digits --html report.html        (1 s)",
        [
            ("paths", {"metavar": "PATH", "nargs": "+", "help": "run, Kineto trace, memory snapshot (.pickle), or a folder of them"}),
            ("--html", {"metavar": "FILE", "help": "write one self-contained page"}),
            ("--perfetto", {"metavar": "FILE", "help": "write a trace with our steps, buckets and phases for ui.perfetto.dev"}),
            ("--ceilings", {"metavar": "FILE", "help": "JSON with what the device reaches: flops by format, memory_bytes_s"}),
            ("--mesh", {"metavar": "AXES", "help": "axes of the ranks, outermost first, where traces do not name them: dp_shard=4,tp=2"}),
            ("--workers", {"type": whole, "default": 0, "metavar": "N", "help": "processes that read files (0: as many as pay off)"}),
            ("--engine", {"choices": ("local", "ray"), "default": "local", "help": "read on this machine, or on a Ray cluster"}),
            JSON,
        ],
    ),
    "try": (
        attempt,
        "headway try runs/digits --finding 1        (8 short runs, 2 minutes on 2 cores)",
        [
            RUN,
            ("--finding", {"type": count, "default": 1, "metavar": "N", "help": "number in the list of headway explain (1)"}),
            ("--pairs", {"type": _pairs, "default": 4, "metavar": "N", "help": "pairs of short runs, 2 or more (4)"}),
            ("--steps", {"type": count, "metavar": "N", "help": "steps of a short run (default: what takes 8 s)"}),
            JSON,
        ],
    ),
}
