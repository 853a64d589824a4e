"""Budget: what more training gives. The digits recipe for several numbers of samples, each judged with and without guidance.

    python -m headway.study.budget --out docs/results/budget.json        (12 minutes on 2 cores)

Each row is a run of its own, since the learning rate decays towards the end of a run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import torch

from headway.evaluate.judge import judge
from headway.runtime import folder
from headway.study import runs

BATCH: Final = 128
STEPS: Final = (200, 300, 400, 600, 1200, 2400)


def row(work: Path, steps: int) -> dict[str, Any]:
    """Train for `steps` steps on two processes; class agreement of 200 samples at guidance 1 and 2, variety, loss by timestep."""
    run = work / f"steps{steps}"
    start = time.perf_counter()
    runs.train(
        "digits", run, fields={"samples": steps * BATCH, "mesh.dp_shard": 2, "observe.profile_steps": "", "observe.progress": "none"}
    )
    seconds = time.perf_counter() - start
    out: dict[str, Any] = {"steps": steps, "samples": steps * BATCH, "seconds": seconds}
    for guidance in (1, 2):
        result = judge(folder.open_run(str(run)), num=200, seed=0, steps=30, guidance=guidance)
        out[f"agree_guidance_{guidance}"] = result["agreement"]["agree"] / 200
        out[f"variety_guidance_{guidance}"] = result["median_variance_ratio"]
        out[f"near_copies_guidance_{guidance}"] = result["near_copies"]["estimate"]
        out["loss_by_timestep"] = [b["loss"]["estimate"] for b in result["loss_by_timestep"]]
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Train and judge all rows."""
    parser = argparse.ArgumentParser(prog="python -m headway.study.budget", description="What more training of the digits recipe gives.")
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--steps", type=int, nargs="+", default=list(STEPS), help="numbers of steps")
    args = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory(prefix="budget-") as work:
        for steps in args.steps:
            rows.append(row(Path(work), steps))
            r = rows[-1]
            agree = f"class agreement {r['agree_guidance_1']:.1%} without guidance, {r['agree_guidance_2']:.1%} with"
            print(f"{steps:>5} steps  {r['seconds']:.0f} s  {agree}", flush=True)
    if args.out:
        data = {"schema": "headway.budget/1", "date": date.today().isoformat(), "torch": torch.__version__, "rows": rows}
        folder.write_json(args.out, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
