"""Ranks that only meet: seats made straight from arrays, with clocks that are known. For properties over many cases, and for size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from headway.trace.ranks.groups import Comm
from headway.trace.ranks.match import Seat
from headway.trace.windows import Windows
from headway.trace.work import COMM, Work
from tests.trace.simulate import groups

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Clocks and collectives of one run. Times are nanoseconds; `drift` is nanoseconds a nanosecond. Arrays have one entry a rank."""

    mesh: Mapping[str, int]
    offset: Array
    drift: Array
    bias: Array  # its collectives end so much later, always
    jitter: float = 1_000.0  # deviation of ends
    hop: float = 5_000.0
    late: float = 50_000.0  # deviation of arrivals
    lag: Array | None = None  # it arrives so much later, always
    wild: float = 0.0  # share of ends that are up to 2 ms late
    steps: int = 20
    each: int = 3  # collectives of each group in a step
    step_ns: float = 5e7
    hosts: Sequence[str] = ()
    seed: int = 0

    @property
    def world(self) -> int:
        """Number of ranks."""
        return prod(self.mesh.values())

    def ahead(self, time: Array | float) -> Array:
        """[ranks, ...]: how far each clock is ahead of true time."""
        time = np.asarray(time, np.float64)
        return self.offset.reshape(-1, *[1] * time.ndim) + np.multiply.outer(self.drift, time)


def seats(case: Case) -> list[Seat]:
    """One seat a rank: in each step, `each` all-reduces along every axis."""
    rng = np.random.default_rng(case.seed)
    n, axes = case.world, [a for a, size in case.mesh.items() if size > 1]
    num = case.steps * case.each * len(axes)
    clock = np.arange(num) * case.step_ns / (case.each * len(axes))
    begin = clock[:, None] + np.abs(rng.standard_normal((num, n))) * case.late + (0.0 if case.lag is None else case.lag)
    end = np.empty_like(begin)
    comm_of = np.arange(num) % len(axes)
    members = [groups(case.mesh, a) for a in axes]
    for k, of in enumerate(members):
        rows = np.flatnonzero(comm_of == k)
        time = 2 * (of.shape[1] - 1) * case.hop
        last = begin[rows][:, of].max(axis=2)
        end[np.ix_(rows, of.ravel())] = np.repeat(last + time, of.shape[1], axis=1)
    end += case.bias + case.jitter * np.abs(rng.standard_normal((num, n)))
    end += np.where(rng.random((num, n)) < case.wild, rng.uniform(0, 2e6, (num, n)), 0.0)
    out = []
    for rank in range(n):
        group = [tuple(next(g for g in of.tolist() if rank in g)) for of in members]
        comms = tuple(Comm("all_reduce", a, g, 1024) for a, g in zip(axes, group, strict=True))
        out.append(_seat(case, rank, begin[:, rank], end[:, rank], comms, comm_of))
    return out


def _seat(case: Case, rank: int, begin: Array, end: Array, comms: tuple[Comm, ...], comm_of: NDArray[np.int64]) -> Seat:
    def local(time: Array) -> NDArray[np.int64]:
        out: NDArray[np.int64] = np.rint(time + case.ahead(time)[rank]).astype(np.int64)
        return out

    start = local(begin)
    order = np.argsort(start, kind="stable")
    edges = local(np.arange(case.steps + 1.0) * case.step_ns)
    none = np.full(len(start), -1, np.int64)
    work = Work(
        device=f"cuda:{rank}", start=start[order], end=local(end)[order], level=np.full(len(start), COMM), track=none,
        launched=start[order], linked=np.ones(len(start), bool), row=np.arange(len(start)), comm=comms, comm_of=comm_of[order], number=none,
        name=np.zeros(len(start), np.int64), names=("all_reduce",),
    )  # fmt: skip
    return Seat(rank, work, Windows(tuple(range(case.steps)), edges, edges[1:]), case.hosts[rank] if case.hosts else f"node{rank}")
