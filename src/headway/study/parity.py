"""Parity: the same run on every layout gives the same losses.

    python -m headway.study.parity --out docs/results/parity.json        (10 minutes on 2 cores)

Each row is a run of the command line, 50 steps from a perturbed start (no gradient is zero), compared with one process step by step:
relative difference of the loss <= 1e-6 in fp32 and <= 1e-11 in fp64. The draws of every sample are hashed and compared bit by bit.
A planted bug (the data of another seed) shows that the comparison can fail.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import torch

from headway.runtime import folder
from headway.study import runs

STEPS: Final = 50
BOUNDS: Final = {"fp32": 1e-6, "fp64": 1e-11}
LAYOUTS: Final[dict[str, dict[str, int]]] = {
    "1 process": {},
    "1 process, accumulate 2": {"accumulate": 2},
    "1 process, accumulate 4": {"accumulate": 4},
    "FSDP 2": {"mesh.dp_shard": 2},
    "FSDP 2, accumulate 2": {"mesh.dp_shard": 2, "accumulate": 2},
    "FSDP 2, accumulate 4": {"mesh.dp_shard": 2, "accumulate": 4},
    "FSDP 4": {"mesh.dp_shard": 4},
    "FSDP 4, accumulate 2": {"mesh.dp_shard": 4, "accumulate": 2},
    "HSDP 2 x 2": {"mesh.dp_replicate": 2, "mesh.dp_shard": 2},
    "HSDP 2 x 2, accumulate 2": {"mesh.dp_replicate": 2, "mesh.dp_shard": 2, "accumulate": 2},
}
SMALL: Final = {
    "samples": STEPS * 64, "global_batch": 64, "model.width": 64, "model.depth": 3, "model.init": "perturbed", "optim.lr": 3e-4,
    "checkpoint.every": 0, "observe.log_every": 1, "observe.profile_steps": "", "observe.peak": "h200", "observe.progress": "none",
    "guard.trail": "true",
}  # fmt: skip


def compare(work: Path, precision: str, *, layouts: dict[str, dict[str, int]] = LAYOUTS) -> list[dict[str, Any]]:
    """One row a layout: largest relative loss difference to one process, and whether the draws are the same bits."""
    fields = SMALL | {"precision.compute": precision, "precision.reduce": precision}
    rows: list[dict[str, Any]] = []
    base: dict[int, float] = {}
    trail: dict[int, str] = {}
    for name, layout in layouts.items():
        run = work / f"{precision}-{name.replace(' ', '-').replace(',', '')}"
        runs.train("digits", run, fields=fields | layout)
        curve, drawn = runs.losses(run), trails(run)
        base, trail = base or curve, trail or drawn
        rows.append(
            {
                "precision": precision, "layout": name, "steps": len(curve), "worst_relative": runs.worst(base, curve, range(1, STEPS + 1)),
                "draws_equal": drawn == trail, "first_loss": curve[1], "last_loss": curve[STEPS],
            }
        )  # fmt: skip
        print(text_of(rows[-1]), flush=True)
    return rows


def planted(work: Path, base: Path) -> dict[str, Any]:
    """The same comparison against a run with another seed: it must fail."""
    run = work / "planted"
    runs.train("digits", run, fields=SMALL | {"seed": 1})
    gap = runs.worst(runs.losses(base), runs.losses(run), range(1, STEPS + 1))
    return {"planted": "another seed", "worst_relative": gap, "draws_equal": trails(run) == trails(base)}


def trails(run: Path) -> dict[int, str]:
    """Step -> sum over ranks of the hashes of its draws (a sum does not depend on who had which sample)."""
    world = folder.open_run(str(run)).info["world"]
    total: dict[int, int] = {}
    for rank in range(world):
        for event in folder.read_events(run, rank):
            if event["kind"] == "draws":
                total[event["step"]] = (total.get(event["step"], 0) + int(event["hash"], 16)) % (1 << 64)
    return {step: f"{value:016x}" for step, value in total.items()}


def text_of(row: dict[str, Any]) -> str:
    """A row as a line."""
    ok, draws = "ok" if passed(row) else "FAIL", "equal" if row["draws_equal"] else "DIFFER"
    return f"{row['precision']}  {row['layout']:<26} worst {row['worst_relative']:.2e}  draws {draws}  {ok}"


def passed(row: dict[str, Any]) -> bool:
    """Whether a row is within its bound."""
    return bool(row["worst_relative"] <= BOUNDS[row["precision"]] and row["draws_equal"] and row["steps"] == STEPS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the table; exit code 1 if a row fails or the planted bug is not seen."""
    parser = argparse.ArgumentParser(
        prog="python -m headway.study.parity", description="The same run on every layout: losses and draws compared."
    )
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--work", type=Path, help="where the runs go (a temporary folder)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="parity-") as temporary:
        work = args.work or Path(temporary)
        rows = compare(work, "fp32") + compare(work, "fp64")
        bug = planted(work, work / "fp32-1-process")
    good = all(map(passed, rows)) and bug["worst_relative"] > 1e-3 and not bug["draws_equal"]
    print(f"planted bug (another seed): worst {bug['worst_relative']:.2e}, draws {'equal' if bug['draws_equal'] else 'differ'}")
    if args.out:
        folder.write_json(
            args.out,
            {
                "schema": "headway.parity/1", "date": date.today().isoformat(), "torch": torch.__version__, "bounds": BOUNDS,
                "steps": STEPS,
                "passed": good, "rows": rows, "planted": bug,
            },
        )  # fmt: skip
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
