"""`KernelCounters`: what the hardware counted while one launch of a kernel ran, as Nsight Compute reports it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class KernelCounters:
    """One launch. Shares are of the device's peak, 0 to 1, over the time of the launch; None: not collected.

    The profiler locks clocks and repeats the launch, so `duration_ns` is not what it takes in the program.
    """

    source: str
    number: int  # of the profiled launch in its report
    name: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    device: int | None = None
    stream: int | None = None
    process: int | None = None
    duration_ns: int | None = None
    dram_bytes: int | None = None
    dram_share: float | None = None
    compute_share: float | None = None  # of the SMs: the busiest of their pipes
    tensor_share: float | None = None  # of the tensor pipe
    occupancy: float | None = None  # warps that were resident, of those that could be
