"""Histories from a profiler's memory events: no stacks and no segments, but phase, module and operator of the moment, and totals."""

from __future__ import annotations

import numpy as np

from headway.spec.event import PHASES
from headway.trace.host import Host
from headway.trace.memory.history import Action, Allocations, History, Site
from headway.trace.sweep import Ints, classes, distinct, innermost
from headway.trace.table import DEVICE_WORK, Kind, Table

_ROOM = frozenset(
    f"aten::{n}" for n in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "_to_copy", "to")
)


def histories(found: Allocations, table: Table, host: Host) -> tuple[History, ...]:
    """One history for each device that `found` has events of; the CPU only in a trace of a CPU alone.

    A block belongs to the phase, module and operator that its thread was in. Events without addresses give the totals only.
    """
    of_track = {track: i for i, track in enumerate(table.tracks)}
    track = np.array([of_track.get(t, -1) for t in found.tracks], np.int64)[found.track]
    others = [i for i, name in enumerate(found.devices) if name != "cpu"]
    if not others and not len(table.rows(*DEVICE_WORK)):
        others = list(range(len(found.devices)))
    chosen = [i for i in others if (found.allocated[found.device == i] >= 0).all()]
    phase, module, operator = host.phase(track, found.time), host.module(track, found.time), _operators(table, track, found.time)
    out = []
    for device in chosen:
        rows = np.flatnonzero(found.device == device)
        keys, site = classes(phase[rows], module[rows], operator[rows])
        address, given = found.address[rows], found.size[rows] > 0
        action = np.where(given, Action.ALLOC, Action.FREE_COMPLETED)
        out.append(
            History(
                source=table.source,
                device=found.devices[device],
                time=found.time[rows],
                action=np.where(address > 0, action, Action.OTHER).astype(np.int64),
                address=address,
                size=np.abs(found.size[rows]),
                site=site,
                sites=tuple(_site(table, host, *key) for key in keys.tolist()),
                reserved=np.maximum(found.reserved[rows], 0),
                allocated=found.allocated[rows],
                layout=False,
                rank=table.rank,
            )
        )
    return tuple(out)


def _site(table: Table, host: Host, phase: int, module: int, operator: int) -> Site:
    return Site(
        phase=PHASES[phase],
        module=host.modules[module] if module >= 0 else "",
        operator=table.names[operator] if operator >= 0 else "",
    )


def _operators(table: Table, track: Ints, time: Ints) -> Ints:
    """Name code of the innermost operator around each (track, time) that does more than to make room; -1 for none."""
    out = np.full(len(time), -1, np.int64)
    works = (table.kind == Kind.OPERATOR) & ~table.named(lambda n: n in _ROOM)
    for key in distinct(track[track >= 0]).tolist():
        mine, rows = track == key, np.flatnonzero(works & (table.track == key))
        out[mine] = innermost(table.start[rows], table.end[rows], table.name[rows]).at(time[mine])
    return out
