"""What each device did over time, piece by piece: the same pieces whose sums are the buckets, for pictures and for other viewers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.trace.host import Host
from headway.trace.pieces import cut, modules_of
from headway.trace.ranks.wait import Arrivals
from headway.trace.sweep import Ints
from headway.trace.windows import Windows
from headway.trace.work import Work


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One device from its first window to its last. Neighbouring pieces of one bucket, phase, module, step and work are one piece.

    Times are nanoseconds. Codes are into `names`, PHASES, `modules` (its last is "other") and `labels`; label -1: idle.
    """

    rank: int
    device: str
    steps: tuple[int, ...]
    edges: Ints  # of windows, one more than steps
    start: Ints
    end: Ints
    bucket: Ints
    phase: Ints
    module: Ints
    label: Ints  # name of the work that runs
    names: tuple[str, ...]
    modules: tuple[str, ...]
    labels: tuple[str, ...]


def timeline(rank: int, work: Work, windows: Windows, host: Host, arrivals: Arrivals) -> Timeline:
    """The timeline of one device."""
    pieces = cut(work, windows, host, arrivals)
    bucket = pieces.bucket
    phase = host.phase(pieces.track, pieces.when)
    modules, module = modules_of(pieces, host)
    label = work.name[pieces.owner] if len(work) else np.full(len(bucket), -1, np.int64)
    label = np.where(pieces.owner >= 0, label, -1)
    keep = np.flatnonzero(pieces.length > 0)
    state = np.stack((bucket, phase, module, pieces.window, pieces.owner))[:, keep]
    begins = np.ones(len(keep), bool)
    begins[1:] = (state[:, 1:] != state[:, :-1]).any(axis=0)
    first = keep[begins]
    start = pieces.start[first]
    return Timeline(
        rank=rank,
        device=work.device,
        steps=windows.steps,
        edges=windows.edges,
        start=start,
        end=np.append(start[1:], windows.edges[-1:]) if len(start) else start,
        bucket=bucket[first],
        phase=phase[first],
        module=module[first],
        label=label[first],
        names=pieces.names,
        modules=modules,
        labels=work.names,
    )
