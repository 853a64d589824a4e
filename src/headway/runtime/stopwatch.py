"""How long a call takes on a device: by the host's clock on a CPU, by the device's own on CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

Stopwatch = Callable[[Callable[[], object]], float]  # a call -> its seconds


def of(device: torch.device) -> Stopwatch:
    """The stopwatch of a device."""
    return cuda_seconds if device.type == "cuda" else cpu_seconds


def cpu_seconds(run: Callable[[], object]) -> float:
    """Seconds of a call that has ended when it returns; above zero."""
    start = time.perf_counter_ns()
    run()
    return max(time.perf_counter_ns() - start, 1) / 1e9


def cuda_seconds(run: Callable[[], object]) -> float:
    """Seconds of what a call queues on the current stream."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    run()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3
