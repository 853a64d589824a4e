"""What a replay needs of one device beside its work: streams, what the host did, where it was blocked, and which calls order streams.

The threads of a process that launch work hand over to one another (training thread, autograd thread), so a process has one host clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import IDLE_CAUSES
from headway.trace import marks
from headway.trace.host import LAUNCH, Host
from headway.trace.memory.retry import FREE
from headway.trace.sweep import EMPTY, Ints, Steps, distinct, inside, union
from headway.trace.table import Kind, Table
from headway.trace.windows import Windows
from headway.trace.work import NUM_CLASSES, Work

HIDDEN: Final = len(IDLE_CAUSES)  # issuing work while the device computes: what stays when idle time is taken out
NUM_CAUSES: Final = HIDDEN + 1
SLACK_NS: Final = 2_000  # clocks of host and device differ by so much inside one process
LONG_NS: Final = 200_000  # a call that takes longer than this, and than all others by far, waited for the device (its queue was full)
_FAR: Final = 50  # times the median
_STEPS_BACK: Final = 64
_COPIES: Final = re.compile(r"^(cuda|hip|cu)Memcpy", re.IGNORECASE)
_ORDERS: Final = re.compile(r"^(cuda|hip|cu)Stream_?WaitEvent", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Script:
    """Beside a `Work`: arrays with one entry a row of it, then what happened on the host."""

    stream: Ints
    on_host: NDArray[np.bool_]  # an operator of a CPU: the host itself is busy while it runs
    phase: Ints  # of each row of work, where it was launched: codes of PHASES
    cause: Steps  # what the host does at each moment: codes of IDLE_CAUSES, or HIDDEN
    block_start: Ints  # where the host was blocked on the device, in order, without overlap
    block_end: Ints
    block_on: Ints  # row of the work that it waited for
    block_cause: Ints
    order_time: Ints  # calls that make a stream wait for another
    order_track: Ints


def script(table: Table, work: Work, windows: Windows, host: Host) -> Script:
    """The script of one device."""
    on_host = np.zeros(len(work), bool) if work.device != "cpu" else work.comm_of < 0
    cause = _causes(work, windows, host)
    blocks = _cpu_blocks(work, on_host) if work.device == "cpu" else _blocks(table, work, host)
    calls = table.rows(Kind.RUNTIME)
    orders = calls[table.named(lambda n: _ORDERS.match(n) is not None)[calls]]
    return Script(
        stream=_streams(table, work, on_host),
        on_host=on_host,
        phase=host.phase(work.track, work.launched),
        cause=cause,
        block_start=blocks[0],
        block_end=blocks[1],
        block_on=blocks[2],
        block_cause=cause.at(blocks[0]),
        order_time=table.start[orders],
        order_track=table.track[orders],
    )


def _streams(table: Table, work: Work, on_host: NDArray[np.bool_]) -> Ints:
    """A number for each queue: the stream on a device; on a CPU 0 for operators, 1 for the queue of collectives."""
    return np.where(on_host, 0, 1) if work.device == "cpu" else table.stream[work.row]


def _causes(work: Work, windows: Windows, host: Host) -> Steps:
    """Why a device that waited for the host would be idle, at each moment: read from the thread that launches next."""
    first, last = windows.edges[0], windows.edges[-1]
    order = np.argsort(work.launched, kind="stable")
    launched, track = work.launched[order], np.where(work.linked, work.track, host.training)[order]
    computes = work.level < NUM_CLASSES
    busy = union(work.start[computes], work.end[computes])
    edges = distinct(np.concatenate((host.edges(), launched, windows.edges, *busy)))
    edges = edges[(edges >= first) & (edges < last)]
    if not len(edges):
        return Steps(windows.edges[:1], np.array([LAUNCH], np.int64))
    index = np.searchsorted(launched, edges, side="right")
    ahead = np.where(index < len(work), track[np.minimum(index, max(len(work) - 1, 0))], host.training) if len(work) else index
    code = host.cause(np.where(ahead >= 0, ahead, host.training), edges)
    code = np.where((code == LAUNCH) & inside(busy, edges), HIDDEN, code)
    change = np.concatenate(([True], code[1:] != code[:-1]))
    return Steps(edges[change], code[change])


def _blocks(table: Table, work: Work, host: Host) -> tuple[Ints, Ints, Ints]:
    """(start, end, row of work) of calls that ended because work of the device had ended.

    Calls that synchronise or free memory of the device, copies, and calls that took far longer than others: the work is the copy itself, or
    the last that was launched before the call and ended in it.
    """
    calls = table.rows(Kind.RUNTIME)
    calls = calls[np.isin(table.track[calls], np.append(distinct(work.track), host.training))]
    if not len(calls) or not len(work):
        return EMPTY, EMPTY, EMPTY
    time = table.end[calls] - table.start[calls]
    waits = (table.coded(marks.cause)[calls] == marks.CAUSE_CODE["sync"]) | table.named(lambda n: FREE.match(n) is not None)[calls]
    copies = table.named(lambda n: _COPIES.match(n) is not None)[calls]
    long = time > max(LONG_NS, _FAR * int(np.median(time)))
    chosen = waits | copies | long
    calls, copies = calls[chosen], copies[chosen]
    start, end = table.start[calls], table.end[calls]
    order = np.argsort(work.end, kind="stable")
    at = np.searchsorted(work.end[order], end + SLACK_NS, side="right") - 1
    own = _launched_by(table, calls, work)
    for _ in range(_STEPS_BACK):
        back = (at >= 0) & (work.launched[order[np.maximum(at, 0)]] > start)
        if not back.any():
            break
        at = at - back
    row = np.where(copies & (own >= 0), own, order[np.maximum(at, 0)])
    held = ((at >= 0) | (copies & (own >= 0))) & (work.end[row] > start) & (work.end[row] <= end + SLACK_NS) & (work.launched[row] <= start)
    return _apart(start[held], end[held], row[held])


def _launched_by(table: Table, calls: Ints, work: Work) -> Ints:
    """The row of work that each call launched; -1 for none."""
    ids = table.correlation[work.row]
    order = np.argsort(ids, kind="stable")
    index = np.minimum(np.searchsorted(ids[order], table.correlation[calls]), len(work) - 1)
    found = order[index]
    return np.where((ids[found] == table.correlation[calls]) & (table.correlation[calls] > 0), found, -1)


def _cpu_blocks(work: Work, on_host: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """Where no operator runs until a collective that was launched before has ended: the host is taken to wait for it."""
    ops, comm = np.flatnonzero(on_host), np.flatnonzero(~on_host)
    if not len(ops) or not len(comm):
        return EMPTY, EMPTY, EMPTY
    reach = np.maximum.accumulate(work.end[ops])
    index = np.searchsorted(work.start[ops], work.end[comm], side="right") - 1  # the last operator that began before the collective ended
    free = np.where(index >= 0, reach[np.maximum(index, 0)], work.end[comm])
    begin = np.maximum(free, work.launched[comm])
    held = (index >= 0) & (begin < work.end[comm])
    order = np.argsort(work.end[comm[held]], kind="stable")
    return _apart(begin[held][order], work.end[comm[held]][order], comm[held][order])


def _apart(start: Ints, end: Ints, row: Ints) -> tuple[Ints, Ints, Ints]:
    """Blocks in order of their ends, each beginning where the one before has ended; those that are covered are left out."""
    order = np.argsort(end, kind="stable")
    start, end, row = start[order], end[order], row[order]
    before = np.concatenate((start[:1], np.maximum(start[1:], end[:-1])))
    keep = before < end
    return before[keep], end[keep], row[keep]
