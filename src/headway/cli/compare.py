"""Commands that hold several runs or traces against each other. None needs torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from headway.cli.options import JSON, Commands, console, print_json
from headway.spec.errors import TraceError


def scale(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Say how a training scales: sizes side by side, where the loss is, what twice and four times the devices would give."""
    from headway.spec.scaling import Scaling, to_json
    from headway.trace.scaling import runs, sheet

    tables = [p for p in args.paths if p.lower().endswith(".csv")]
    found, notes = [], []
    for path in tables:
        ladders, said = sheet.ladders(Path(path))
        found += ladders
        notes += said
    paths = [_path(p) for p in args.paths if p not in tables]
    found += runs.ladders(paths, strong=args.strong) if paths else []
    if not any(len(ladder.points) > 1 for ladder in found):
        what = "there is nothing to compare: no configuration has two sizes"
        fix = "Give runs of one configuration at several sizes (--mesh.dp-shard 1, 2, 4, ...), or a table of them."
        raise TraceError("; ".join([what, *notes]), where=", ".join(args.paths[:3]), fix=fix)
    result = Scaling(ladders=tuple(found))
    if args.html:
        from headway.report.document import write
        from headway.report.scaling_page import scaling_page

        write(args.html, scaling_page(result, "How it scales"))
    if args.json:
        return print_json(to_json(result))
    from headway.report.scaling import print_scaling

    print_scaling(result, console())
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if args.html:
        print(f"\npage: {args.html}")
    return 0


def _path(name: str) -> str:
    """A path, or the folder of the run of that name."""
    from headway.runtime import folder

    return name if Path(name).exists() else str(folder.place(name))


COMMANDS: Commands = {
    "scale": (
        scale,
        "headway scale runs/dp1 runs/dp2 runs/dp4 --html scale.html        (2 s)",
        [
            (
                "paths",
                {"metavar": "PATH", "nargs": "+", "help": "each size: a run, trace or folder of ranks; or a .csv of measured runs"},
            ),
            ("--strong", {"action": "store_true", "help": "traces that do not say their batch had the same one (else: the same a device)"}),
            ("--html", {"metavar": "FILE", "help": "write one self-contained page"}),
            JSON,
        ],
    ),
}
