"""The FLOP/s that MFU is measured against: what a maker publishes, or what a few square matmuls reach here and now."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from headway.runtime import stopwatch
from headway.spec.errors import SpecError
from headway.spec.hardware import DEVICES

DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}
BUDGET_S: Final = 0.3
EDGES: Final = {"cpu": (512, 2048), "cuda": (1024, 8192)}  # smallest and largest edge tried


def peak_flops(spec_peak: str, device: torch.device | str, compute: str) -> tuple[float, str]:
    """(FLOP/s of one process, where the figure is from) for the format `compute` (fp32, bf16, fp64).

    `spec_peak` is "measured" (0.3 s, with the threads that this process has) or a device of `spec.hardware`. On a named device fp32
    means TF32 where torch may use it. Raises SpecError for a device that is not known or publishes no figure for the format.
    """
    if spec_peak == "measured":
        return _measured(torch.device(device), compute)
    if spec_peak not in DEVICES:
        raise SpecError(f"--observe.peak '{spec_peak}' is not known", fix=f"Use measured or one of {', '.join(DEVICES)}.")
    named = DEVICES[spec_peak]
    key = "tf32" if compute == "fp32" and torch.get_float32_matmul_precision() != "highest" and "tf32" in named.peak_flops else compute
    if key not in named.peak_flops:
        raise SpecError(
            f"--observe.peak {spec_peak}: no published figure for {key} (there are {', '.join(named.peak_flops)})",
            fix="Use --observe.peak measured.",
        )
    return named.peak_flops[key], f"{spec_peak} {key}: {named.source}"


def _measured(device: torch.device, compute: str) -> tuple[float, str]:
    """The best of squares of growing edge; the edge doubles as long as one matmul fits into an eighth of the budget.

    The smallest edge is large enough that a pause of the machine or the start of threads cannot make up most of a try.
    """
    edge, largest = EDGES["cuda" if device.type == "cuda" else "cpu"]
    left, best, best_edge = BUDGET_S, 0.0, edge
    a = _square(edge, device, compute)
    _seconds(a)  # the first call sets libraries up
    while left > 0:
        took = _seconds(a)
        left -= took
        rate = 2 * edge**3 / took
        best, best_edge = (rate, edge) if rate > best else (best, best_edge)
        if edge < largest and 2 * (2 * edge) ** 3 / best < BUDGET_S / 8:  # at the best rate: one slow try does not end the search
            edge *= 2
            a = _square(edge, device, compute)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type}, {torch.get_num_threads()} threads"
    return best, f"measured: {compute} matmul of edge {best_edge} on {where}"


def _square(edge: int, device: torch.device, compute: str) -> Tensor:
    generator = torch.Generator(device).manual_seed(0)  # the global generator is left as it was
    return torch.randn(edge, edge, device=device, generator=generator).to(DTYPES[compute])


def _seconds(a: Tensor) -> float:
    """Seconds of one matmul of `a` with itself, where it is."""
    return stopwatch.of(a.device)(lambda: torch.mm(a, a))
