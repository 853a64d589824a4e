"""Networks by name, and what the rest of the house asks of any network, ours or a user's own.

A network is a module with `forward(x [b, c, h, w], t [b], condition) -> velocity [b, c, h, w]`. It may also have

- `blocks`: nn.ModuleList; sharded and recomputed one by one. Without it the network is one block.
- `axes()`: parameter name -> logical axis of each dim. Without it every axis is "none".
- `needs`: condition key -> (shape of a sample, dtype). Without it a label if there are classes.
- `zeros()`: patterns of parameter names that start at zero (see `headway.nn.init`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from headway.nn.dit import DiT
from headway.spec.errors import HeadwayError, SpecError, failure
from headway.spec.locate import is_own, locate
from headway.spec.parts import ModelSpec

Needs = dict[str, tuple[tuple[int, ...], torch.dtype]]


def build(model: ModelSpec, *, channels: int, size: int, num_classes: int) -> nn.Module:
    """The network of `model` for images [channels, size, size], on the device of the context (meta too), weights not yet set.

    A user's own is `fn(model, channels=, size=, num_classes=) -> nn.Module`. Raises SpecError if it cannot be built.
    """
    maker = locate(model.name) if is_own(model.name) else NETWORKS.get(model.name)
    if maker is None:
        raise SpecError(f"--model.name '{model.name}' is not known", fix=f"Use {', '.join(NETWORKS)}, or your own as path.py:fn.")
    try:
        network = maker(model, channels=channels, size=size, num_classes=num_classes)
    except HeadwayError:
        raise
    except Exception as error:  # code of a user's own: any kind may come
        if not is_own(model.name):
            raise
        raise SpecError(f"failed: {failure(error)}", where=f"--model.name {model.name}") from error
    if not isinstance(network, nn.Module):
        raise SpecError(f"returned {type(network).__name__}, not a torch.nn.Module", where=f"--model.name {model.name}")
    return network


def dit(model: ModelSpec, *, channels: int, size: int, num_classes: int) -> DiT:
    """A DiT as `model` says; a class condition needs data with classes."""
    if model.condition == "class" and num_classes < 1:
        raise SpecError("--model.condition class: the data set has no classes", fix="Use --model.condition none, or data with labels.")
    return DiT(
        depth=model.depth,
        width=model.width,
        heads=model.heads,
        patch=model.patch,
        mlp_ratio=model.mlp_ratio,
        channels=channels,
        size=size,
        num_classes=num_classes if model.condition == "class" else 0,
        text_dim=model.text_dim if model.condition == "text" else 0,
    )


NETWORKS: dict[str, Callable[..., Any]] = {"dit": dit}


def axes(network: nn.Module) -> dict[str, tuple[str, ...]]:
    """Logical axis of each dim of each parameter; "none" where the network does not say."""
    named: dict[str, tuple[str, ...]] = network.axes() if callable(getattr(network, "axes", None)) else {}  # type: ignore[operator]
    return {name: named.get(name, ("none",) * p.dim()) for name, p in network.named_parameters()}


def needs(network: nn.Module, *, num_classes: int) -> Needs:
    """What the condition of `network` holds: key -> (shape of a sample, dtype)."""
    declared = getattr(network, "needs", None)
    if declared is not None:
        return dict(declared)
    return {"label": ((), torch.int64), "drop": ((), torch.bool)} if num_classes else {}
