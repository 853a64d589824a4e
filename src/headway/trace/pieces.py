"""A device's time cut at every moment at which anything changes, and which bucket each piece belongs to.

All step functions of time that matter (who runs on the device, what the host does, where windows end, when last ranks arrived) are cut
at the union of their edges. On each piece all are constant, so a piece has one bucket, one phase and one module, and the sum of the
pieces is the window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.spec.breakdown import COMM_PARTS, IDLE_CAUSES
from headway.trace.host import Host
from headway.trace.ranks.wait import Arrivals
from headway.trace.sweep import Ints, distinct, paint
from headway.trace.windows import Windows
from headway.trace.work import BUCKETS, COMM, Work


@dataclass(frozen=True)
class Pieces:
    """Time from the first window's begin to the last one's end, cut where anything changes. Arrays have one entry a piece."""

    start: Ints
    length: Ints
    window: Ints
    owner: Ints  # row of work that runs, -1 for idle
    track: Ints  # host track from which phase and module are read
    when: Ints  # at this moment of that track
    names: tuple[str, ...]  # of buckets
    bucket: Ints  # code into names


def modules_of(pieces: Pieces, host: Host) -> tuple[tuple[str, ...], Ints]:
    """(names of modules, the last of them "other"; the code of each piece)."""
    module = host.module(pieces.track, pieces.when)
    return (*host.modules, "other"), np.where(module >= 0, module, len(host.modules))


def cut(work: Work, windows: Windows, host: Host, arrivals: Arrivals) -> Pieces:
    """The pieces of one device."""
    owner = paint(work.start, work.end, work.level)
    begin, end = windows.edges[0], windows.edges[-1]
    edges = distinct(np.concatenate((owner.edges, windows.edges, host.edges(), arrivals.time, arrivals.until)))
    edges = edges[(edges >= begin) & (edges <= end)]
    start, length = edges[:-1], np.diff(edges)
    window = windows.of_time(start)
    row = owner.at(start)
    runs = row >= 0
    safe = np.maximum(row, 0)
    if len(work):
        track = np.where(runs, work.track[safe], _waited_for(work, windows, host, start + length, window))
        when = np.where(runs, work.launched[safe], start)
    else:
        track, when = np.full(len(start), host.training, np.int64), start
    names, bucket = _buckets(work, host, arrivals, start, row, track)
    return Pieces(start, length, window, row, track, when, tuple(names), bucket)


def _waited_for(work: Work, windows: Windows, host: Host, until: Ints, window: Ints) -> Ints:
    """The host track that launches the next device work of the same window; the training thread if there is none."""
    index = np.searchsorted(work.start, until, side="left")
    row = np.minimum(index, len(work) - 1)
    inside_window = (index < len(work)) & (work.start[row] < windows.edges[window + 1])
    track = np.where(inside_window, work.track[row], host.training)
    return np.where(track >= 0, track, host.training)


def _buckets(work: Work, host: Host, arrivals: Arrivals, start: Ints, row: Ints, track: Ints) -> tuple[list[str], Ints]:
    """(names of buckets, bucket of each piece)."""
    names = [n for n in BUCKETS if n != BUCKETS[COMM]] + [f"idle.{c}" for c in IDLE_CAUSES]
    code_of = {n: i for i, n in enumerate(names)}
    first_idle = code_of[f"idle.{IDLE_CAUSES[0]}"]
    idle = row < 0
    bucket = np.full(len(start), -1, np.int64)
    bucket[idle] = first_idle + host.cause(track[idle], start[idle])
    if not len(work):
        return names, bucket
    owner = np.maximum(row, 0)
    level = np.where(idle, -1, work.level[owner])
    of_level = np.array([code_of.get(n, -1) for n in BUCKETS], np.int64)
    bucket = np.where(idle, bucket, of_level[level])
    mine = np.flatnonzero(level == COMM)
    if len(mine):
        comm = work.comm_of[owner[mine]]
        stems = [f"comm.{c.name}.{c.axis}" for c in work.comm]
        order = {s: i for i, s in enumerate(dict.fromkeys(stems))}
        stem = np.array([order[s] for s in stems], np.int64)[comm]
        last, sure = arrivals.time[owner[mine]], arrivals.until[owner[mine]]
        transfer, wait, unsplit = range(len(COMM_PARTS))
        begin = start[mine]
        part = np.select([last < 0, begin < last, begin < sure], [unsplit, wait, unsplit], transfer)
        bucket[mine] = len(names) + stem * len(COMM_PARTS) + part
        names = names + [f"{s}.{p}" for s in order for p in COMM_PARTS]
    return names, bucket
