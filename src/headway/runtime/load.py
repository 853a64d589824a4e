"""Weights of a run for use: no process group, any world size that wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from headway.nn import registry
from headway.runtime import manifest
from headway.runtime.build import MASTER_DTYPES, fill_buffers
from headway.runtime.checkpoint import load_tensors
from headway.runtime.folder import Run
from headway.spec.errors import RunError


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A network ready for use, where it stands, and what was said while it was loaded."""

    network: nn.Module
    samples: int
    weights: str  # "ema" or "student"
    notes: tuple[str, ...] = ()


def load_weights(run: Run, *, ema: bool = True) -> dict[str, Any]:
    """Full tensors of parameters and kept buffers by name, from the newest good checkpoint. Raises RunError if there is none."""
    return _weights(run, ema)[0]


def load_network(run: Run, *, ema: bool = True, device: torch.device | str | None = None) -> Loaded:
    """The network of a run with its EMA weights (the student's own with `ema=False` or without EMA), in eval mode.

    `device`: None is a GPU if there is one. Raises RunError if there is no checkpoint, or it is not of this network.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    tensors, samples, kind, notes = _weights(run, ema)
    info = run.info

    def make() -> nn.Module:
        return registry.build(run.spec.model, channels=info["channels"], size=info["size"], num_classes=info["num_classes"])

    with torch.device("meta"):
        net = make()
    net = net.to(MASTER_DTYPES[run.spec.precision.compute]).to_empty(device=device)
    fill_buffers(net, make, run.spec.seed)
    net.load_state_dict({k: v.to(device) for k, v in tensors.items()}, strict=False)
    missing = [n for n, _ in net.named_parameters() if n not in tensors]
    if missing:
        raise RunError(
            f"the checkpoint lacks {', '.join(missing[:3])}", where=str(run.path), fix="Was the network changed since? Bring its code back."
        )
    return Loaded(network=net.eval().requires_grad_(False), samples=samples, weights=kind, notes=notes)


def _weights(run: Run, ema: bool) -> tuple[dict[str, Any], int, str, tuple[str, ...]]:
    notes: list[str] = []
    found = manifest.newest(run.path / "checkpoints", lambda kind, text: notes.append(text))
    if found is None:
        raise RunError(
            "it has no checkpoint that can be used" + (f" ({'; '.join(notes)})" if notes else ""),
            where=f"run {run.path}",
            fix="Let it train to its first checkpoint (--checkpoint.every), or end it with `headway stop`, which saves one.",
        )
    kind = "ema" if ema and run.spec.ema.half_life else "student"
    tensors = load_tensors(found.path, "ema") if kind == "ema" else {}
    tensors |= load_tensors(found.path, "student.model", but=tensors)  # beside an average: buffers, which have none
    return tensors, found.samples, kind, tuple(notes)
