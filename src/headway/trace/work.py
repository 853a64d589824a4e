"""The work of each device of a trace: compute, collectives and copies, with the host thread and moment that launched each.

On a GPU that is what the profiler recorded on the device. In a trace of CPUs alone the training thread and its autograd threads are the
device, a leaf operator is a kernel, and a collective on a Gloo thread is communication. An operator that calls only views and copies
(addmm expands its bias) is a leaf too: it does the work itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import COMPUTE_CLASSES
from headway.trace import classify, marks
from headway.trace.host import Host, training_track
from headway.trace.ranks.groups import Comm, describe
from headway.trace.sweep import Ints, classes, depth, distinct, inside, union
from headway.trace.table import DEVICE_WORK, Kind, Table

NUM_CLASSES = len(classify.LEVEL)
_PREPARES = (classify.LEVEL["copy"], classify.LEVEL["other"])
COMM, H2D, D2H = NUM_CLASSES, NUM_CLASSES + 1, NUM_CLASSES + 2  # levels after the compute classes, in order of priority
BUCKETS: Final = (
    *(f"compute.{c}" for c in COMPUTE_CLASSES),
    "comm",
    "copy.h2d",
    "copy.d2h",
)  # of each level; comm goes on: .name.axis.part


@dataclass(frozen=True, kw_only=True)
class Work:
    """Device work of one (rank, device), sorted by start. `level` orders what wins when several run at once."""

    device: str
    start: Ints
    end: Ints
    level: Ints
    track: Ints  # host track that launched it, -1 if unknown
    launched: Ints  # when; its own start if unknown
    linked: NDArray[np.bool_]
    row: Ints  # row of the table
    comm: tuple[Comm, ...]  # the different collectives
    comm_of: Ints  # index into comm, -1 for other work
    number: Ints  # of a collective: how many of its group came before it, as the group counts; -1 unknown
    name: Ints  # code into names
    names: tuple[str, ...]  # of kernels, copies, operators

    def __len__(self) -> int:
        return len(self.start)

    @property
    def comm_bytes(self) -> Ints:
        """Bytes of each of `comm`; -1 unknown."""
        return np.array([-1 if c.bytes is None else c.bytes for c in self.comm], np.int64)


def works(table: Table, host: Host) -> tuple[Work, ...]:
    """Work per device, in order of device number; one named cpu when the trace has none."""
    rows = table.rows(*DEVICE_WORK)
    if not len(rows):
        return (_cpu(table),) if host.training >= 0 else ()
    level, track, launched, linked = _levels(table, rows), *_launches(table, rows)
    out = []
    for device in distinct(table.device[rows]):
        mine = table.device[rows] == device
        comm, comm_of, number = describe(table, rows[mine], level[mine] == COMM, track[mine], launched[mine])
        name, names = _names(table, rows[mine])
        out.append(
            Work(
                device=f"{table.maker}:{device}",
                start=table.start[rows[mine]],
                end=table.end[rows[mine]],
                level=level[mine],
                track=track[mine],
                launched=launched[mine],
                linked=linked[mine],
                row=rows[mine],
                comm=comm,
                comm_of=comm_of,
                number=number,
                name=name,
                names=names,
            )
        )
    return tuple(out)


def _levels(table: Table, rows: Ints) -> Ints:
    kind = table.kind[rows]
    kernels = table.coded(lambda n: COMM if classify.is_collective(n) else classify.LEVEL[classify.kernel(n)])[rows]
    ways = {"h2d": H2D, "d2h": D2H, "p2p": COMM, "d2d": classify.LEVEL["copy"]}
    copies = table.coded(lambda n: ways[classify.copy(n)])[rows]
    return np.where(kind == Kind.KERNEL, kernels, np.where(kind == Kind.MEMCPY, copies, classify.LEVEL["copy"]))


def _launches(table: Table, rows: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Host track and start of the call with the same correlation id; id 0 or none is no link.

    Where several calls share an id (files of several processes merged), the last that started no later than the work is taken.
    """
    calls = table.rows(Kind.RUNTIME)
    calls = calls[table.correlation[calls] > 0]
    track, launched = np.full(len(rows), -1, np.int64), table.start[rows].copy()
    linked = np.zeros(len(rows), bool)
    if not len(calls):
        return track, launched, linked
    calls = calls[np.argsort(table.correlation[calls], kind="stable")]  # within one id in order of start
    ids = table.correlation[calls]
    wanted = table.correlation[rows]
    low, high = np.searchsorted(ids, wanted, side="left"), np.searchsorted(ids, wanted, side="right")
    linked = high > low
    at = np.where(linked, high - 1, 0)
    for _ in range(int((high - low).max()) - 1 if linked.any() else 0):
        late = linked & (table.start[calls[at]] > table.start[rows]) & (at > low)
        if not late.any():
            break
        at = at - late
    return np.where(linked, table.track[calls[at]], -1), np.where(linked, table.start[calls[at]], launched), linked


def _cpu(table: Table) -> Work:
    """Leaf operators of the training thread and of threads that run backward nodes; Gloo's spans of the whole process."""
    operators = table.rows(Kind.OPERATOR)
    on_gloo = (table.kind == Kind.MARK) & table.named(lambda n: n.startswith("gloo:"))
    backward = table.named(lambda n: n.startswith("autograd::engine::evaluate_function"))
    threads = distinct(np.append(table.track[operators][backward[operators]], training_track(table)))
    hidden = table.named(_issues)  # these hand work over or wait; they compute nothing
    computes = ~np.isin(table.coded(lambda n: classify.LEVEL[classify.operator(n)]), _PREPARES)
    leaves = np.concatenate([_leaves(table, operators[table.track[operators] == t], computes) for t in threads])
    leaves = np.sort(leaves[~hidden[leaves]])
    gloo = np.flatnonzero(on_gloo)
    rows = np.concatenate((leaves, gloo))
    level = np.concatenate(
        (table.coded(lambda n: classify.LEVEL[classify.operator(n)])[leaves], np.full(len(gloo), COMM, np.int64)),
    )
    order = np.argsort(table.start[rows], kind="stable")
    rows, level = rows[order], level[order]
    track, launched = table.track[rows].copy(), table.start[rows].copy()
    is_comm = level == COMM
    source = _gloo_launches(table, rows[is_comm])
    known = source >= 0
    track[is_comm] = np.where(known, table.track[source], -1)
    launched[is_comm] = np.where(known, table.start[source], launched[is_comm])
    comm, comm_of, number = describe(table, rows, is_comm, track, launched, source)
    linked = np.ones(len(rows), bool)
    linked[is_comm] = known
    name, names = _names(table, rows)
    return Work(
        device="cpu",
        start=table.start[rows],
        end=table.end[rows],
        level=level,
        track=track,
        launched=launched,
        linked=linked,
        row=rows,
        comm=comm,
        comm_of=comm_of,
        number=number,
        name=name,
        names=names,
    )


def _names(table: Table, rows: Ints) -> tuple[Ints, tuple[str, ...]]:
    """Codes of the names of these rows, and those names alone."""
    codes, name = classes(table.name[rows])
    return name, tuple(table.names[i] for i in codes[:, 0].tolist())


def _issues(name: str) -> bool:
    return name.startswith(("c10d::", "_c10d_functional::", "record_param_comms"))


def _leaves(table: Table, rows: Ints, computes: NDArray[np.bool_]) -> Ints:
    """Kernels among the operators of one thread: those that call no operator that computes, outermost first."""
    rows = rows[table.end[rows] > table.start[rows]]
    kernels = _childless(table, rows[computes[rows]])
    small = _childless(table, rows)
    small = small[~inside(union(table.start[kernels], table.end[kernels]), table.start[small])]
    return np.concatenate((kernels, small))


def _childless(table: Table, rows: Ints) -> Ints:
    """Rows of one thread, in order of (start, longest first), in which none of the others is nested."""
    level = depth(table.start[rows], table.end[rows])
    calls = np.zeros(len(rows), bool)
    calls[:-1] = level[1:] > level[:-1]
    childless: Ints = rows[~calls]
    return childless


def _gloo_launches(table: Table, gloo: Ints) -> Ints:
    """The host operator that handed over each Gloo span; -1 if there is none.

    Gloo's queue is first in, first out: the k-th span belongs to the k-th operator. Where their numbers differ (the trace begins or
    ends inside one), it is the last operator before the span.
    """
    issued = np.flatnonzero((table.kind == Kind.OPERATOR) & table.named(marks.launches_gloo))
    if not len(issued):
        return np.full(len(gloo), -1, np.int64)
    if len(issued) == len(gloo) and (table.start[issued] <= table.start[gloo]).all():
        return issued
    index = np.searchsorted(table.start[issued], table.start[gloo], side="right") - 1
    return np.where(index >= 0, issued[np.maximum(index, 0)], -1)
