"""Random programs on an allocator whose truth is known: every moment and every part is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headway.spec.memory import MemoryBreakdown
from headway.trace.memory.account import account
from headway.trace.memory.lives import allocated, lives, reserved
from headway.trace.read.snapshot import histories
from tests.trace.memory.allocator import KB, MB, Recorder, frames

STACKS = {
    "parameters": frames("torch/nn/modules/module.py:900 _apply", "train.py:3 main"),
    "gradients": frames("engine.cpp:1 torch::autograd::Engine::evaluate_function"),
    "optimizer": frames("torch/optim/adamw.py:120 _init_group", "train.py:40 main"),
    "activations.model:7": frames("model.py:7 forward", "torch/nn/modules/module.py:1780 _call_impl", "train.py:30 main"),
    "workspace": frames("CUDABlas.cpp:200 at::cuda::getCUDABlasLtWorkspace()"),
    "encoders": frames("autoencoder_kl.py:60 encode", "train.py:20 main"),
    "collectives.all_gather": frames("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py:150 foreach_all_gather"),
}
SIZES = st.one_of(st.integers(1, 4 * KB), st.integers(1, 3 * MB), st.integers(1, 40 * MB))
PROGRAM = st.lists(
    st.one_of(
        st.tuples(st.just("alloc"), SIZES, st.sampled_from(sorted(STACKS))),
        st.tuples(st.just("free"), st.integers(0, 99), st.booleans()),
        st.tuples(st.just("complete"), st.integers(0, 99)),
        st.tuples(st.just("empty")),
    ),
    min_size=1,
    max_size=60,
)


def play(program: list[tuple[Any, ...]], *, start: int = 0, **options: Any) -> Recorder:
    """The recorder after `program`; recording begins at instruction `start`."""
    recorder = Recorder(**options)
    live: list[Any] = []
    waiting: list[Any] = []
    for i, step in enumerate(program):
        recorder.recording = i >= start
        if step[0] == "alloc":
            live.append(recorder.alloc(step[1], STACKS[step[2]], step[2]))
        elif step[0] == "free" and live:
            block = live.pop(step[1] % len(live))
            recorder.free(block, waits=step[2])
            waiting += [block] * step[2]
        elif step[0] == "complete" and waiting:
            recorder.complete(waiting.pop(step[1] % len(waiting)))
        elif step[0] == "empty":
            recorder.empty_cache()
    return recorder


def explained(recorder: Recorder) -> MemoryBreakdown | None:
    found = histories(recorder.snapshot(), "test")
    return account(found[0], 0) if found else None


def assert_layout(found: MemoryBreakdown, recorder: Recorder) -> None:
    """Cached, awaiting and pinned are those of the allocator at the moment of the peak."""
    truth = recorder.truth[found.event]
    free = truth.reserved - truth.allocated
    why = {"cached": truth.cached, "awaiting": truth.awaiting, "pinned": free - truth.cached - truth.awaiting}
    assert {k.partition(".")[2]: n for k, n in found.parts.items() if k.startswith("fragmentation")} == {k: n for k, n in why.items() if n}
    assert sum(p.free_bytes for p in found.pins) <= why["pinned"]


def curves(recorder: Recorder) -> tuple[list[int], list[int]]:
    (history,) = histories(recorder.snapshot(), "test")
    return reserved(history).tolist(), allocated(lives(history), len(history)).tolist()


@given(PROGRAM, st.booleans())
def test_a_whole_recording_is_exact_in_every_moment_and_part(program: list[tuple[Any, ...]], expandable: bool) -> None:
    recorder = play(program, expandable=expandable)
    found = explained(recorder)
    if found is None:
        return
    held, taken = curves(recorder)
    assert held == [t.reserved for t in recorder.truth]
    assert taken == [t.allocated for t in recorder.truth]
    most = max(t.reserved for t in recorder.truth)
    best = max((t for t in recorder.truth if t.reserved == most), key=lambda t: t.allocated)
    assert (found.reserved_bytes, found.allocated_bytes) == (most, best.allocated)
    parts = {k: n for k, n in found.parts.items() if not k.startswith("fragmentation")}
    assert parts == {k: n for k, n in recorder.truth[found.event].tags.items() if n}
    assert found.health == ()
    assert_layout(found, recorder)


@given(PROGRAM, st.booleans(), st.integers(0, 40))
def test_a_recording_that_starts_late_loses_parts_and_never_bytes(program: list[tuple[Any, ...]], expandable: bool, start: int) -> None:
    recorder = play(program, start=start, expandable=expandable)
    found = explained(recorder)
    if found is None:
        return
    held, taken = curves(recorder)
    assert held == [t.reserved for t in recorder.truth]
    assert taken == [t.allocated for t in recorder.truth]
    assert found.reserved_bytes == max(held)
    assert_layout(found, recorder)


@given(PROGRAM, st.booleans(), st.integers(1, 30))
def test_a_ring_buffer_loses_the_beginning_only(program: list[tuple[Any, ...]], expandable: bool, keep: int) -> None:
    recorder = play(program, keep=keep, expandable=expandable)
    if not recorder.events:
        return
    held, taken = curves(recorder)
    assert held == [t.reserved for t in recorder.truth]
    # a block that was freed before the buffer begins and is not given out again leaves no trace; one that was only requested may
    assert np.all(np.array(taken) <= [t.reserved for t in recorder.truth])
    assert taken == [t.allocated for t in recorder.truth]
    found = explained(recorder)
    assert found is not None and found.reserved_bytes == max(held)
    assert_layout(found, recorder)


@given(PROGRAM)
def test_blocks_larger_than_their_requests_are_exact_where_they_live_and_never_too_large(program: list[tuple[Any, ...]]) -> None:
    recorder = play(program, split=False)
    found = explained(recorder)
    if found is None:
        return
    held, taken = curves(recorder)
    assert held == [t.reserved for t in recorder.truth]
    assert all(a <= t.allocated for a, t in zip(taken, recorder.truth, strict=True))
    assert taken[-1] == recorder.truth[-1].allocated
    found.check()
