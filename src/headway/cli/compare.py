"""Commands that compare: two runs, and one configuration at several sizes. None needs torch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from headway.cli.analysis import found, watch
from headway.cli.options import JSON, Commands, Option, console, print_json, whole
from headway.cli.outputs import claim


def diff(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Say what changed from run A to run B: time, memory, kernels and settings, in parts that add up."""
    from headway.spec.diff import to_json
    from headway.trace.diff.diff import diff as between

    a, b = found(args.a), found(args.b)
    claim(args, [a, b])
    result = between(a, b, engine=args.engine, workers=args.workers, watch=watch)
    if args.html:
        from headway.report.diff_page import write_diff

        write_diff(Path(args.html), result)
    if args.json:
        return print_json(to_json(result))
    from headway.report.diff import print_diff

    print_diff(result, console())
    if args.html:
        print(f"\npage: {args.html}")
    return 0


def scale(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Say how configurations scale over devices: efficiency, what grows, a law with intervals, the next doublings."""
    from headway.spec.scaling import to_json
    from headway.trace.scaling.scale import scale as over_sizes

    paths = [found(p) for p in args.paths]
    claim(args, [*paths, *args.csv])
    result = over_sizes(paths, sheets=args.csv, kind=args.kind, engine=args.engine, workers=args.workers, watch=watch)
    if args.html:
        from headway.report.scaling_page import write_scaling

        write_scaling(Path(args.html), result)
    if args.json:
        return print_json(to_json(result))
    from headway.report.scaling import print_scaling

    print_scaling(result, console())
    if args.html:
        print(f"\npage: {args.html}")
    return 0


_READING: list[Option] = [
    ("--html", {"metavar": "FILE", "help": "write one self-contained page"}),
    ("--workers", {"type": whole, "default": 0, "metavar": "N", "help": "processes that read files (0: as many as pay off)"}),
    ("--engine", {"choices": ("local", "ray"), "default": "local", "help": "read on this machine, or on a Ray cluster"}),
    JSON,
]

COMMANDS: Commands = {
    "diff": (
        diff,
        "headway diff runs/before runs/after --html diff.html        (2 s)",
        [
            ("a", {"metavar": "A", "help": "run, Kineto trace, or a folder with the traces of all ranks"}),
            ("b", {"metavar": "B", "help": "the same of the other"}),
            *_READING,
        ],
    ),
    "scale": (
        scale,
        "headway scale runs/n8 runs/n16 runs/n32 --html scale.html        (3 s)",
        [
            ("paths", {"metavar": "PATH", "nargs": "*", "help": "one size each: run, trace, folder of the traces of all ranks; or a .csv"}),
            (
                "--csv",
                {"metavar": "FILE", "action": "append", "default": [], "help": "table: model, n_gpus, batch, metric, value, unit, ..."},
            ),
            (
                "--kind",
                {"choices": ("weak", "strong"), "help": "what stays equal, where no batch tells: batch per device, or global batch"},
            ),
            *_READING,
        ],
    ),
}
