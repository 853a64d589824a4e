"""Leaks: a planted one is found, and training without one is told to have none in at least 95 % of seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.spec.memory import MemoryBreakdown
from headway.trace.memory.account import Beside, account
from headway.trace.memory.growth import grows
from headway.trace.read.snapshot import histories
from tests.trace.memory.allocator import KB, MB, Recorder, frames

PLACES = [frames(f"model.py:{i} forward", "torch/nn/modules/module.py:1 _call_impl", "train.py:5 main") for i in range(12)]
STEP = frames("torch/optim/adamw.py:100 step", "train.py:9 main")
STATE = frames("torch/optim/adamw.py:120 _init_group", "train.py:9 main")
LOG = frames("train.py:33 remember", "train.py:9 main")


def train(seed: int, *, steps: int = 24, leak: int = 0, every: int = 1, cache: int = 0) -> Recorder:
    """Steps of forwards with blocks of varying sizes, some alive over the end of a step by chance; `leak` bytes kept each `every` steps."""
    rng = np.random.default_rng(seed)
    recorder = Recorder()
    kept: list[Any] = []
    for step in range(steps):
        live = [recorder.alloc(int(rng.integers(1, 64)) * KB, place, "a") for place in PLACES]
        for old in kept:
            recorder.free(old)
        kept = [live.pop(int(rng.integers(len(live)))) for _ in range(int(rng.integers(0, 4)))]  # freed late: in the next step
        if step < cache:
            recorder.alloc(256 * KB, PLACES[0], "a")  # a cache that fills in the first steps
        if leak and step % every == 0:
            recorder.alloc(leak, LOG, "leak")
        for block in live:
            recorder.free(block)
        if step == 0:
            recorder.alloc(3 * MB, STATE, "optimizer")
        recorder.free(recorder.alloc(1 * KB, STEP, "optimizer"))
    return recorder


def explained(recorder: Recorder, beside: Beside | None = None) -> MemoryBreakdown:
    (history,) = histories(recorder.snapshot(), "test")
    return account(history, 0, beside=beside)


@pytest.mark.parametrize("every", [1, 2])
def test_a_planted_leak_is_found_with_its_line_and_its_slope(every: int) -> None:
    for seed in range(10):
        found = explained(train(seed, leak=40 * KB, every=every))
        assert [g.where for g in found.growth][:1] == ["train.py:33 remember"]
        leak = found.growth[0]
        assert leak.low <= 40 * KB / every <= leak.high
        assert found.steps_from == "calls of the optimizer"


def test_no_leak_is_none_in_95_percent_of_seeds() -> None:
    wrong = [seed for seed in range(200) if explained(train(seed)).growth]
    assert len(wrong) <= 10, wrong


def test_a_cache_that_fills_is_no_leak() -> None:
    for seed in range(10):
        assert not explained(train(seed, cache=7)).growth


def test_step_marks_are_taken_before_guesses() -> None:
    recorder = train(1, leak=40 * KB)
    last = [e["time_us"] for e in recorder.events if e["action"] == "free_completed" and e["size"] == KB]
    found = explained(recorder, Beside(step_ends={100 + i: us * 1000 for i, us in enumerate(last)}))
    assert found.steps_from == "step marks"
    assert found.growth[0].low <= 40 * KB <= found.growth[0].high
    assert found.step is not None and 100 <= found.step < 124


@pytest.mark.parametrize("kind", ["white", "walk", "jumps", "records"])
def test_series_without_a_trend_rarely_grow(kind: str) -> None:
    wrong = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=40)
        if kind == "walk":
            x = np.cumsum(x)
        elif kind == "jumps":
            x = np.where(np.arange(40) >= rng.integers(1, 39), 5.0, 0.0) + 0.01 * x
        elif kind == "records":
            x = np.maximum.accumulate(x)
        wrong += grows(np.asarray(x), 0.95, mostly=kind == "records") is not None
    assert wrong <= 20, wrong


def test_a_short_recording_shows_no_leak() -> None:
    assert grows(np.arange(5.0), 0.95) is None
    assert grows(np.arange(6.0), 0.95) is not None
