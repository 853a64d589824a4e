"""Kills: SIGKILL at random moments, the same command again, and nothing is lost.

    python -m headway.study.kills --out docs/results/kills.json        (10 minutes on 2 cores)

One run is never disturbed. Others are killed at keyed random moments (also while a checkpoint is being written, which is slowed down and
watched for) and started again with the same command until they end: on the same layout every loss and every final tensor must be
bitwise equal to the undisturbed run; resumed on another layout, every loss within the bound of the parity table.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import torch

from headway.runtime import folder
from headway.runtime.load import load_weights
from headway.study import runs
from headway.study.parity import BOUNDS, SMALL

STEPS: Final = 150
STEPS_OTHER: Final = 50  # as far as the parity table goes: rounding grows with every step
SLOW: Final = "forward:100"  # a life that is to be killed has 100 ms more in each step, so that the moments are spread over it
FIELDS: Final = SMALL | {
    "optim.decay": "constant",
    "optim.final_lr": 0,
    "checkpoint.every": 64 * 5,
    "guard.trail": "false",
    "mesh.dp_shard": 2,
}
OTHER: Final = (
    {"mesh.dp_shard": 1},
    {"mesh.dp_shard": 4},
    {"mesh.dp_shard": 2, "mesh.dp_replicate": 2},
    {"mesh.dp_shard": 2, "accumulate": 2},
)


def killed(work: Path, name: str, kills: int, rng: random.Random, *, steps: int, layouts: Sequence[dict[str, int]] = ()) -> dict[str, Any]:
    """Kill a run `kills` times, then let it end; every life may have another layout. What happened to it."""
    run, moments = work / name, []
    for life in range(kills):
        fields = FIELDS | {"samples": steps * 64, "guard.inject": SLOW} | (layouts[life % len(layouts)] if layouts else {})
        process = runs.start("digits", run, fields=fields, log=work / f"{name}.log")
        moments.append(kill(process, run, rng, writing=life % 2 == 1))
    runs.train("digits", run, fields=FIELDS | {"samples": steps * 64} | (layouts[kills % len(layouts)] if layouts else {}))
    return {"name": name, "steps": steps, "kills": moments, "resumes": sum(e["kind"] == "resume" for e in folder.read_events(run))}


def kill(process: subprocess.Popen[bytes], run: Path, rng: random.Random, *, writing: bool) -> dict[str, Any]:
    """SIGKILL to every process of a run, at a random moment of its training or while a checkpoint is being written."""
    start = folder.read_json(run / "status.json")
    before = (start or {}).get("samples", 0)
    wait(lambda: process.poll() is not None or (folder.read_json(run / "status.json") or {}).get("samples", 0) > before)
    time.sleep(rng.uniform(0.0, 1.5))
    if writing:
        wait(lambda: process.poll() is not None or any((run / "checkpoints").glob("*.incomplete")), pause_s=0.0005)
        time.sleep(rng.uniform(0.0, 0.02))
    during = sorted(p.name for p in (run / "checkpoints").glob("*.incomplete"))
    ended = process.poll() is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in ranks_of(run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    status = folder.read_json(run / "status.json") or {}
    return {"samples": status.get("samples", 0), "writing": during, "had_ended": ended}


def ranks_of(run: Path) -> list[int]:
    """Processes whose command line names the run (ranks are in groups of their own)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(run).encode() in words:
                found.append(int(entry.name))
    return found


def wait(ready: Any, timeout_s: float = 180.0, pause_s: float = 0.02) -> None:
    """Until `ready()` is true."""
    end = time.monotonic() + timeout_s
    while not ready() and time.monotonic() < end:
        time.sleep(pause_s)


def fingerprint(run: Path) -> str:
    """Hash of the student's and the EMA's tensors in the newest checkpoint."""
    state = hashlib.blake2b(digest_size=16)
    opened = folder.open_run(str(run))
    for ema in (True, False):
        for name, tensor in sorted(load_weights(opened, ema=ema).items()):
            state.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return state.hexdigest()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study; exit code 1 if anything was lost."""
    parser = argparse.ArgumentParser(
        prog="python -m headway.study.kills", description="SIGKILL at random moments, then the same command again."
    )
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--kills", type=int, default=10, help="kills of the run on one layout (10)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments (0)")
    parser.add_argument("--work", type=Path, help="where the runs go (a temporary folder)")
    args = parser.parse_args(argv)
    rng, steps = random.Random(args.seed), range(1, STEPS + 1)
    with tempfile.TemporaryDirectory(prefix="kills-") as temporary:
        work = args.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        runs.train("digits", work / "calm", fields=FIELDS | {"samples": STEPS * 64})
        same = killed(work, "same", args.kills, rng, steps=STEPS)
        same["worst_relative"] = runs.worst(runs.losses(work / "calm"), runs.losses(work / "same"), steps)
        same["tensors_equal"] = fingerprint(work / "calm") == fingerprint(work / "same")
        equal = "equal" if same["tensors_equal"] else "DIFFER"
        print(f"same layout: {len(same['kills'])} kills, worst {same['worst_relative']:.2e}, tensors {equal}")
        other = killed(work, "other", len(OTHER), rng, steps=STEPS_OTHER, layouts=OTHER)
        other["worst_relative"] = runs.worst(runs.losses(work / "calm"), runs.losses(work / "other"), range(1, STEPS_OTHER + 1))
        print(f"other layouts: {len(other['kills'])} kills, worst {other['worst_relative']:.2e}")
    real = [not k["had_ended"] for k in same["kills"] + other["kills"]]
    good = all(real) and same["worst_relative"] == 0 and same["tensors_equal"] and other["worst_relative"] <= BOUNDS["fp32"]
    if args.out:
        folder.write_json(
            args.out,
            {
                "schema": "headway.kills/1", "date": date.today().isoformat(), "torch": torch.__version__, "steps": STEPS, "passed": good,
                "same_layout": same, "other_layouts": other,
            },
        )  # fmt: skip
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
