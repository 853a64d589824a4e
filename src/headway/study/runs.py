"""Runs of the command line as a user starts them, for studies that compare many."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.runtime import folder
from headway.spec.errors import RunError


def command(recipe: str, run: Path, *, fields: Mapping[str, Any]) -> list[str]:
    """The train command of a run: `fields` are overrides by dotted name."""
    return [sys.executable, "-m", "headway", "train", recipe, "--run", str(run), *options(fields)]


def options(fields: Mapping[str, Any]) -> list[str]:
    """`fields` as options of the command line."""
    return [f"--{name.replace('_', '-')}={_text(value)}" for name, value in fields.items()]


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def start(recipe: str, run: Path, *, fields: Mapping[str, Any], log: Path | None = None) -> subprocess.Popen[bytes]:
    """A started run, in a process group of its own; what it says goes to `log`."""
    out = log.open("ab") if log else subprocess.DEVNULL
    return subprocess.Popen(command(recipe, run, fields=fields), stdout=out, stderr=out, start_new_session=True, env=environment())


def train(recipe: str, run: Path, *, fields: Mapping[str, Any], threads: int | None = 1) -> None:
    """Train to the end. Raises RunError with the run's own words if it fails. `threads` of a process; None: as the caller's."""
    run.parent.mkdir(parents=True, exist_ok=True)
    env = environment(threads)
    done = subprocess.run(command(recipe, run, fields=fields), capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise RunError(f"exit code {done.returncode}: {done.stderr.strip()[-2000:]}", where=f"run {run}")


def environment(threads: int | None = 1) -> dict[str, str]:
    """The environment of a run: ours without what makes it a rank of another."""
    drop = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "HEADWAY_ERRORS")
    kept = {k: v for k, v in os.environ.items() if k not in drop}
    return kept if threads is None else kept | {"OMP_NUM_THREADS": str(threads)}


def losses(run: Path) -> dict[int, float]:
    """Step -> mean loss of its log line (every step with --observe.log-every 1); the last life of a run wins."""
    return {e["step"]: e["loss"] for e in folder.read_events(run) if e["kind"] == "log"}


def worst(a: Mapping[int, float], b: Mapping[int, float], steps: Sequence[int]) -> float:
    """Largest relative difference of two loss curves over `steps`; infinity if one lacks a step, or a loss is not finite."""
    if not all(math.isfinite(curve.get(s, math.nan)) for curve in (a, b) for s in steps):  # max() passes over a nan
        return math.inf
    return max(abs(a[s] - b[s]) / max(abs(a[s]), 1e-300) for s in steps)
