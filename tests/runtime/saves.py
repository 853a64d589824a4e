"""What the tests of checkpoints share: one opened with its messages collected, and a small state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from headway.runtime.checkpoint import Checkpoints
from headway.spec.parts import CheckpointSpec

Told = list[tuple[str, str]]


def opened(folder: Path, *, keep: int = 2, blocking: bool = True, rank: int = 0, world: int = 1) -> tuple[Checkpoints, Told]:
    told: Told = []
    spec = CheckpointSpec(keep=keep, blocking=blocking)
    return Checkpoints(folder, spec, rank=rank, world=world, notify=lambda kind, text: told.append((kind, text))), told


def state_of(value: float) -> dict[str, Any]:
    return {"net": {"a.w": torch.full((300, 70), value), "b": torch.tensor(value)}, "clock": int(value), "note": {"x": 0.5, "list": [1, 2]}}


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())
