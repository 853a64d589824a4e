"""Causes of lost time that the breakdown shows by itself, largest first.

A nanosecond is claimed by one finding only. `recoverable_ns` is the mean over ranks of the median over steps of what the finding's
buckets take: the most that removing the cause can win on the critical path of a step, before anything else moves.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.spec.breakdown import RankBreakdown, StepBreakdown
from headway.spec.finding import Finding

LEAST_SHARE = 0.01  # of a step; what is smaller is not worth a line
_MOST_WORKERS = 8

Patch = Callable[[Mapping[str, Any]], "dict[str, Any] | None"]


@dataclass(frozen=True)
class Cause:
    """One kind of finding: which buckets it claims, how sure it is at best, what to do."""

    what: str  # {ms} and {share} are filled in
    bucket: str
    claims: Callable[[str], bool]
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


def _idle(cause: str) -> Callable[[str], bool]:
    return lambda name: name == f"idle.{cause}"


CAUSES = (
    Cause(
        "the device waits {ms} ms of a step for input", "idle.input", _idle("input"), 0.9,
        "Decode and copy the next batches while the device works: more loader workers, prefetch, pinned memory.", _workers,
    ),
    Cause(
        "the device waits {ms} ms of a step for a checkpoint", "idle.checkpoint", _idle("checkpoint"), 0.9,
        "Save beside the training (asynchronous checkpoints), or less often.", _beside,
    ),
    Cause(
        "the device is idle {ms} ms of a step during evaluation", "idle.evaluate", _idle("evaluate"), 0.8,
        "Evaluate less often, on fewer samples, or in another job.",
    ),
    Cause(
        "the device waits {ms} ms of a step for encoders on the host", "idle.encode", _idle("encode"), 0.8,
        "Encode once and train from a cache of latents and embeddings.",
    ),
    Cause(
        "the device runs dry {ms} ms of a step while the host waits for it", "idle.sync", _idle("sync"), 0.8,
        "Remove what reads the device in every step: .item(), .cpu(), print of a tensor, synchronize().",
    ),
    Cause(
        "the device waits {ms} ms of a step for the host to issue work", "idle.launch", _idle("launch"), 0.6,
        "Issue less: a larger batch, compiled or fused operations, CUDA graphs, less Python between operators.",
    ),
    Cause(
        "the device waits {ms} ms of a step for memory to be allocated or freed", "idle.allocator", _idle("allocator"), 0.8,
        "Keep shapes constant so that the caching allocator reuses blocks (expandable_segments helps), and leave memory free.",
    ),
    Cause(
        "the device waits {ms} ms of a step for compilation", "idle.compile", _idle("compile"), 0.8,
        "Find what recompiles: shapes or Python values that change from step to step.",
    ),
    Cause(
        "the device waits {ms} ms of a step for Python's garbage collector", "idle.gc", _idle("gc"), 0.8,
        "Freeze or disable the collector and run it every so many steps on all ranks together.",
    ),
    Cause(
        "the device is idle {ms} ms of a step while the host is blocked in a collective", "idle.collective", _idle("collective"), 0.6,
        "Take barriers and object collectives out of the step.",
    ),
    Cause(
        "ranks wait {ms} ms of a step for the last one to arrive at a collective", "comm.wait",
        lambda name: name.startswith("comm.") and name.endswith(".wait"), 0.8,
        "Look at what the late rank does before the collective.",
    ),
    Cause(
        "collectives take {ms} ms of a step that no compute hides", "comm",
        lambda name: name.startswith("comm.") and not name.endswith(".wait"), 0.4,
        "Overlap them with compute (prefetch, more blocks per group), shard over fewer ranks, or reduce in bf16.",
    ),
)  # fmt: skip


def findings(ranks: Sequence[RankBreakdown], late: Mapping[int, int], spec: Mapping[str, Any] | None) -> tuple[Finding, ...]:
    """Findings over all profiled steps. `late` is time that each rank made others wait; `spec` the settings of a run of ours."""
    by_rank = [tuple(s for s in r.steps if s.buckets) for r in ranks]
    by_rank = [steps for steps in by_rank if steps]
    if not by_rank:
        return ()
    wall = statistics.fmean(statistics.median(s.wall_ns for s in steps) for steps in by_rank)
    out = []
    for cause in CAUSES:
        claimed = [[_claim(cause, s) for s in steps] for steps in by_rank]
        won = statistics.fmean(statistics.median(c) for c in claimed)
        if not wall or won < LEAST_SHARE * wall:
            continue
        evidence = [_evidence(cause, r, c) for r, c in zip([r for r in ranks if any(s.buckets for s in r.steps)], claimed, strict=True)]
        action = cause.action
        if cause.bucket == "comm.wait" and late:
            worst = max(late, key=lambda r: late[r])
            evidence.insert(0, f"rank {worst} arrives last for {late[worst] / sum(late.values()):.0%} of the waiting")
            action = f"Look at what rank {worst} does before the collective: its own buckets say."
        out.append(
            Finding(
                what=f"{cause.what.format(ms=f'{won / 1e6:.2f}')} ({won / wall:.0%})",
                bucket=cause.bucket,
                recoverable_ns=round(won),
                confidence=_confidence(cause, claimed),
                evidence=tuple(evidence[:8]),
                action=action,
                patch=cause.patch(spec) if spec else None,
            )
        )
    return tuple(sorted(out, key=lambda f: -f.recoverable_ns))


def _claim(cause: Cause, step: StepBreakdown) -> int:
    return sum(ns for name, ns in step.buckets.items() if cause.claims(name))


def _evidence(cause: Cause, rank: RankBreakdown, claimed: Sequence[int]) -> str:
    steps = [s for s in rank.steps if s.buckets]
    worst = max(range(len(steps)), key=lambda i: claimed[i])
    middle = statistics.median(claimed)
    return (
        f"rank {rank.rank} {rank.device}: {middle / 1e6:.2f} ms of a step (median of {len(steps)}), most in step {steps[worst].step}: "
        f"{claimed[worst] / 1e6:.2f} of {steps[worst].wall_ns / 1e6:.2f} ms"
    )


def _confidence(cause: Cause, claimed: Sequence[Sequence[int]]) -> float:
    """At best the cause's own; less where few steps were seen (n / (n + 1)) or only part of the steps show it."""
    num = min(len(c) for c in claimed)
    present = statistics.fmean(x > 0 for c in claimed for x in c)
    return round(cause.confidence * num / (num + 1) * present, 2)
