"""A training loop that is not Headway's: twelve lines of marks, and `headway explain` accounts for every step of it.

Usage:

    python examples/02_any_loop.py any
    headway explain any
    headway explain any --html any/report.html

What it needs of the loop: `begin` and `end` around a step, `phase` around its parts; a profiler of torch for some steps. Without the
profiler the phases of all steps are there; with it, buckets of the traced ones. A loop of several processes gives each its `rank`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, TensorDataset

from headway.spec.event import events_file, trace_file
from headway.trace.emit import Emitter

TRACED = range(20, 24)


def batches() -> Iterator[list[Tensor]]:
    """Digits without end, from torch's own loader."""
    x, y = load_digits(return_X_y=True)
    loader = DataLoader(TensorDataset(torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)), batch_size=256, shuffle=True)
    while True:
        yield from loader


def main(folder: Path, steps: int = 60) -> None:
    """Fit a classifier; write events and a trace into `folder`."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    data = batches()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "traces").mkdir(exist_ok=True)
    emit = Emitter(folder / events_file(rank=0), ranges=record_function)
    emit.event("run", text="a loop of my own")
    profiler = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
    for step in range(steps):
        if step == TRACED.start:
            profiler.start()
        emit.begin(step)
        with emit.phase("input"):
            x, y = next(data)
        with emit.phase("forward"):
            loss = nn.functional.cross_entropy(net(x), y)
        with emit.phase("backward"):
            loss.backward()
        with emit.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        emit.end(samples=(step + 1) * 256, traced=TRACED.start <= step <= TRACED.stop)  # the export falls into the step after the last
        if step == TRACED.stop - 1:
            profiler.stop()
            profiler.export_chrome_trace(str(folder / "traces" / trace_file(0, TRACED.start, TRACED.stop - 1)))
    emit.event("log", step=steps, samples=steps * 256, loss=loss.item())
    emit.flush()
    print(f"{folder}: {steps} steps, loss {loss.item():.3f}; headway explain {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "any"))
