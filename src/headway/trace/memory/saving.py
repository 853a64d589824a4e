"""What would make the peak smaller: each way with the most it can win, what that assumes, and the setting that does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from headway.spec.codec import at
from headway.spec.memory import MemoryBreakdown, Saving
from headway.trace.memory.repeat import Repeat

LEAST_SHARE = 0.02  # of the peak; what is smaller is not worth a line
_LARGE = 0.10  # of the peak, held by one block


def savings(
    found: MemoryBreakdown, spec: Mapping[str, Any] | None, *, repeated: Sequence[Repeat] = (), expandable: bool = False
) -> tuple[Saving, ...]:
    """All ways worth a line, the largest first. `repeated`: activations of repeated blocks that the program does not recompute;
    `expandable`: the allocator uses expandable segments already.

    They are told one by one: two of them together save less than their sum where both take from one part.
    """
    rules: Sequence[Callable[[], Iterable[Saving]]] = (
        lambda: _recompute(found, spec, repeated),
        lambda: _accumulate(found, spec),
        lambda: _shard(found, spec),
        lambda: _reshard(found, spec),
        lambda: _defragment(found, expandable),
        lambda: _unseen(found),
        lambda: _large(found),
        lambda: _leak(found),
    )
    least = LEAST_SHARE * found.reserved_bytes
    every = [s for rule in rules for s in rule() if s.saves_bytes >= max(least, 1)]
    return tuple(sorted(every, key=lambda s: -s.saves_bytes * s.confidence))


def _recompute(found: MemoryBreakdown, spec: Mapping[str, Any] | None, repeated: Sequence[Repeat]) -> Iterator[Saving]:
    """Of what n blocks of the network keep, n - 1 parts of n: the backward of one block needs its own again."""
    mode = at(spec, "remat.mode")
    if mode in (None, "none") and repeated:
        yield Saving(
            what="Activations of repeated blocks are kept for the backward",
            part="activations",
            saves_bytes=sum((r.num - 1) * r.size for r in repeated),
            confidence=0.7,
            assumes="every place with several live blocks of one size is in a repeated module, of which the input alone is kept (not taken "
            "off here); the backward then runs each forward again (about a third more compute)",
            evidence=tuple(f"{r.where}: {r.num} x {r.size:,} bytes" for r in repeated[:3]),
            action="Recompute the blocks in the backward (activation checkpointing).",
            patch={"remat.mode": "full"} if mode == "none" else None,
        )


def _accumulate(found: MemoryBreakdown, spec: Mapping[str, Any] | None) -> Iterator[Saving]:
    now, batch = at(spec, "accumulate"), at(spec, "global_batch")
    axes = [at(spec, f"mesh.{axis}") for axis in ("dp_replicate", "dp_shard")]
    if not (isinstance(now, int) and isinstance(batch, int) and all(isinstance(a, int) and a > 0 for a in axes)):
        return
    if batch % (2 * now * axes[0] * axes[1]):
        return
    total = sum(n for name, n in found.parts.items() if name.startswith("activations."))
    yield Saving(
        what="A micro-batch is larger than the memory likes",
        part="activations",
        saves_bytes=total // 2,
        confidence=0.8,
        assumes="activations are in proportion to the samples of a micro-batch; smaller ones may use the device less well",
        action="Halve the micro-batch: twice as many of them a step.",
        patch={"accumulate": 2 * now},
    )


def _shard(found: MemoryBreakdown, spec: Mapping[str, Any] | None) -> Iterator[Saving]:
    copies, shard = at(spec, "mesh.dp_replicate"), at(spec, "mesh.dp_shard")
    if not (isinstance(copies, int) and isinstance(shard, int) and copies > 1):
        return
    total = sum(n for name, n in found.parts.items() if name.partition(".")[0] in ("parameters", "gradients", "optimizer"))
    yield Saving(
        what=f"Parameters, gradients and optimizer state are held {copies} times",
        part="optimizer",
        saves_bytes=total * (copies - 1) // copies,
        confidence=0.7,
        assumes="all of it is sharded evenly; each rank gathers the parameters of one block at a time, which needs room and communication",
        action="Shard over all data ranks.",
        patch={"mesh.dp_shard": shard * copies, "mesh.dp_replicate": 1},
    )


def _reshard(found: MemoryBreakdown, spec: Mapping[str, Any] | None) -> Iterator[Saving]:
    if at(spec, "mesh.reshard") is not False:
        return
    yield Saving(
        what="Gathered parameters are kept from the forward to the backward",
        part="collectives.all_gather",
        saves_bytes=found.parts.get("collectives.all_gather", 0) // 2,
        confidence=0.6,
        assumes="at least half of what is gathered at the peak is of blocks that do not run then; each is gathered twice a step",
        action="Free them after the forward.",
        patch={"mesh.reshard": True},
    )


def _defragment(found: MemoryBreakdown, expandable: bool) -> Iterator[Saving]:
    if expandable:
        return
    free = found.parts.get("fragmentation.pinned", 0) + found.parts.get("fragmentation.cached", 0)
    shown = [
        f"a segment of {p.segment_bytes:,} bytes, {p.free_bytes:,} free, held by {p.blocks[0].num_blocks} x {p.blocks[0].where}"
        for p in found.pins[:3]
        if p.blocks
    ]
    yield Saving(
        what="Reserved memory is in pieces that nothing fits into",
        part="fragmentation",
        saves_bytes=free,
        confidence=0.6,
        assumes="expandable segments map free pages where they are needed; less than 2 MiB a block stays, which is not taken off here",
        evidence=tuple(shown),
        action="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the program starts.",
    )


def _unseen(found: MemoryBreakdown) -> Iterator[Saving]:
    yield Saving(
        what="Memory is reserved and not allocated, and a profiler does not say why",
        part="fragmentation",
        saves_bytes=found.parts.get("fragmentation.unseen", 0),
        confidence=0.3,
        assumes="none of it is needed at another moment",
        action="Take a snapshot (torch.cuda.memory._record_memory_history() before, _dump_snapshot(FILE) after) and explain it.",
    )


def _large(found: MemoryBreakdown) -> Iterator[Saving]:
    for h in found.held:
        if (
            h.num_blocks == 1
            and h.num_bytes >= _LARGE * found.reserved_bytes
            and h.part.partition(".")[0] in ("activations", "gradients", "encoders")
        ):
            yield Saving(
                what=f"One block of {h.where} takes {h.num_bytes / found.reserved_bytes:.0%} of the peak",
                part=h.part,
                saves_bytes=h.num_bytes // 2,
                confidence=0.4,
                assumes="it can be made in two halves, one after the other (a loss over tokens can, a decoder over tiles or frames can)",
                action="Make it in pieces, or in a smaller number format.",
            )


def _leak(found: MemoryBreakdown) -> Iterator[Saving]:
    for g in found.growth:
        yield Saving(
            what=f"{g.where} grows by {g.slope:,.0f} bytes a step",
            part=g.part,
            saves_bytes=max(0, g.num_bytes),
            confidence=0.9,
            assumes="nothing needs what was made in earlier steps; it goes on growing until memory ends",
            evidence=(f"{g.num_bytes:,} bytes over {g.num_steps} steps, slope in [{g.low:,.0f}, {g.high:,.0f}]",),
            action="Do not keep tensors of a step (losses with their graph, lists of outputs) beyond it: detach or convert them.",
        )
