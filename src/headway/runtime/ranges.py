"""Ranges that profilers see: `record_function` for Kineto, NVTX for Nsight, one factory for both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import nn

from headway.spec.event import MODULE_PREFIX

Ranges = Callable[[str], AbstractContextManager[Any]]


def record_range(name: str) -> AbstractContextManager[Any]:
    """A `record_function` range: 0.5 us when no profiler runs."""
    return torch._C._profiler._RecordFunctionFast(name)  # 10 times cheaper than the Python one


def both_ranges(name: str) -> AbstractContextManager[Any]:
    """A `record_function` range and an NVTX range of the same name."""
    stack = ExitStack()
    stack.enter_context(record_range(name))
    stack.enter_context(torch.cuda.nvtx.range(name))
    return stack


def factory(device: torch.device, nvtx: bool) -> Ranges:
    """The ranges for a device: with NVTX on CUDA where it is wanted."""
    return both_ranges if nvtx and device.type == "cuda" else record_range


def mark_modules(network: nn.Module, ranges: Ranges) -> None:
    """Put a range `headway::module::<path>` around the forward of each child and each block of a network."""
    for path, module in marked(network):
        open_ranges: list[AbstractContextManager[Any]] = []

        def enter(module: nn.Module, args: Any, name: str = MODULE_PREFIX + path, stack: list[Any] = open_ranges) -> None:
            stack.append(ranges(name))
            stack[-1].__enter__()

        def leave(module: nn.Module, args: Any, result: Any, stack: list[Any] = open_ranges) -> None:
            stack.pop().__exit__(None, None, None)

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave, always_call=False)


def marked(network: nn.Module) -> list[tuple[str, nn.Module]]:
    """(path, module) of the children of a network, and instead of a list of its items."""
    out: list[tuple[str, nn.Module]] = []
    for name, child in network.named_children():
        if isinstance(child, (nn.ModuleList, nn.Sequential)):
            out += [(f"{name}.{i}", block) for i, block in child.named_children()]
        else:
            out.append((name, child))
    return out
