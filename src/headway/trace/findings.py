"""Causes of lost time that the breakdown shows by itself, largest first.

A nanosecond is claimed by one finding only. `recoverable_ns` is the mean over ranks of the median over steps of what the finding's
buckets take: the most that removing the cause can win on the critical path of a step, before anything else moves.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.spec.breakdown import RankBreakdown, StepBreakdown
from headway.spec.finding import Finding

LEAST_SHARE = 0.01  # of a step; what is smaller is not worth a line
_MOST_WORKERS = 8

Patch = Callable[[Mapping[str, Any]], "dict[str, Any] | None"]


@dataclass(frozen=True)
class Cause:
    """One kind of finding: which buckets it claims, how sure it is at best, what to do."""

    what: str  # {ms} is filled in
    bucket: str
    claims: Callable[[StepBreakdown], int]  # nanoseconds of one step; no two causes claim the same
    confidence: float
    action: str
    patch: Patch = lambda spec: None


def _workers(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    now = spec.get("data", {}).get("workers")
    if not isinstance(now, int) or now >= _MOST_WORKERS:
        return None
    return {"data.workers": max(2, 2 * now)}


def _beside(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    return {"checkpoint.blocking": False} if spec.get("checkpoint", {}).get("blocking") is True else None


def _idle(cause: str) -> Callable[[StepBreakdown], int]:
    return lambda step: step.buckets.get(f"idle.{cause}", 0)


_UPDATES = tuple(f"compute.{c}" for c in ("optimizer", "elementwise", "reduce", "copy"))  # classes that an optimizer's kernels have


def _optimizer(step: StepBreakdown) -> int:
    """Time of the optimizer phase in which none of its kernels can have run: it is idle, and the host is issuing."""
    dry = step.phases.get("optimizer", 0) - sum(step.buckets.get(name, 0) for name in _UPDATES)
    return max(0, min(dry, step.buckets.get("idle.launch", 0)))


def _launch(step: StepBreakdown) -> int:
    return step.buckets.get("idle.launch", 0) - _optimizer(step)


def _comm(step: StepBreakdown, wait: bool) -> int:
    return sum(ns for name, ns in step.buckets.items() if name.startswith("comm.") and name.endswith(".wait") == wait)


CAUSES = (
    Cause(
        "The device waits {ms} ms of a step for input", "idle.input", _idle("input"), 0.9,
        "Decode and copy the next batches while the device works: more loader workers, prefetch, pinned memory.", _workers,
    ),
    Cause(
        "The device waits {ms} ms of a step for a checkpoint", "idle.checkpoint", _idle("checkpoint"), 0.9,
        "Save beside the training (asynchronous checkpoints), or less often.", _beside,
    ),
    Cause(
        "The device is idle {ms} ms of a step during evaluation", "idle.evaluate", _idle("evaluate"), 0.8,
        "Evaluate less often, on fewer samples, or in another job.",
    ),
    Cause(
        "The device waits {ms} ms of a step for encoders on the host", "idle.encode", _idle("encode"), 0.8,
        "Encode once and train from a cache of latents and embeddings.",
    ),
    Cause(
        "The device runs dry {ms} ms of a step while the host waits for it", "idle.sync", _idle("sync"), 0.8,
        "Remove what reads the device in every step: .item(), .cpu(), print of a tensor, synchronize().",
    ),
    Cause(
        "The device is idle {ms} ms of a step in the optimizer", "idle.launch", _optimizer, 0.5,
        "Update all parameters in few launches: a fused optimizer, no Python loop over parameters.",
    ),
    Cause(
        "The device waits {ms} ms of a step for the host to issue work", "idle.launch", _launch, 0.6,
        "Issue less: a larger batch, compiled or fused operations, CUDA graphs, less Python between operators.",
    ),
    Cause(
        "The device waits {ms} ms of a step for memory to be allocated or freed", "idle.allocator", _idle("allocator"), 0.8,
        "Keep shapes constant so that the caching allocator reuses blocks (expandable_segments helps), and leave memory free.",
    ),
    Cause(
        "The device waits {ms} ms of a step for compilation", "idle.compile", _idle("compile"), 0.8,
        "Find what recompiles: shapes or Python values that change from step to step.",
    ),
    Cause(
        "The device waits {ms} ms of a step for Python's garbage collector", "idle.gc", _idle("gc"), 0.8,
        "Freeze or disable the collector and run it every so many steps on all ranks together.",
    ),
    Cause(
        "The device is idle {ms} ms of a step while the host is blocked in a collective", "idle.collective", _idle("collective"), 0.6,
        "Take barriers and object collectives out of the step.",
    ),
    Cause(
        "Ranks wait {ms} ms of a step for the last one to arrive at a collective", "comm.wait",
        lambda step: _comm(step, wait=True), 0.8,
        "Look at what the late rank does before the collective.",
    ),
    Cause(
        "Collectives take {ms} ms of a step that no compute hides", "comm", lambda step: _comm(step, wait=False), 0.4,
        "Overlap them with compute (prefetch, more blocks per group), shard over fewer ranks, or reduce in bf16.",
    ),
)  # fmt: skip


def findings(ranks: Sequence[RankBreakdown], late: Mapping[int, int], spec: Mapping[str, Any] | None) -> tuple[Finding, ...]:
    """Findings over all profiled steps. `late` is time that each rank made others wait; `spec` the settings of a run of ours."""
    profiled = [replace(r, steps=steps) for r in ranks if (steps := tuple(s for s in r.steps if s.buckets))]
    by_rank = [r.steps for r in profiled]
    if not by_rank:
        return ()
    wall = statistics.fmean(statistics.median(s.wall_ns for s in steps) for steps in by_rank)
    out = []
    for cause in CAUSES:
        claimed = [[cause.claims(s) for s in steps] for steps in by_rank]
        won = statistics.fmean(statistics.median(c) for c in claimed)
        if not wall or won < LEAST_SHARE * wall:
            continue
        evidence = [_evidence(r, c) for r, c in zip(profiled, claimed, strict=True)]
        action = cause.action
        if cause.bucket == "comm.wait" and late:
            worst = max(late, key=lambda r: late[r])
            evidence = [
                f"rank {worst} arrives last for {late[worst] / sum(late.values()):.0%} of the waiting",
                *_excess(worst, profiled),
                *evidence,
            ]
            action = f"Look at what rank {worst} does before the collective: its own buckets say."
        out.append(
            Finding(
                what=cause.what.format(ms=f"{won / 1e6:.2f}"),
                bucket=cause.bucket,
                recoverable_ns=round(won),
                confidence=_confidence(cause, claimed),
                evidence=tuple(evidence[:8]),
                action=action,
                patch=cause.patch(spec) if spec else None,
            )
        )
    return tuple(sorted(out, key=lambda f: -f.recoverable_ns))


def _evidence(rank: RankBreakdown, claimed: Sequence[int]) -> str:
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


def _confidence(cause: Cause, claimed: Sequence[Sequence[int]]) -> float:
    """At best the cause's own; less where few steps were seen (n / (n + 1)) or only part of the steps show it."""
    num = min(len(c) for c in claimed)
    present = statistics.fmean(x > 0 for c in claimed for x in c)
    return round(cause.confidence * num / (num + 1) * present, 2)
