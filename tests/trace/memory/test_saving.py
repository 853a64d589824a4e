"""Ways to a smaller peak: what each promises is what doing it wins in the simulator, and only what can be done is told."""

from __future__ import annotations

from typing import Any

import pytest

from headway.spec.field import walk
from headway.spec.memory import MemoryBreakdown
from headway.spec.run import RunSpec
from headway.trace.memory.account import account
from headway.trace.read.snapshot import histories
from tests.trace.memory.allocator import MB, Recorder, frames

LOSS = frames("train.py:70 compute_loss", "train.py:9 main")
KEPT = frames("dit.py:88 forward", "torch/nn/modules/module.py:1 _call_impl", "train.py:60 main")
INSIDE = [frames(f"dit.py:{line} forward", "torch/nn/modules/module.py:1 _call_impl", "train.py:60 main") for line in (40, 41, 42, 43)]
AGAIN = [[*f, *frames("torch/utils/checkpoint.py:1500 recompute_fn", "torch/utils/checkpoint.py:1100 unpack_hook")] for f in INSIDE]
GRAD = frames("engine.cpp:1 torch::autograd::Engine::evaluate_function")


def step(recorder: Recorder, depth: int, *, tokens: int = 2 * MB, remat: bool = False, scale: int = 1) -> None:
    """A forward of `depth` blocks, four tensors of 1, 3, 4 and 4 widths inside each, and its backward, with and without recomputation."""
    inputs, saved = [], []
    for _ in range(depth):
        inside = [recorder.alloc(w * tokens // scale, f, "activations") for w, f in zip((1, 3, 4, 4), INSIDE, strict=True)]
        if remat:
            for block in inside:
                recorder.free(block)
        saved.append(inside)
        inputs.append(recorder.alloc(tokens // scale, KEPT, "activations"))
    for inside, out in zip(reversed(saved), reversed(inputs), strict=True):
        if remat:
            inside = [recorder.alloc(w * tokens // scale, f, "activations") for w, f in zip((1, 3, 4, 4), AGAIN, strict=True)]
        grad = recorder.alloc(tokens // scale, GRAD, "gradients")
        for block in (*inside, out, grad):
            recorder.free(block)


def peak(spec: dict[str, Any] | None = None, **options: Any) -> MemoryBreakdown:
    recorder = Recorder(expandable=True)
    for _ in range(2):
        step(recorder, 12, **options)
    (history,) = histories(recorder.snapshot(), "test")
    return account(history, 0, spec=spec)


SPEC: dict[str, Any] = {
    "global_batch": 64,
    "accumulate": 1,
    "remat": {"mode": "none"},
    "mesh": {"dp_replicate": 1, "dp_shard": 1, "reshard": True},
}


def promised(found: MemoryBreakdown, word: str) -> Any:
    return next(s for s in found.savings if word in s.action)


def test_recomputation_wins_what_it_promises() -> None:
    before, after = peak(SPEC), peak(SPEC, remat=True)
    saving = promised(before, "Recompute")
    assert saving.patch == {"remat.mode": "full"}
    gained = before.allocated_bytes - after.allocated_bytes  # type: ignore[operator]
    assert gained <= saving.saves_bytes <= 1.15 * gained


def test_half_a_micro_batch_wins_what_it_promises() -> None:
    before, after = peak(SPEC), peak(SPEC, scale=2)
    saving = promised(before, "Halve")
    assert saving.patch == {"accumulate": 2}
    assert saving.saves_bytes == pytest.approx(before.allocated_bytes - after.allocated_bytes, rel=0.15)  # type: ignore[operator]


def test_what_is_done_already_is_not_told_again() -> None:
    on = peak({**SPEC, "remat": {"mode": "full"}}, remat=True)
    assert not any("Recompute" in s.action for s in on.savings)
    assert not any("Recompute" in s.action for s in peak(None, remat=True).savings), "its stacks say so"
    assert not any("expandable" in s.action for s in on.savings)


def test_a_program_that_is_not_ours_gets_no_patch() -> None:
    assert all(s.patch is None for s in peak(None).savings)
    assert promised(peak(None), "Recompute").saves_bytes > 0


@pytest.mark.parametrize(
    ("mesh", "word", "patch"),
    [
        ({"dp_replicate": 4, "dp_shard": 2, "reshard": True}, "Shard", {"mesh.dp_shard": 8, "mesh.dp_replicate": 1}),
        ({"dp_replicate": 1, "dp_shard": 2, "reshard": False}, "after the forward", {"mesh.reshard": True}),
    ],
)
def test_layouts_that_hold_less(mesh: dict[str, Any], word: str, patch: dict[str, Any]) -> None:
    recorder = Recorder()
    recorder.alloc(64 * MB, frames("torch/optim/adamw.py:1 _init_group"), "o")
    recorder.alloc(32 * MB, frames("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py:1 foreach_all_gather"), "g")
    (history,) = histories(recorder.snapshot(), "test")
    found = account(history, 0, spec={**SPEC, "mesh": mesh})
    assert promised(found, word).patch == patch


def test_every_patch_names_fields_that_exist() -> None:
    fields = {name for name in walk(RunSpec())}
    assert {"remat.mode", "accumulate", "mesh.dp_shard", "mesh.dp_replicate", "mesh.reshard"} <= fields


def test_one_large_block_is_named() -> None:
    recorder = Recorder()
    recorder.alloc(100 * MB, LOSS, "a")
    recorder.alloc(20 * MB, KEPT, "a")
    (history,) = histories(recorder.snapshot(), "test")
    saving = next(s for s in account(history, 0).savings if "One block" in s.what)
    assert saving.what.startswith("One block of train.py:70 compute_loss takes 83%")
    assert saving.saves_bytes == 50 * MB
