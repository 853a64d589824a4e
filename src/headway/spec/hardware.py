"""Devices by name: dense peak FLOP/s per format and memory bandwidth, as their makers publish them; and ceilings as they are measured.

A measured ceiling is always better; data sheets serve when MFU is asked against a named device, or a trace of a known device comes without
measurements. Dense figures, no sparsity. A device is what a program sees as one: of an MI250 each of its two dies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

CEILINGS_SCHEMA: Final = "headway.ceilings/1"


@dataclass(frozen=True, kw_only=True)
class Device:
    """Published peaks of one device: FLOP/s by format, memory bytes/s, where the figures are from, and the names that it has in traces."""

    peak_flops: dict[str, float]
    memory_bytes_s: float
    source: str
    names: str = ""  # pattern; the first device of the table whose pattern is found in a name is meant


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """The most that a device does: FLOP/s by format, bytes/s of its memory, and of its cache for what fits into it.

    `source` says how they are known. Written by runs of ours into run.json, and read from a file (schema headway.ceilings/1).
    """

    flops: Mapping[str, float] = field(default_factory=dict)
    memory_bytes_s: float | None = None
    cache_bytes_s: float | None = None
    cache_bytes: int = 0
    source: str = ""


_HOPPER: Final = {"fp32": 67e12, "tf32": 494.7e12, "fp16": 989.4e12, "bf16": 989.4e12, "fp8": 1978.9e12, "fp64": 67e12}
_CDNA2: Final = {"fp32": 45.3e12, "fp16": 181e12, "bf16": 181e12, "fp64": 45.3e12}  # matrix units
_CDNA3: Final = {"fp32": 163.4e12, "fp16": 1307.4e12, "bf16": 1307.4e12, "fp8": 2614.9e12, "fp64": 163.4e12}

DEVICES: Final[dict[str, Device]] = {
    "v100": Device(
        peak_flops={"fp32": 15.7e12, "fp16": 125e12, "fp64": 7.8e12},
        memory_bytes_s=0.9e12,
        source="NVIDIA V100 SXM2 data sheet",
        names=r"V100-(SXM|DGXS)|V100S",
    ),
    "v100-pcie": Device(
        peak_flops={"fp32": 14e12, "fp16": 112e12, "fp64": 7e12},
        memory_bytes_s=0.9e12,
        source="NVIDIA V100 PCIe data sheet",
        names=r"V100",
    ),
    "a100-40gb": Device(
        peak_flops={"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12, "fp64": 19.5e12},
        memory_bytes_s=1.555e12,
        source="NVIDIA A100 40GB data sheet",
        names=r"A100.*40GB|A100-PG509|PG509-210",
    ),
    "a100": Device(
        peak_flops={"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12, "fp64": 19.5e12},
        memory_bytes_s=2.039e12,
        source="NVIDIA A100 80GB SXM data sheet",
        names=r"A100",
    ),
    "h100-pcie": Device(
        peak_flops={"fp32": 51e12, "tf32": 378e12, "fp16": 756e12, "bf16": 756e12, "fp8": 1513e12, "fp64": 51e12},
        memory_bytes_s=2e12,
        source="NVIDIA H100 PCIe data sheet (sparse figures halved)",
        names=r"H100 PCIe",
    ),
    "h100": Device(
        peak_flops=_HOPPER,
        memory_bytes_s=3.35e12,
        source="NVIDIA H100 SXM data sheet (sparse figures halved)",
        names=r"H100",
    ),
    "h200": Device(
        peak_flops=_HOPPER,
        memory_bytes_s=4.8e12,
        source="NVIDIA H200 SXM data sheet (sparse figures halved)",
        names=r"H200",
    ),
    "gb200": Device(
        peak_flops={"fp32": 80e12, "tf32": 1.25e15, "fp16": 2.5e15, "bf16": 2.5e15, "fp8": 5e15, "fp4": 10e15, "fp64": 40e12},
        memory_bytes_s=8e12,
        source="NVIDIA GB200 NVL72 data sheet (a 72nd, sparse figures halved)",
        names=r"GB200",
    ),
    "b200": Device(
        peak_flops={"fp32": 75e12, "tf32": 1.1e15, "fp16": 2.25e15, "bf16": 2.25e15, "fp8": 4.5e15, "fp4": 9e15},
        memory_bytes_s=8e12,
        source="NVIDIA DGX B200 data sheet (per GPU, sparse figures halved)",
        names=r"B200",
    ),
    "mi210": Device(
        peak_flops=_CDNA2,
        memory_bytes_s=1.6384e12,
        source="AMD Instinct MI210 data sheet",
        names=r"MI210",
    ),
    "mi250": Device(
        peak_flops=_CDNA2,
        memory_bytes_s=1.6384e12,
        source="AMD Instinct MI250 data sheet (one of its two dies)",
        names=r"MI250",
    ),
    "mi325x": Device(
        peak_flops=_CDNA3,
        memory_bytes_s=6e12,
        source="AMD Instinct MI325X data sheet",
        names=r"MI325",
    ),
    "mi300x": Device(
        peak_flops=_CDNA3,
        memory_bytes_s=5.3e12,
        source="AMD Instinct MI300X data sheet",
        names=r"MI300X",
    ),
}


def find(name: str) -> Device | None:
    """The device that a trace calls `name` (NVIDIA H100 80GB HBM3); None for one that is not in the table."""
    return next((d for d in DEVICES.values() if d.names and re.search(d.names, name, re.IGNORECASE)), None)


def published(name: str) -> Ceilings | None:
    """The data sheet of the device that a trace calls `name`, marked as such; None if it is not known."""
    device = find(name)
    return (
        Ceilings(flops=device.peak_flops, memory_bytes_s=device.memory_bytes_s, source=f"data sheet: {device.source}")
        if device is not None
        else None
    )
