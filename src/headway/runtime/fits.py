"""Floors of a run's memory, counted before anything is built: a run that needs more than there is ends at once.

    state    parameters x (weight, gradient, two moments, average) / shards
    stream   what the backward needs of every block at the least, with all else computed anew: its input
    images   the steps that the loader holds: the one that is due, and those ahead of it

Less than a run needs: one above its floors can still end out of memory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headway.report.format import size
from headway.spec.errors import RunError
from headway.spec.run import RunSpec

_BYTES: Final = {"fp64": 8, "fp32": 4, "bf16": 2}
_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container, cgroup v2 and v1


@dataclass(frozen=True, kw_only=True)
class Floors:
    """Bytes that a rank needs at the least: `state` and `stream` on its device, `images` on the host."""

    state: int
    stream: int
    images: int


def floors(spec: RunSpec, *, channels: int, size: int, num_parameters: int) -> Floors:
    """Floors of one rank for samples [channels, size, size] and a student of `num_parameters`; `stream` is 0 for a user's own network."""
    master = max(4, _BYTES[spec.precision.compute])
    copies = 4 + (spec.ema.half_life > 0)
    trained = 1 + sum(role.trained for role in spec.roles)
    m, tokens = spec.model, (size // spec.model.patch) ** 2
    stream = spec.micro_batch * tokens * m.width * m.depth * _BYTES[spec.precision.compute] if m.name == "dit" else 0
    held = (spec.data.prefetch if spec.data.workers else 0) + 1
    return Floors(
        state=num_parameters * master * copies * trained // spec.mesh.dp_shard,
        stream=stream,
        images=held * spec.micro_batch * spec.accumulate * channels * size * size * 4,  # float32 to the device
    )


def require(need: Floors, *, ranks: int, host: int, device: int | None) -> None:
    """Raises RunError if `ranks` ranks of one machine cannot fit into `host` bytes, or one of them into the `device` bytes of its GPU.

    `device` None: the ranks compute on the host.
    """
    if device is not None and need.state + need.stream > device:
        raise _too_large(need.state + need.stream, f"its GPU has {size(device)}", {"parameters, gradients and moments": need.state,
                         "inputs of all blocks": need.stream}, ranks=1)  # fmt: skip
    parts = {"images read ahead": need.images}
    if device is None:
        parts |= {"parameters, gradients and moments": need.state, "inputs of all blocks": need.stream}
    if ranks * sum(parts.values()) > host:
        raise _too_large(ranks * sum(parts.values()), f"this machine has {size(host)}", parts, ranks=ranks)


def _too_large(total: int, there: str, parts: Mapping[str, int], *, ranks: int) -> RunError:
    of = f" ({ranks} ranks on it)" if ranks > 1 else ""
    held = ", ".join(f"{name} {size(n)}" for name, n in sorted(parts.items(), key=lambda p: -p[1]) if n)
    fix = {
        "images read ahead": "Take a smaller --global-batch, a smaller --data.prefetch, or more machines.",
        "inputs of all blocks": "Take fewer samples at once: --accumulate N, or a smaller --global-batch.",
        "parameters, gradients and moments": "Shard more (--mesh.dp-shard N), or make the network smaller.",
    }[max(parts, key=lambda name: parts[name])]
    return RunError(f"this run needs at least {size(total)}{of}, and {there}; a rank holds {held}", fix=fix)


def host_memory() -> int:
    """Bytes of this machine's memory, or of the part of it that a container may use."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in map(Path, _LIMITS):
        text = file.read_text().strip() if file.is_file() else ""
        found += [int(text)] if text.isdecimal() else []
    return min(found)
