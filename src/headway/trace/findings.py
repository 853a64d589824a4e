"""Causes of lost time, ranked by what a replay of the run wins without each.

`recoverable_ns` is the measured step less the step simulated again with the cause taken out, overlap and all ranks respected, as a mean
over steps and devices. A nanosecond is claimed by one finding only: causes are taken out one after another, the largest first.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.spec.breakdown import RankBreakdown
from headway.spec.finding import Finding
from headway.trace import patches
from headway.trace.evidence import evidence, in_bucket
from headway.trace.memory.retry import Retries, lines, reason
from headway.trace.patches import Patch
from headway.trace.replay.question import Answer, answers, questions
from headway.trace.replay.run import Replay

LEAST_SHARE = 0.01  # of a step; what is smaller is not worth a line


@dataclass(frozen=True)
class Cause:
    """One kind of finding: what it says ({ms} of a step, {rank}, {thing} are filled in), how sure it is at best, what to do."""

    what: str
    confidence: float
    action: str
    patch: Patch = patches.none


CAUSES: Mapping[str, Cause] = {
    "input": Cause(
        "The device waits {ms} ms of a step for input", 0.9,
        "Decode and copy the next batches while the device works: more loader workers, prefetch, pinned memory.", patches.workers,
    ),
    "encode": Cause(
        "The device waits {ms} ms of a step for encoders on the host", 0.8, "Encode once and train from a cache of latents and embeddings.",
    ),
    "checkpoint": Cause(
        "The device waits {ms} ms of a step for a checkpoint", 0.9,
        "Save beside the training (asynchronous checkpoints), or less often.", patches.checkpoint,
    ),
    "evaluate": Cause("The device waits {ms} ms of a step for evaluation", 0.8, "Evaluate less often, or in a process of its own."),
    "sync": Cause(
        "The device runs dry {ms} ms of a step because the host waits for it", 0.8,
        "Remove what reads the device in every step: .item(), .cpu(), print of a tensor, synchronize().", patches.log_less,
    ),
    "launch": Cause(
        "The device waits {ms} ms of a step for the host to issue {thing}", 0.7,
        "Issue less: a larger batch, compiled or fused operations, CUDA graphs, less Python between operators.", patches.larger,
    ),
    "allocator": Cause(
        "The device waits {ms} ms of a step for memory to be allocated or freed", 0.8,
        "Keep shapes constant so that the caching allocator reuses blocks (expandable_segments helps), and leave memory free.",
    ),
    "fragmentation": Cause(
        "The device waits {ms} ms of a step because free memory is in pieces: the allocator gives its cache back and asks again", 0.8,
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the program starts; keep shapes constant.",
    ),
    "full": Cause(
        "The device waits {ms} ms of a step because its memory is full: the allocator gives its cache back and asks again", 0.8,
        "Leave memory free: smaller micro-batches, activations recomputed, more shards.", patches.less_memory,
    ),
    "retries": Cause(
        "The device waits {ms} ms of a step because the allocator finds no block, gives its cache back and asks again", 0.7,
        "Memory is full or in pieces; a trace with profile_memory=True tells which: leave some free, or set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    ),
    "compile": Cause(
        "The device waits {ms} ms of a step for compilation", 0.8,
        "Find what recompiles: shapes or Python values that change from step to step.",
    ),
    "gc": Cause(
        "The device waits {ms} ms of a step for Python's garbage collector", 0.8,
        "Freeze or disable the collector and run it every so many steps on all ranks together.",
    ),
    "collective": Cause(
        "The device is idle {ms} ms of a step while the host is blocked in a collective", 0.6,
        "Take barriers and object collectives out of the step.",
    ),
    "slow rank": Cause(
        "Rank {rank} computes slower than the others: {ms} ms of a step", 0.8,
        "Look at the clocks, heat and neighbours of its device; leave the node out if it stays so.",
    ),
    "slow link": Cause(
        "Collectives of some groups move data slower than others of their size: {ms} ms of a step", 0.7,
        "Look at the links of the ranks named: cables, adapters, routes, other traffic.",
    ),
    "overlap": Cause(
        "Collectives take {ms} ms of a step that compute could hide", 0.6,
        "Gather weights a layer ahead and reduce gradients beside the backward (prefetch, more blocks per group).", patches.keep_gathered,
    ),
    "late rank": Cause(
        "Ranks wait {wait} ms of a step for the last one to arrive at a collective", 0.8,
        "Look at what rank {rank} does before the collective; what the findings above win is not counted again here.",
    ),
    "floor": Cause(
        "{thing} take {ms} ms of a step more than their floor", 0.5,
        "Give products sizes that fill the device (multiples of 128, larger batches), in bf16 or fp8, with layouts that need no copies.",
    ),
    "fuse": Cause(
        "{thing} take {ms} ms of a step more than moving their bytes once", 0.5,
        "Fuse chains of them (torch.compile, fused kernels), so that each tensor is read and written once.",
    ),
}  # fmt: skip

_BOUND_BY_MEMORY = ("norm", "elementwise", "reduce", "gather", "quantize", "copy", "optimizer")
_CALLED = {
    "gemm": "Matrix products", "attention": "Attention kernels", "conv": "Convolutions", "norm": "Normalisations",
    "elementwise": "Elementwise kernels", "reduce": "Reductions", "gather": "Gathers and scatters", "quantize": "Conversions of formats",
    "optimizer": "Optimizer kernels", "copy": "Copies on the device",
}  # fmt: skip
_SMALL_NS = 20_000  # kernels shorter than this in the median cannot hide their launch


def findings(
    ranks: Sequence[RankBreakdown],
    late: Mapping[int, int],
    run: Replay | None,
    spec: Mapping[str, Any] | None,
    retries: Sequence[tuple[int, Retries]] = (),
    *,
    slow: Collection[int] | None = None,
) -> tuple[Finding, ...]:
    """Findings over all profiled steps. `late` is time that each rank made others wait; `spec` the settings of a run of ours;
    `retries` those of allocators, by rank; `slow` the ranks whose compute is slower by more than chance, None if that cannot be told.
    """
    profiled = [replace(r, steps=kept) for r in ranks if (kept := tuple(s for s in r.steps if s.buckets))]
    if run is None or not profiled or not run.base.step_ns > 0:
        return ()
    steps = [s for r in profiled for s in r.steps]
    idle = {n.removeprefix("idle.") for s in steps for n, ns in s.buckets.items() if ns and n.startswith("idle.")}
    wait = statistics.fmean(sum(ns for n, ns in s.buckets.items() if n.startswith("comm.") and n.endswith(".wait")) for s in steps)
    worst = max(late, key=lambda r: late[r]) if late and wait >= LEAST_SHARE * run.base.step_ns else None
    found = answers(run, list(questions(run, idle, worst, slow)), LEAST_SHARE * run.base.step_ns)
    return tuple(_finding(a, run, profiled, late, wait, spec, retries) for a in found if round(a.gain_ns) > 0)


def _finding(
    answer: Answer,
    run: Replay,
    ranks: Sequence[RankBreakdown],
    late: Mapping[int, int],
    wait: float,
    spec: Mapping[str, Any] | None,
    retries: Sequence[tuple[int, Retries]],
) -> Finding:
    asked, kind, shown = answer.question, answer.question.kind, evidence(answer, run, ranks, late)
    thing = _CALLED.get(asked.bucket.removeprefix("compute."), asked.bucket)
    if kind == "floor" and asked.bucket.removeprefix("compute.") in _BOUND_BY_MEMORY:
        kind = "fuse"
    elif kind == "launch":
        thing = "many small kernels" if _small(run) else "work"
    elif kind == "allocator":
        kind, shown = reason(r for _, r in retries), (*lines(retries, {r.rank: len(r.steps) for r in ranks}), *shown)
    cause = CAUSES[kind]
    words = {"ms": f"{answer.gain_ns / 1e6:.2f}", "rank": asked.rank, "thing": thing, "wait": f"{wait / 1e6:.2f}"}
    return Finding(
        what=cause.what.format(**words),
        bucket=asked.bucket,
        recoverable_ns=round(answer.gain_ns),
        confidence=_confidence(cause, asked.bucket, ranks),
        evidence=shown[:8],
        action=cause.action.format(**words),
        bucket_ns=round(statistics.fmean(in_bucket(s, asked.bucket) for r in ranks for s in r.steps)),
        patch=cause.patch(spec, answer.gain_ns / run.base.step_ns) if spec else None,
    )


def _small(run: Replay) -> bool:
    """Whether the kernels of the run are too short to hide the launches of the next."""
    return statistics.median(int(ns) for s in run.seats for ns in (s.work.end - s.work.start).tolist()) < _SMALL_NS


def _confidence(cause: Cause, bucket: str, ranks: Sequence[RankBreakdown]) -> float:
    """At best the cause's own; less where few steps were seen (n / (n + 1)) or only part of the steps show it."""
    num = min(len(r.steps) for r in ranks)
    present = statistics.fmean(in_bucket(s, bucket) > 0 for r in ranks for s in r.steps)
    return round(cause.confidence * num / (num + 1) * max(present, 0.1), 2)
