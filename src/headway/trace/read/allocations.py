"""Memory events of a Kineto trace: instants named [memory] that a profiler writes with profile_memory=True."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

import numpy as np

from headway.trace.memory.history import Allocations
from headway.trace.read.columns import Codes, coded, whole
from headway.trace.read.kineto_json import Instant, nanoseconds

NAME: Final = "[memory]"
_DEVICE: Final = (attrgetter("device_type"), attrgetter("device_id"))
_DEVICES: Final = {0: "cpu", 1: "cuda", 6: "cuda", 12: "xpu", 17: "mtia"}  # c10::DeviceType, with HIP as torch calls it; else its number


class Instants:
    """Columns of the memory events so far; those without a time or a size are left out."""

    def __init__(self) -> None:
        self._parts: list[dict[str, Any]] = []
        self._devices = Codes()
        self._tracks = Codes()

    def add(self, events: list[Instant]) -> None:
        """Take those of `events` (instants) that give or take bytes. Raises Inexact, and then has taken none."""
        events = [e for e in events if e.name == NAME]
        time, usable = nanoseconds([e.ts for e in events])
        size = whole([e.args.size for e in events], least=None)
        keep = np.flatnonzero(usable & (size != 0))
        events = events if len(keep) == len(events) else [events[i] for i in keep.tolist()]
        args = [e.args for e in events]
        device = zip(*(whole([get(a) for a in args]).tolist() for get in _DEVICE), strict=True)
        columns = {
            "time": time[keep],
            "size": size[keep],
            "device": coded(list(device), self._devices),
            "track": coded([(e.pid, e.tid) for e in events], self._tracks),
            "address": whole([a.address for a in args]),
            "allocated": whole([a.allocated for a in args]),
            "reserved": whole([a.reserved for a in args]),
        }
        self._parts.append(columns)

    def allocations(self, base_ns: int) -> Allocations | None:
        """All of them in order of time, which counts from `base_ns`; None if there are none."""
        found = {key: np.concatenate([part[key] for part in self._parts]) for key in (self._parts[0] if self._parts else ())}
        if not found or not len(found["time"]):
            return None
        order = np.argsort(found["time"], kind="stable")
        found = {key: column[order] for key, column in found.items()}
        devices, tracks = Codes(), Codes()
        found["device"] = coded([_device(*d) for d in self._devices], devices)[found["device"]]
        found["track"] = coded([(str(pid), str(tid)) for pid, tid in self._tracks], tracks)[found["track"]]
        found["time"] += base_ns
        return Allocations(**found, devices=tuple(devices), tracks=tuple(tracks))


def _device(kind: int, index: int) -> str:
    """cuda:0 from the type and number of a device."""
    name = _DEVICES.get(kind, f"device{kind}")
    return name if name == "cpu" or index < 0 else f"{name}:{index}"
