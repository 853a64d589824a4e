"""Events of a run: what each line of `events.jsonl` says, and the phases of a step.

A file per rank: `events.jsonl` of rank 0, `events.rankN.jsonl` of the others. A line is one JSON object with "kind" and "time_ns"
(wall clock, integer nanoseconds). Kinds:

- run: a process started: schema, rank, world, samples (it goes on from), versions, text.
- step: one optimizer step: step, samples (seen after it), start_ns, wall_ns, phases {phase: ns}; phases sum to wall_ns. Where there is
  something to say: gc_ns (in Python's collector), compiles, retries (of the allocator), switches (involuntary), shape (of the batch,
  where it changes), traced (a profiler was open).
- log: scalars of a log period: step, samples, loss, grad_norm, lr, samples_s, flops_s, mfu, hfu, loss_by_t, memory_bytes,
  clock_mhz (of a GPU) ...
- profile: a window was traced on this rank: first and last step, file.
- draws: with guard.trail, a hash of what this rank drew: step, hash.
- checkpoint, resume, stage, warning: what happened, as "text". end: reason, text, samples.
"""

from __future__ import annotations

from typing import Final

SCHEMA: Final = "headway.events/1"
PHASES: Final = (
    "input", "encode", "forward", "backward", "reduce", "clip", "optimizer", "ema", "checkpoint", "evaluate", "other",
)  # fmt: skip

STEP_PREFIX: Final = "ProfilerStep#"  # host mark of a step in a Kineto trace: ProfilerStep#N
PHASE_PREFIX: Final = "headway::phase::"  # host mark of a phase: headway::phase::forward
MODULE_PREFIX: Final = "headway::module::"  # host mark of a module: headway::module::blocks.3
COMM_PREFIX: Final = "headway::comm::"  # host mark of a collective's group: headway::comm::dp_shard


RECORDS: Final = frozenset(("run.json", "graph.json", "status.json", "evaluate.json", "trials.json"))  # JSON that a run keeps of itself


def events_file(rank: int) -> str:
    """Name of the events file of `rank`."""
    return "events.jsonl" if rank == 0 else f"events.rank{rank}.jsonl"


def memory_file(rank: int, step: int) -> str:
    """Name of the memory snapshot of `rank` over one step."""
    return f"memory{step:06d}.rank{rank}.pickle"


def trace_file(rank: int, first: int, last: int) -> str:
    """Name of the Kineto trace of `rank` over the steps [first, last]."""
    return f"steps{first:06d}-{last:06d}.rank{rank}.json.gz"
