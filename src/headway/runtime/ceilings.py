"""What the device reaches here and now: the FLOP/s of a matmul per format and the bytes/s of a large copy and of one that fits a cache.

Floors of a trace are counted against these. They cost less than half a second at the start of a run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import torch

from headway.runtime import stopwatch

LARGE: Final = {"cpu": 64 << 20, "cuda": 1 << 30}  # bytes of the buffer that is copied: beyond any cache
SMALL: Final = {"cpu": 256 << 10, "cuda": 8 << 20}  # fits: what a step of a small model works on
CACHE: Final = {"cpu": 4 << 20, "cuda": 32 << 20}  # bytes moved that may stay in a cache; the small copy is the most that it gives
BUDGET_S: Final = 0.1  # for each of the two


def ceilings(device: torch.device | str, flops: Mapping[str, float], source: str) -> dict[str, Any]:
    """{"flops", "memory_bytes_s", "cache_bytes_s", "cache_bytes", "source"}: `flops` as they were measured, and the memory measured now.

    A copy reads and writes each byte once, so n bytes copied are 2 n moved. Up to `cache_bytes` moved, `cache_bytes_s` holds.
    """
    device = torch.device(device)
    kind = "cuda" if device.type == "cuda" else "cpu"
    large, small = (_copied(n, device) for n in (LARGE[kind], SMALL[kind]))
    said = f"memory by copies of {LARGE[kind] >> 20} MiB and {SMALL[kind] >> 10} KiB"
    return {
        "flops": dict(flops),
        "memory_bytes_s": large,
        "cache_bytes_s": max(small, large),
        "cache_bytes": CACHE[kind],
        "source": f"{source}; {said}",
    }


def _copied(size: int, device: torch.device) -> float:
    """Best bytes/s of copies of `size` bytes within the budget; the first, which touches new pages, does not count."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = stopwatch.of(device)
    repeats = max(1, (4 << 20) // size)  # a copy of a few microseconds is timed with others

    def run() -> None:
        for _ in range(repeats):
            target.copy_(source)

    seconds(run)
    end, best = time.perf_counter() + BUDGET_S, float("inf")
    while True:
        best = min(best, seconds(run))
        if time.perf_counter() >= end:
            return 2 * size * repeats / best
