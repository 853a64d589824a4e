"""`MemoryBreakdown`: what the memory of one device was taken by when it was fullest; every reserved byte in exactly one part.

Parts (DESIGN: the twin of `StepBreakdown`), each a first word and often a second:

    parameters                    weights, their buffers, EMA copies
    gradients                     what a backward makes: of parameters and, in passing, of activations
    optimizer                     state of an optimizer and what its step needs in passing
    activations.<module>          outputs and saved tensors of a forward; (input) is the batch
    collectives.<what>            buffers of all-gathers, reduce-scatters, reduction buckets
    encoders                      frozen VAEs, text and image encoders
    workspace                     cuBLAS, cuDNN, autotuning
    fragmentation.<why>           reserved but allocated to nothing: pinned (in a segment with something alive), cached (in a segment with
                                  nothing alive), awaiting (freed, but another stream may still use it), private (in the pool of a
                                  CUDA graph, whose replays use it again), unseen (no layout known)
    unknown.<why>                 before (allocated before the recording began), frames (a stack that says nothing),
                                  counters (no blocks recorded)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headway.spec.health import Health

SCHEMA: Final = "headway.memory/1"
KINDS: Final = (
    "parameters", "gradients", "optimizer", "activations", "collectives", "encoders", "workspace", "fragmentation", "unknown",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Held:
    """Live blocks of one place in the code: how many, how large together, which part they belong to."""

    where: str  # file:line function
    part: str
    num_blocks: int
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class Pin:
    """A segment that cannot be given back, since something in it is alive, although `free_bytes` of it are not used."""

    address: int
    segment_bytes: int
    free_bytes: int
    largest_free_bytes: int  # the largest request that fits
    blocks: tuple[Held, ...]  # what is alive in it, the fewest bytes first: these hold the segment


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A request that ended out of memory, and the state at that moment; None where it was not recorded."""

    requested_bytes: int
    reserved_bytes: int
    allocated_bytes: int
    largest_free_bytes: int | None  # reserved, free and in one piece (of whatever pool or stream)
    device_free_bytes: int | None  # not reserved by this process


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Live bytes at the ends of steps that grow: `slope` bytes a step, in [low, high] with `confidence`."""

    where: str
    part: str
    slope: float
    low: float
    high: float
    confidence: float
    num_steps: int
    num_bytes: int  # from the first step end to the last


@dataclass(frozen=True, kw_only=True)
class Saving:
    """A way to make the peak smaller. `saves_bytes` is the most it can win; `patch` is a change of the RunSpec (dotted field -> value)."""

    what: str
    part: str
    saves_bytes: int
    confidence: float
    assumes: str
    evidence: tuple[str, ...] = ()
    action: str = ""
    patch: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryBreakdown:
    """Memory of one (rank, device) at its peak: the moment at which most is reserved and, among these, most is allocated. Bytes.

    `parts` is an exact partition of `reserved_bytes`. `time_ns` and `step` are None where the recording does not tell them. `curve`
    holds (time_ns or event number, reserved, allocated), the largest of each stretch.
    """

    rank: int
    device: str
    reserved_bytes: int
    allocated_bytes: int | None  # None: only the total is known
    parts: Mapping[str, int]
    source: str = ""
    measured: str = "snapshot"  # snapshot: by block; profiler: by block, no segments; counters: totals only
    time_ns: int | None = None
    step: int | None = None
    event: int = 0  # events recorded before the peak
    num_events: int = 0
    num_segments: int | None = None
    held: tuple[Held, ...] = ()  # what is alive at the peak by place, the largest first
    pins: tuple[Pin, ...] = ()  # the most free bytes first
    growth: tuple[Growth, ...] = ()  # leaks; empty: none found
    num_steps: int = 0  # step ends at which growth was looked for
    steps_from: str = ""  # what told where steps end
    savings: tuple[Saving, ...] = ()
    failures: tuple[Failure, ...] = ()  # the last requests that failed
    curve: tuple[tuple[int, int, int], ...] = ()
    health: tuple[Health, ...] = field(default_factory=tuple)

    def check(self) -> None:
        """Raises ValueError unless the parts sum to reserved_bytes, without negative ones, and allocation is within the reservation."""
        if sum(self.parts.values()) != self.reserved_bytes or min(self.parts.values(), default=0) < 0:
            raise ValueError(f"parts sum to {sum(self.parts.values())}, not to reserved_bytes {self.reserved_bytes}")
        free = sum(n for name, n in self.parts.items() if name.partition(".")[0] == "fragmentation")
        if self.allocated_bytes is not None and self.reserved_bytes - free != self.allocated_bytes:
            raise ValueError(f"fragmentation is {free}, not reserved - allocated = {self.reserved_bytes - self.allocated_bytes}")
        unknown = {name.partition(".")[0] for name in self.parts} - set(KINDS)
        if unknown:
            raise ValueError(f"no such parts: {', '.join(sorted(unknown))}")


def to_json(memory: MemoryBreakdown) -> dict[str, Any]:
    """One breakdown as plain data under the schema headway.memory/1."""
    from headway.spec.codec import encode

    data: dict[str, Any] = encode(memory)
    return {"schema": SCHEMA, **data}
