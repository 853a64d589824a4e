"""Truth: delays planted in a real run must land in the right bucket and the right phase.

    python -m headway.study.truth --out docs/results/truth.json        (3 minutes on 2 cores)

Each row is a run of two processes, traced over a window in which every other step is delayed by a known sleep. The trace holds the sleeps
as ranges, so each nanosecond of them can be looked up:

    share = (time of the planted ranges that the account gives to the bucket) / (time of the planted ranges) >= 0.95

What a slow rank does to the other one has no range there. It is what delayed steps have more than the steps beside them:

    share = mean over delayed steps of (the bucket in the step - its mean in the two steps beside it) / planted

Where the planted delay is all there is of its bucket, what the first finding promises is held against what a step without the delay takes:

    predicted = recoverable time of the first finding;  measured = (delayed steps - the steps beside them) x delayed steps / steps
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from headway.runtime import folder
from headway.spec.breakdown import Breakdown, RankBreakdown
from headway.spec.event import PHASES
from headway.study import runs
from headway.trace.explain import account
from headway.trace.read.kineto import read
from headway.trace.timeline import Timeline
from headway.train.inject import PLANTED

WINDOW: Final = (20, 45)
DELAYED: Final = tuple(range(22, 45, 2))
BOUND: Final = 0.95


@dataclass(frozen=True, kw_only=True)
class Case:
    """A planted delay and where it must be found: buckets named `bucket` (a pattern), on `rank`, in `phase` (empty: any)."""

    name: str
    inject: str
    bucket: str
    phase: str
    rank: int = 0
    alone: bool = False  # the bucket holds next to nothing else
    fields: tuple[tuple[str, str], ...] = ()


CASES: Final = (
    Case(name="slow loader", inject="input", bucket="idle.input", phase="input", alone=True),
    Case(name="host sleep between operations", inject="forward", bucket="idle.launch", phase="forward"),
    Case(name="host sleep in the backward", inject="backward", bucket="idle.launch", phase="backward"),
    Case(name="blocking wait", inject="sync", bucket="idle.sync", phase="forward", alone=True),
    Case(name="slow optimizer", inject="optimizer", bucket="idle.launch", phase="optimizer"),
    Case(
        name="slow checkpoint",
        inject="checkpoint",
        bucket="idle.checkpoint",
        phase="checkpoint",
        fields=(("checkpoint.every", "128"), ("checkpoint.blocking", "true")),
    ),
    Case(name="slow peer, seen by itself", inject="forward:rank1", bucket="idle.launch", phase="forward", rank=1),
    Case(name="slow peer, seen by the other", inject="forward:rank1", bucket="comm.*.wait", phase="", rank=0),
)


def measure(case: Case, work: Path, planted_ms: float) -> dict[str, Any]:
    """Run one case; where its milliseconds landed."""
    site, _, rank = case.inject.partition(":")
    inject = ",".join(f"{site}:{planted_ms}@{k}-{k}" + (f":{rank}" if rank else "") for k in DELAYED)
    run = work / case.name.replace(" ", "-").replace(",", "")
    if not run.exists():
        fields = {
            "mesh.dp_shard": 2, "samples": 128 * (WINDOW[1] + 3), "observe.profile_steps": f"{WINDOW[0]}-{WINDOW[1]}",
            "observe.peak": "h200", "observe.progress": "none", "observe.capture": False, "checkpoint.every": 0, "guard.inject": inject,
        }  # fmt: skip
        runs.train("digits", run, fields=fields | dict(case.fields))
    found = account([str(run)])
    steps = next(r for r in found.breakdown.ranks if r.rank == case.rank)
    by_bucket = {name: gain(steps, "buckets", name) for name in names(steps, "buckets")}
    if case.phase:
        line = next(t for t in found.timelines() if t.rank == case.rank)
        spans = planted(run, case.rank)
        share, in_phase = (inside(line, spans, table, name) for table, name in (("buckets", case.bucket), ("phases", case.phase)))
    else:
        share, in_phase = gain(steps, "buckets", case.bucket) / planted_ms, None
    return {
        "case": case.name, "planted_ms": planted_ms, "rank": case.rank, "bucket": case.bucket, "phase": case.phase,
        "bucket_share": share, "phase_share": in_phase,
        "step_gain_ms": gain(steps, "wall", ""), **promised(case, found.breakdown, steps),
        "largest": dict(sorted(by_bucket.items(), key=lambda kv: -abs(kv[1]))[:4]),
    }  # fmt: skip


def promised(case: Case, found: Breakdown, steps: RankBreakdown) -> dict[str, Any]:
    """The first finding's bucket, what it promises and what was measured, per step; nothing where the bucket holds other time too."""
    if not case.alone:
        return {}
    first = found.findings[0] if found.findings else None
    num = sum(bool(s.buckets) for s in steps.steps)
    return {
        "first_finding": first.bucket if first else None,
        "predicted_gain_ms": first.recoverable_ns / 1e6 if first else 0.0,
        "measured_gain_ms": gain(steps, "wall", "") * len(DELAYED) / num,
    }


def planted(run: Path, rank: int) -> list[tuple[int, int]]:
    """Begin and end of every planted delay in the traces of `rank`, in ns."""
    spans: list[tuple[int, int]] = []
    for file in sorted((run / "traces").glob(f"*.rank{rank}.json.gz")):
        table = read(file)
        rows = table.named(lambda name: name == PLANTED)
        spans += zip(table.start[rows].tolist(), table.end[rows].tolist(), strict=True)
    return spans


def inside(line: Timeline, spans: Sequence[tuple[int, int]], table: str, pattern: str) -> float:
    """Share of the time of `spans` that the timeline gives to the buckets (or phases) named `pattern`. 0 without spans."""
    code, all_names = (line.bucket, line.names) if table == "buckets" else (line.phase, PHASES)
    mine = np.array([fnmatchcase(name, pattern) for name in all_names])[code]
    begin, end = line.start[mine], line.end[mine]
    landed = sum(int(np.maximum(np.minimum(end, b) - np.maximum(begin, a), 0).sum()) for a, b in spans)
    return landed / max(1, sum(b - a for a, b in spans))


def gain(rank: RankBreakdown, table: str, pattern: str) -> float:
    """Milliseconds by which the buckets named `pattern` are larger in a delayed step than in the steps beside it."""
    ms: dict[int, float] = {}
    for step in rank.steps:
        if step.buckets:
            ns = step.wall_ns if table == "wall" else sum(v for k, v in getattr(step, table).items() if fnmatchcase(k, pattern))
            ms[step.step] = ns / 1e6
    return sum(ms[k] - (ms[k - 1] + ms[k + 1]) / 2 for k in DELAYED) / len(DELAYED)


def names(rank: RankBreakdown, table: str) -> set[str]:
    """All bucket names of a rank."""
    return {name for step in rank.steps for name in getattr(step, table)}


def passed(row: dict[str, Any]) -> bool:
    """Whether enough of the planted time was found where it belongs."""
    return bool(row["bucket_share"] >= BOUND and (row["phase_share"] is None or row["phase_share"] >= BOUND))


def main(argv: Sequence[str] | None = None) -> int:
    """Run all cases; exit code 1 if one is not found."""
    parser = argparse.ArgumentParser(prog="python -m headway.study.truth", description="Planted delays and where they are found.")
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--ms", type=float, default=150.0, help="milliseconds planted in each delayed step (150)")
    parser.add_argument("--work", type=Path, help="where the runs go (a temporary folder)")
    args = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory(prefix="truth-") as temporary:
        for case in CASES:
            rows.append(measure(case, args.work or Path(temporary), args.ms))
            row = rows[-1]
            phase = f"  phase {row['phase']} {row['phase_share']:.1%}" if row["phase_share"] is not None else ""
            if case.alone:
                phase += f"  first {row['first_finding']}: {row['predicted_gain_ms']:.1f} of {row['measured_gain_ms']:.1f} ms a step"
            print(
                f"{case.name:<32} {case.bucket} {row['bucket_share']:.1%}{phase}  {'ok' if passed(row) else 'FAIL ' + str(row['largest'])}",
                flush=True,
            )
    good = all(map(passed, rows))
    if args.out:
        data = {
            "schema": "headway.truth/1",
            "date": date.today().isoformat(),
            "torch": torch.__version__,
            "bound": BOUND,
            "passed": good,
            "rows": rows,
        }
        folder.write_json(args.out, data)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
