"""Ranges of phases and modules as a profiler sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from headway.parallel import remat
from headway.runtime import ranges


class Net(nn.Module):
    """A child, a list of blocks with children of their own, a chain."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))
        self.chain = nn.Sequential(nn.Tanh(), nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All of them."""
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.chain(x)


PATHS = ["first", "blocks.0", "blocks.1", "chain.0", "chain.1"]


def test_children_and_blocks_are_marked_and_nothing_below_them() -> None:
    open_now, seen = [], []

    @contextmanager
    def record(name: str) -> Iterator[None]:
        open_now.append(name)
        seen.append(name.removeprefix("headway::module::"))
        assert len(open_now) == 1, "no range inside another"
        yield
        open_now.pop()

    net = remat.apply(Net(), "full")
    ranges.mark_modules(net, record)
    net(torch.ones(2, 4, requires_grad=True)).sum().backward()
    assert seen == PATHS, "a block that runs again in the backward is marked once"
    assert not open_now


def test_a_profiler_sees_them(tmp_path: Path) -> None:
    net = Net()
    ranges.mark_modules(net, ranges.factory(torch.device("cpu"), nvtx=True))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        net(torch.ones(2, 4))
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    names = [e.get("name", "") for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e.get("ph") == "X"]
    assert [n.removeprefix("headway::module::") for n in names if n.startswith("headway::module::")] == PATHS


def test_nvtx_is_for_cuda_and_can_be_left_out() -> None:
    assert ranges.factory(torch.device("cpu"), nvtx=True) is ranges.record_range
    assert ranges.factory(torch.device("cuda"), nvtx=False) is ranges.record_range
    assert ranges.factory(torch.device("cuda"), nvtx=True) is ranges.both_ranges
