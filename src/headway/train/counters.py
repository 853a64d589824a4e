"""What happened to this process during a step that its phases do not say: one small dict a step, with what is not zero."""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from headway.train.step import Batch


class Counters:
    """Counts since the last `read`: time in Python's collector, compilations, allocator retries, involuntary switches; the shape."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._gc_ns, self._gc_start = 0, 0
        self._totals: dict[str, int] = {}
        self._shape = ""
        gc.callbacks.append(self._collected)

    def close(self) -> None:
        """Listen to the collector no more."""
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def read(self, batches: Sequence[Batch]) -> dict[str, Any]:
        """gc_ns, compiles, retries, switches (of this step, left out at 0); shape, where it is another than the last step's."""
        totals = {"gc_ns": self._gc_ns, "compiles": _compiles(), "switches": resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw}
        if self._cuda is not None:
            totals["retries"] = torch.cuda.memory_stats(self._cuda).get("num_alloc_retries", 0)
        found: dict[str, Any] = {name: new for name, total in totals.items() if (new := total - self._totals.get(name, total))}
        self._totals = totals
        shape = "+".join("x".join(map(str, batch["image"].shape)) for batch in batches)
        if shape != self._shape:
            self._shape = found["shape"] = shape
        return found

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        now = time.perf_counter_ns()
        if phase == "start":
            self._gc_start = now
        elif self._gc_start:
            self._gc_ns += now - self._gc_start


def _compiles() -> int:
    """Graphs that torch.compile has made in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    return int(utils.counters["stats"].get("unique_graphs", 0)) if utils is not None else 0
