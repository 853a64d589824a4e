"""What torch itself writes: a real training loop on a CPU, recorded with real stacks, against the bytes of its real tensors."""

from __future__ import annotations

import importlib
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from headway.trace.explain import explain  # noqa: E402

MODEL = """
import torch
from torch import nn
from torch.nn.functional import gelu


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def train(kept, steps=9, width=64, depth=4, tokens=4096, step=lambda: None):
    net = Net(width, depth)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(steps):
        loss = net(torch.randn(tokens, width)).square().mean()
        if kept is not None:
            kept.append(torch.zeros(64 * 1024) + loss.detach())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step()
    return net, optimizer
"""


def own_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (folder / "own_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("own_model", None)
    return importlib.import_module("own_model")


def profiler(**options: Any) -> Any:
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, **options)


def size(tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


@pytest.mark.filterwarnings("ignore")
def test_a_real_loop_with_real_stacks_is_accounted_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.cuda._memory_viz import _profile_to_snapshot

    module = own_model(tmp_path, monkeypatch)
    with profiler(with_stack=True, record_shapes=True) as profile:
        net, optimizer = module.train(None)
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(_profile_to_snapshot(profile)))
    (found,) = explain([tmp_path / "a.pickle"]).memory
    assert found.device == "cpu"
    assert found.parts["parameters"] == size(net.parameters())
    assert found.parts["optimizer"] == size(v for s in optimizer.state.values() for v in s.values())
    activations = {name: num for name, num in found.parts.items() if name.startswith("activations.")}
    hidden = 4096 * 4 * 64 * 4  # bytes of a feed-forward's hidden tensor
    for i in range(4):
        mine = sum(num for name, num in activations.items() if f"Block_{i}" in name)
        assert mine >= 2 * hidden, "before and after gelu"
    assert not found.growth and found.num_steps == 9
    saving = found.savings[0]
    assert saving.what.startswith("Activations of repeated blocks")
    gained = 3 * 2 * hidden  # of three of the four blocks only what lies between them stays
    assert gained <= saving.saves_bytes <= 1.15 * gained


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("leaks", [False, True])
def test_a_real_leak_is_found_and_no_leak_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaks: bool) -> None:
    module = own_model(tmp_path, monkeypatch)
    with profiler(schedule=torch.profiler.schedule(wait=0, warmup=0, active=9, repeat=1)) as profile:
        module.train([] if leaks else None, step=profile.step)
    profile.export_chrome_trace(str(tmp_path / "a.json"))
    (found,) = explain([tmp_path / "a.json"]).memory
    found.check()
    assert (found.device, found.measured, found.steps_from) == ("cpu", "profiler", "step marks")
    assert len(found.growth) == leaks
    for growth in found.growth:
        assert growth.where == "aten::add"
        assert growth.low <= 4 * 64 * 1024 <= growth.high
