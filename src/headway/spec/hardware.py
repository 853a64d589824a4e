"""Devices by name: dense peak FLOP/s per format and memory bandwidth, as their makers publish them.

A measured ceiling is always better; these serve when MFU is asked against a named device. Dense figures, no sparsity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Device:
    """Published peaks of one device: FLOP/s by format, memory bytes/s, and where the figures are from."""

    peak_flops: dict[str, float]
    memory_bytes_s: float
    source: str


DEVICES: Final[dict[str, Device]] = {
    "a100": Device(
        peak_flops={"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12},
        memory_bytes_s=2.039e12,
        source="NVIDIA A100 80GB SXM data sheet",
    ),
    "h100": Device(
        peak_flops={"fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12, "fp8": 1978.9e12, "fp64": 67e12},
        memory_bytes_s=3.35e12,
        source="NVIDIA H100 SXM data sheet (sparse figures halved)",
    ),
    "h200": Device(
        peak_flops={"fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12, "fp8": 1978.9e12, "fp64": 67e12},
        memory_bytes_s=4.8e12,
        source="NVIDIA H200 SXM data sheet (sparse figures halved)",
    ),
    "b200": Device(
        peak_flops={"tf32": 1.1e15, "bf16": 2.25e15, "fp8": 4.5e15, "fp4": 9e15},
        memory_bytes_s=8e12,
        source="NVIDIA DGX B200 data sheet (per GPU, sparse figures halved)",
    ),
    "mi300x": Device(
        peak_flops={"fp32": 163.4e12, "bf16": 1307.4e12, "fp8": 2614.9e12, "fp64": 163.4e12},
        memory_bytes_s=5.3e12,
        source="AMD Instinct MI300X data sheet",
    ),
}
