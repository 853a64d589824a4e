"""A finding put to the test: its patch against the run's own settings, in short runs of the command line, paired.

    trial = attempt(run, finding=1)            # runs beside it, in NAME-try/finding1/

Each side of a pair is a run of its own from the same start (the run's settings and seed), one after the other, and which goes first
alternates (`stats.paired`). What a step takes is the mean over the steps after the first few, by the wall clock, waiting included.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from headway.runtime import folder
from headway.runtime.folder import Run
from headway.spec.breakdown import Breakdown
from headway.spec.codec import apply_overrides, encode
from headway.spec.errors import RunError, SpecError
from headway.spec.event import events_file
from headway.spec.finding import Finding
from headway.spec.run import require
from headway.spec.trial import SCHEMA, Trial
from headway.stats.intervals import mean_interval
from headway.stats.paired import b_goes_first
from headway.study import runs
from headway.trace.events import read_events
from headway.trace.explain import explain

WARMUP: Final = 5  # first steps of a run, left out: caches, first allocations, a loader that has nothing ahead yet
FEWEST: Final = 20  # steps of a short run
MOST: Final = 400
SECONDS: Final = 8.0  # that a run takes, by the run's own step, where the number of steps is not given
_FILE: Final = "trials.json"
_QUIET: Final = {"observe.profile_steps": "", "observe.progress": "none", "observe.capture": False, "observe.trackers": ()}


def attempt(
    run: Run, number: int, *, pairs: int = 4, steps: int | None = None, tell: Callable[[str], None] = lambda text: None
) -> tuple[Trial, Breakdown]:
    """The trial of finding `number` of `run`, kept in its trials.json; and the breakdown that the finding is of.

    Raises RunError if the run is live, SpecError if there is no such finding, it has no patch, or the patch does not fit the settings;
    TraceError if the run cannot be explained; RunError with its words if a short run fails.
    """
    _refuse_live(run)
    breakdown = explain([run.path])
    finding = choose(breakdown, number, run.path)
    assert finding.patch is not None
    count = steps or _steps(run, breakdown, finding.patch)
    place = _place(run, number)
    base: dict[str, Any] = {**_QUIET, "samples": count * run.spec.global_batch, "checkpoint.every": _every(run, count, finding.patch)}
    sides: tuple[dict[str, Any], ...] = (base, base | dict(finding.patch))
    for side in sides:
        require(apply_overrides(run.spec, runs.options(side)), source=f"the patch of finding {number}")
    order = b_goes_first(pairs)
    measured: list[tuple[float, float]] = []
    for k, b_first in enumerate(order.tolist()):
        took: dict[int, float] = {}
        for which in (1, 0) if b_first else (0, 1):
            one = place / f"{'ab'[which]}{k}"
            tell(f"pair {k + 1} of {pairs}: {'with the patch' if which else 'as it is'}, {count} steps")
            runs.train(str(run.path / "run.json"), one, fields=sides[which], threads=None)
            took[which] = step_ns(one)
        measured.append((took[0], took[1]))
    gain = mean_interval([a - b for a, b in measured])
    trial = Trial(
        finding=number, what=finding.what, bucket=finding.bucket, patch=finding.patch, predicted_ns=finding.recoverable_ns,
        gain_ns=gain.estimate, low_ns=gain.low, high_ns=gain.high, confidence=gain.confidence,
        step_a_ns=statistics.fmean(a for a, _ in measured), step_b_ns=statistics.fmean(b for _, b in measured),
        pairs=tuple(measured), b_first=tuple(order.tolist()), steps=count, warmup=WARMUP, folder=str(place), time_ns=time.time_ns(),
    )  # fmt: skip
    _keep(run.path, trial)
    return trial, breakdown


def choose(breakdown: Breakdown, number: int, where: Path) -> Finding:
    """Finding `number`, counted from 1 in the order of the list. Raises SpecError if there is none or it has no patch."""
    found = breakdown.findings
    if not 1 <= number <= len(found):
        known = f"it has {len(found)}: --finding 1 to {len(found)}" if found else "it has none: nothing in its traces is worth a line"
        raise SpecError(f"there is no finding {number}; {known}", where=f"run {where}", fix=f"See `headway explain {where}`.")
    finding = found[number - 1]
    if not finding.patch:
        cured = [str(i) for i, f in enumerate(found, 1) if f.patch]
        others = f"Findings with one: {', '.join(cured)}." if cured else "None of its findings has one."
        raise SpecError(
            f"no setting cures finding {number} ({finding.what})", where=f"run {where}", fix=f"{finding.action} {others}".strip()
        )
    return finding


def step_ns(run: Path) -> float:
    """Mean wall time of a step of a run after the first WARMUP. Raises RunError if it has no others."""
    steps = read_events(run).steps.get(0, ())
    if len(steps) <= WARMUP:
        what = f"it has {len(steps)} steps, and the first {WARMUP} do not count"
        raise RunError(what, where=f"run {run}", fix="Give it more with --steps.")
    return statistics.fmean(s.wall_ns for s in steps[WARMUP:])


def _place(run: Run, number: int) -> Path:
    """A new folder beside the run: NAME-try/finding1, finding1.1, ...; earlier trials stay where they are."""
    beside = run.path.with_name(f"{run.path.name}-try")
    return next(p for n in itertools.count() if not (p := beside / (f"finding{number}.{n}" if n else f"finding{number}")).exists())


def _refuse_live(run: Run) -> None:
    now = folder.status(run.path)
    if now["state"] in ("running", "starting") and (run.path / events_file(0)).is_file():
        raise RunError(
            f"it is running (process {now.get('pid')} on {now.get('host')}), and a trial beside it would disturb both",
            where=f"run {run.path}",
            fix=f"Wait for its end, or stop it: headway stop {run.path}",
        )


def _steps(run: Run, breakdown: Breakdown, patch: Mapping[str, Any]) -> int:
    """As many steps as take SECONDS; where checkpoints are compared, at least two of them."""
    took = float(breakdown.summary["step_ns"]["median"]) / 1e9
    count = min(MOST, max(FEWEST, math.ceil(SECONDS / max(took, 1e-6))))
    every: int = max(run.spec.checkpoint.every, int(patch.get("checkpoint.every", 0)))
    if any(name.startswith("checkpoint.") for name in patch):
        count = max(count, 2 * -(-every // run.spec.global_batch) + 1)
    return count + WARMUP


def _every(run: Run, steps: int, patch: Mapping[str, Any]) -> int:
    """Checkpoints only where they are what is compared."""
    return run.spec.checkpoint.every if any(name.startswith("checkpoint.") for name in patch) else 0


def _keep(path: Path, trial: Trial) -> None:
    """Add a trial to the run's trials.json."""
    old = folder.read_json(path / _FILE) or {}
    kept = old["trials"] if old.get("schema") == SCHEMA and isinstance(old.get("trials"), list) else []
    folder.write_json(path / _FILE, {"schema": SCHEMA, "trials": [*kept, to_json(trial)]})


def to_json(trial: Trial) -> dict[str, Any]:
    """A trial as plain data, with its two judgements."""
    data: dict[str, Any] = encode(dataclasses.asdict(trial))
    return {**data, "found": trial.found, "as_predicted": trial.as_predicted}
