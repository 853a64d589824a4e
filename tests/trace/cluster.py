"""What is simulated (`tests.trace.simulate`): a cluster with its planted causes and clocks, and a run of it in true time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What is simulated. Times are nanoseconds; mappings are by rank, and ranks that they leave out are as the others."""

    mesh: Mapping[str, int] = field(default_factory=lambda: {"dp": 2})
    ranks_per_host: int = 8
    steps: int = 5
    layers: int = 4
    kernels: int = 4  # of the forward of one layer
    kernel_ns: float = 200_000
    gemm: tuple[int, int, int] = (4096, 4096, 4096)  # m, k, n that the host says of each product
    optimizer_kernels: int = 4
    optimizer_ns: float = 100_000  # each
    launch_ns: float = 8_000  # of the host for one kernel
    input_ns: float = 50_000  # of the training thread for one batch
    gradient_bytes: int = 64 << 20  # of one layer, also its weights
    activation_bytes: int = 16 << 20  # of one layer, for tp and pp
    bandwidth: float = 200e9  # bus bytes a second
    hop_ns: float = 4_000
    overlap: bool = True
    norm: bool = True  # gradients are clipped by their norm: a small all-reduce along each axis before the optimizer
    syncs: int = 1  # times a step in which the host waits for the device: the last at its end, others between layers of the forward
    noise: float = 0.0
    end_jitter_ns: float = 0.0
    seed: int = 0
    # planted causes
    slow_compute: Mapping[int, float] = field(default_factory=dict)  # factor on its kernels
    slow_host: Mapping[int, float] = field(default_factory=dict)  # factor on its launches
    slow_link: Mapping[int, float] = field(default_factory=dict)  # factor on the transfers of every group it is in
    late_input_ns: Mapping[int, float] = field(default_factory=dict)  # more for each of its batches
    gc_ns: Mapping[int, float] = field(default_factory=dict)  # in Python's collector, each step, before the backward
    save_ns: Mapping[int, float] = field(default_factory=dict)  # of its training thread, each step, after the optimizer is issued
    retries: int = 0  # requests of a step, in the backward, for which the allocator gives its segments back
    free_bytes: int = 8 << 30  # reserved and not allocated then; each request asks for 1 GiB
    # clocks
    offset_ns: Mapping[int, float] = field(default_factory=dict)
    drift_ppm: Mapping[int, float] = field(default_factory=dict)
    end_bias_ns: Mapping[int, float] = field(default_factory=dict)  # its collectives end so much later

    @property
    def world(self) -> int:
        """Number of ranks."""
        return prod(self.mesh.values())


@dataclass(frozen=True)
class Span:
    """One span on every rank of `where`; `args` are the same for all, `of_rank` are not."""

    cat: str
    name: str
    start: Array
    end: Array
    where: NDArray[np.bool_]
    stream: int = -1  # -1: the host
    args: Mapping[str, Any] = field(default_factory=dict)
    of_rank: Mapping[str, Any] = field(default_factory=dict)  # argument -> a value a rank


@dataclass(frozen=True)
class Moved:
    """One collective in true time: begin and end on each rank of `where`, and when the last rank of each one's group began."""

    step: int
    name: str
    axis: str
    begin: Array
    end: Array
    last: Array
    where: NDArray[np.bool_]


@dataclass(frozen=True)
class Run:
    """A simulated run in true time (nanoseconds from its begin)."""

    cluster: Cluster
    spans: tuple[Span, ...]
    moved: tuple[Moved, ...]
    step_end: Array  # [steps, ranks]: the device has done all of the step

    @property
    def step_ns(self) -> float:
        """Time of a step: between the ends of the first and the last, over the slowest rank."""
        ends = self.step_end.max(axis=1)
        return float(ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else float(ends[0])

    def local(self, rank: int, time: Array | float) -> Array:
        """`time` as the clock of `rank` shows it, in whole nanoseconds."""
        c = self.cluster
        local: Array = np.rint(np.asarray(time) * (1 + c.drift_ppm.get(rank, 0.0) * 1e-6) + c.offset_ns.get(rank, 0.0))
        return local


def groups(mesh: Mapping[str, int], axis: str) -> NDArray[np.int64]:
    """[groups, size of the axis]: global ranks, where rank counts the mesh outermost first."""
    ranks = np.arange(prod(mesh.values())).reshape(tuple(mesh.values()))
    return np.moveaxis(ranks, list(mesh).index(axis), -1).reshape(-1, mesh[axis])
