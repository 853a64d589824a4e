"""`KernelUse`: what all launches of one kernel (or copy, or operator of a CPU) cost on one device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class KernelUse:
    """Sums over the traced windows of one device. Spans of one kernel are added as they are, whatever ran beside them. Times are ns."""

    name: str
    kind: str  # compute.<class>, comm.<collective>, copy.h2d, copy.d2h
    count: int
    total_ns: int
    median_ns: int  # of a launch
    floor_ns: int | None = None  # of the launches whose floor is known
    known_ns: int = 0  # time of those launches
    num_steps: int = 0  # windows in which launches were looked for
    deviation_ns: float | None = None  # of the time a window, between windows; None: fewer than two
    operator: str = ""  # the host operator that launched most of it
    counted: int = 0  # launches whose counters are known (Nsight Compute); the shares of peaks that follow are theirs, weighted by time
    dram_share: float | None = None
    compute_share: float | None = None  # of the SMs
    tensor_share: float | None = None  # of the tensor pipe
    occupancy: float | None = None
    dram_bytes: int | None = None  # of a launch
    module: str = ""  # where most of it was launched, numbers as *: blocks.*.attn
