"""Activation checkpointing: a block keeps its inputs only and runs its forward again in the backward."""

from __future__ import annotations

import functools
from typing import Literal

from torch import nn
from torch.utils.checkpoint import checkpoint

from headway.parallel.fsdp import blocks_of


def apply(network: nn.Module, mode: Literal["none", "full"]) -> nn.Module:
    """`network` itself, with every module of `network.blocks` recomputed in the backward when `mode` is full.

    Applied before FSDP, whose hooks then lie outside: the gather of the backward serves the second forward too. Names of parameters
    do not change. Blocks draw no random numbers (all draws are keyed and made outside), so no generator state is kept.
    """
    if mode == "full":
        for block in blocks_of(network):
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)
    return network
