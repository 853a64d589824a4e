"""`StepBreakdown`: where one step of one device went; every nanosecond in exactly one bucket.

Names of buckets (DESIGN: the currency of the analysis wing):

    compute.<class>                                   a compute kernel runs
    comm.<collective>.<axis>.transfer|wait|unsplit    no compute, a collective or peer copy runs
    copy.h2d, copy.d2h                                neither, a host-device copy runs
    idle.<cause>                                      the device is idle; cause = what the launching host thread did
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headway.spec.cliff import Cliff
from headway.spec.counters import KernelCounters
from headway.spec.finding import Finding
from headway.spec.flight import GroupState
from headway.spec.health import Health as Health
from headway.spec.kernel import KernelUse
from headway.spec.memory import MemoryBreakdown
from headway.spec.nccl import NcclLinks
from headway.spec.straggler import Straggler

SCHEMA: Final = "headway.breakdown/1"
COMPUTE_CLASSES: Final = (
    "gemm", "attention", "conv", "norm", "elementwise", "reduce", "gather", "quantize", "optimizer", "copy", "custom", "other",
)  # fmt: skip
IDLE_CAUSES: Final = (
    "input", "encode", "checkpoint", "evaluate", "sync", "launch", "allocator", "compile", "gc", "collective", "unknown",
)  # fmt: skip
_IF_PRESENT: Final = ("flight", "nccl", "counters")  # keys of the JSON that only some inputs have
COMM_PARTS: Final = ("transfer", "wait", "unsplit")


@dataclass(frozen=True, kw_only=True)
class StepBreakdown:
    """One step on one (rank, device). Integers are nanoseconds unless the name says otherwise.

    `buckets`, `phases`, `modules` and `graphs` are exact partitions of the window [start_ns, start_ns + wall_ns); `buckets` is empty
    for a step that was not profiled, the last two where the trace knows none.
    """

    step: int
    start_ns: int
    wall_ns: int
    buckets: Mapping[str, int]
    phases: Mapping[str, int]
    modules: Mapping[str, int] = field(default_factory=dict)
    graphs: Mapping[str, int] = field(default_factory=dict)  # that torch.compile made; "none" is the rest
    hidden_comm_ns: int = 0  # at least one collective ran under compute
    hidden_comm_by_axis_ns: Mapping[str, int] = field(default_factory=dict)  # the same for each axis; they may overlap
    comm: tuple[Mapping[str, Any], ...] = ()  # per collective and axis: count, bytes, busy_ns, bus_bytes_s
    concurrency: float = 0.0  # mean number of compute kernels while at least one runs
    num_kernels: int = 0
    unlinked: int = 0  # device work whose launch is unknown, counted in the window in which it starts
    flops: int | None = None
    floors: Mapping[str, int] = field(default_factory=dict)  # class -> the least time of its kernels whose shapes are known
    floor_coverage: float | None = None  # share of compute time whose floor is known
    recoverable: Mapping[str, int] = field(default_factory=dict)  # class -> measured time of those kernels less their floor
    mfu: float | None = None  # model FLOP/s over the peak
    hfu: float | None = None  # the same with the forwards that activation checkpointing repeats

    def check(self) -> None:
        """Raises ValueError unless every partition sums to wall_ns, without negative parts."""
        for name in ("buckets", "phases", "modules", "graphs"):
            parts = getattr(self, name)
            if parts and (sum(parts.values()) != self.wall_ns or min(parts.values()) < 0):
                raise ValueError(f"{name} of step {self.step} sum to {sum(parts.values())}, not to wall_ns {self.wall_ns}")


@dataclass(frozen=True, kw_only=True)
class RankBreakdown:
    """All steps of one (rank, device)."""

    rank: int
    device: str  # as torch calls it: "cuda:0" (AMD too), "xpu:0", "mtia:0", "cpu", ...
    steps: tuple[StepBreakdown, ...]
    source: str = ""  # the file it was read from
    kernels: tuple[KernelUse, ...] = ()  # of the traced windows, the longest first
    clock_offset_ns: int | None = None  # ahead of the lowest rank's clock, in the middle of the trace
    clock_interval_ns: int | None = None  # half of the interval that holds the truth; 0: the same clock; None: nothing compares them
    clock_drift_ppm: float | None = None
    clock_source: str = ""  # host (shared with the lowest rank), presumed (hosts unknown), collectives (their ends), none


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """The answer of `headway explain`."""

    ranks: tuple[RankBreakdown, ...]
    health: tuple[Health, ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    cliffs: tuple[Cliff, ...] = ()  # where the steps of a run became slower, from its events
    stragglers: tuple[Straggler, ...] = ()  # ranks slower than their peers by more than chance
    memory: tuple[MemoryBreakdown, ...] = ()  # one a (rank, device) whose memory was recorded
    flight: tuple[GroupState, ...] = ()  # where process groups stand, by flight recorders
    nccl: tuple[NcclLinks, ...] = ()  # communicators and their links, by NCCL's logs
    counters: tuple[KernelCounters, ...] = ()  # of launches that Nsight Compute profiled; joined to `kernels` where a trace has them


def to_json(breakdown: Breakdown) -> dict[str, Any]:
    """`breakdown` as plain data under the schema headway.breakdown/1."""
    from headway.spec.codec import encode

    data: dict[str, Any] = encode(breakdown)
    return {"schema": SCHEMA, **{key: value for key, value in data.items() if value or key not in _IF_PRESENT}}


def group(buckets: Mapping[str, int]) -> dict[str, int]:
    """Buckets summed by their first word: compute, comm, copy, idle."""
    out: dict[str, int] = {}
    for name, ns in buckets.items():
        head = name.partition(".")[0]
        out[head] = out.get(head, 0) + ns
    return out


def add(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Several bucket tables added up."""
    out: dict[str, int] = {}
    for part in parts:
        for name, ns in part.items():
            out[name] = out.get(name, 0) + ns
    return out
