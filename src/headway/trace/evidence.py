"""What shows a finding: the ranks and steps with most of its bucket, who is late and why, which links and floors it was held against."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from headway.spec.breakdown import RankBreakdown, StepBreakdown
from headway.trace.replay.question import Answer, slow_groups
from headway.trace.replay.run import Replay

_GROUPS = 3
_ROUNDED = 0.02  # of a gain: less is no more than the replay's own rounding


def evidence(answer: Answer, run: Replay, ranks: Sequence[RankBreakdown], late: Mapping[int, int]) -> tuple[str, ...]:
    """Lines of evidence, the strongest first."""
    asked, out = answer.question, []
    if asked.kind in ("late rank", "slow rank") and asked.rank is not None:
        if asked.rank in late:
            out.append(f"rank {asked.rank} arrives last for {late[asked.rank] / max(sum(late.values()), 1):.0%} of the waiting")
        out += _excess(asked.rank, ranks)
    if asked.kind == "slow link":
        out += _links(run)
    if asked.kind == "floor":
        out += _floors(asked.bucket.removeprefix("compute."), ranks)
    out.append(_replayed(answer, run))
    out += _beyond(answer, ranks)
    rows = [(r, [in_bucket(s, asked.bucket) for s in r.steps]) for r in ranks]
    out += [_most(r, claimed) for r, claimed in sorted(rows, key=lambda x: -statistics.fmean(x[1])) if any(claimed)]
    return tuple(out)


def _replayed(answer: Answer, run: Replay) -> str:
    """What the replay says: alone, and in which steps."""
    base = run.base.step_ns
    over = "" if run.steps is None else f" (steps {run.steps[0]} to {run.steps[1]} replayed)"
    return f"replay: a step of {base / 1e6:.2f} ms takes {(base - answer.alone_ns) / 1e6:.2f} ms without it{over}"


def _beyond(answer: Answer, ranks: Sequence[RankBreakdown]) -> list[str]:
    """Said where more is won than the bucket and all waits hold."""
    steps = [s for r in ranks for s in r.steps]
    own = statistics.fmean(in_bucket(s, answer.question.bucket) for s in steps)
    waits = 0.0 if answer.question.bucket == "comm.wait" else statistics.fmean(in_bucket(s, "comm.wait") for s in steps)
    rest = answer.gain_ns - own - waits
    if rest <= _ROUNDED * answer.gain_ns:
        return []
    held = f"its bucket ({own / 1e6:.2f} ms) and all waits ({waits / 1e6:.2f} ms)"
    return [f"{rest / 1e6:.2f} ms of the gain lie outside of {held}: transfers and launches that compute hides once it is gone"]


def in_bucket(step: StepBreakdown, bucket: str) -> int:
    """Time of a step in the bucket of a finding; comm is all collectives without their waits, comm.wait the waits."""
    if bucket in ("comm", "comm.wait"):
        return sum(ns for n, ns in step.buckets.items() if n.startswith("comm.") and n.endswith(".wait") == (bucket == "comm.wait"))
    return step.buckets.get(bucket, 0)


def _most(rank: RankBreakdown, claimed: Sequence[int]) -> str:
    steps = rank.steps
    worst = max(range(len(steps)), key=lambda i: claimed[i])
    middle = statistics.median(claimed)
    return (
        f"rank {rank.rank} {rank.device}: {middle / 1e6:.2f} ms of a step (median of {len(steps)}), most in step {steps[worst].step}: "
        f"{claimed[worst] / 1e6:.2f} of {steps[worst].wall_ns / 1e6:.2f} ms"
    )


def _excess(late: int, ranks: Sequence[RankBreakdown]) -> list[str]:
    """The bucket of which the late rank has most more than the others have in the median (collectives aside)."""
    mine = [s for r in ranks if r.rank == late for s in r.steps]
    others = [s for r in ranks if r.rank != late for s in r.steps]
    names = {n for s in mine for n in s.buckets if not n.startswith("comm.")}
    if not names or not others:
        return []
    excess = {n: _middle(n, mine) - _middle(n, others) for n in names}
    most = max(sorted(excess), key=lambda n: excess[n])
    return [f"rank {late} has {excess[most] / 1e6:.2f} ms a step more of {most} than the others"] if excess[most] > 0 else []


def _middle(name: str, steps: Sequence[StepBreakdown]) -> float:
    return statistics.median(s.buckets.get(name, 0) for s in steps)


def _links(run: Replay) -> list[str]:
    """The groups whose transfers are slowest against the quickest of their kind."""
    groups = sorted(slow_groups(run), key=lambda g: -g.ratio)
    return [
        f"{g.name} on {g.axis} among ranks {', '.join(map(str, g.ranks[:8]))}{' ...' if len(g.ranks) > 8 else ''}: "
        f"{g.bytes / 2**20:.1f} MiB take {g.ratio:.1f} times as long as the quickest of that size"
        for g in groups[:_GROUPS]
    ]


def _floors(name: str, ranks: Sequence[RankBreakdown]) -> list[str]:
    steps = [s for r in ranks for s in r.steps if name in s.floors]
    if not steps:
        return []
    measured = float(np.mean([s.floors[name] + s.recoverable[name] for s in steps]))
    least = float(np.mean([s.floors[name] for s in steps]))
    whole = float(np.mean([s.buckets.get(f"compute.{name}", 0) for s in steps]))
    share = f", known for {measured / whole:.0%} of their {whole / 1e6:.2f} ms" if whole else ""
    return [f"floor {least / 1e6:.2f} ms a step against {measured / 1e6:.2f} ms measured{share}"]
