"""A memory snapshot of one step: every allocation with its Python stack, and which tensors are parameters, optimizer state and so on.

CUDA only; on a CPU there is no allocator to record. The step that is recorded follows a traced window, so that neither slows the other.
A stack says which line asked for a block. Which tensor it became, and in which module it was made, this program knows: it is written
beside what torch writes, under the key "headway": rank, device, [step, end], [address, bytes, part], [start, end, module].
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from headway.parallel.fsdp import local, parameters_of
from headway.runtime.build import TrainState
from headway.runtime.ranges import marked

MAX_EVENTS: Final = 500_000  # a ring buffer: the end of the step is kept


class MemoryRecording:
    """The allocator of `state`'s CUDA device, recorded from now until `write`."""

    def __init__(self, state: TrainState) -> None:
        self._state = state
        self._modules: list[tuple[int, int, str]] = []
        self._handles = [h for net in state.roles.values() for h in _timed(net, self._modules)]
        torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=MAX_EVENTS)

    def write(self, file: Path, rank: int, step: int) -> None:
        """Stop, and write the snapshot of `step`, which has just ended, at once or not at all. Raises OSError."""
        for handle in self._handles:
            handle.remove()
        said = {
            "rank": rank,
            "device": self._state.device.index or 0,
            "step_ends": [[step, time.time_ns()]],
            "named": [[address, size, part] for address, size, part in named(self._state)],
            "modules": [list(span) for span in self._modules],
        }
        data: dict[str, Any] = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(enabled=None)
        part = file.with_name(f".{file.name}.{os.getpid()}.part")
        try:
            file.parent.mkdir(exist_ok=True)
            with part.open("wb") as out:
                pickle.dump({**data, "headway": said}, out, protocol=4)
            os.replace(part, file)
        finally:
            part.unlink(missing_ok=True)


def start_memory(state: TrainState) -> MemoryRecording | None:
    """A recording of a CUDA device; None on any other."""
    return MemoryRecording(state) if state.device.type == "cuda" else None


def named(state: TrainState) -> Iterator[tuple[int, int, str]]:
    """(address, bytes, part) of every tensor that outlives a step; parts as in `spec.memory`."""
    for network in state.roles.values():
        for parameter in parameters_of(network).values():
            yield _place(parameter, "parameters")
            if parameter.grad is not None:
                yield _place(parameter.grad, "gradients")
        for buffer in network.buffers():
            yield _place(buffer, "parameters")
    for optimizer in state.optimizers.values():
        for values in optimizer.state.values():
            for value in values.values():
                if isinstance(value, torch.Tensor):
                    yield _place(value, "optimizer")
    if state.ema is not None:
        for average in state.ema.state().values():
            yield _place(average, "parameters")


def _place(tensor: torch.Tensor, part: str) -> tuple[int, int, str]:
    mine = local(tensor.detach())
    return mine.data_ptr(), mine.numel() * mine.element_size(), part


def _timed(network: nn.Module, spans: list[tuple[int, int, str]]) -> Iterator[Any]:
    """Hooks that note when each child and each block of a network ran its forward."""
    for path, module in marked(network):
        opened: list[int] = []

        def enter(module: nn.Module, args: Any, opened: list[int] = opened) -> None:
            opened.append(time.time_ns())

        def leave(module: nn.Module, args: Any, result: Any, opened: list[int] = opened, path: str = path) -> None:
            spans.append((opened.pop(), time.time_ns(), path))

        yield module.register_forward_pre_hook(enter)
        yield module.register_forward_hook(leave)
