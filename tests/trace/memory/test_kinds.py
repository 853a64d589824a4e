"""The table of stacks: each example of a rule comes out as its part, and whole stacks as one would file them by hand."""

from __future__ import annotations

import pytest

from headway.spec.memory import KINDS
from headway.trace.memory.history import Frame, Site
from headway.trace.memory.kinds import TIERS, module_of, part_of, where

FORWARD = ("torch/nn/modules/module.py:1780 _call_impl", "torch/nn/modules/module.py:1770 _wrapped_call_impl")
ENGINE = ("engine.cpp:0 torch::autograd::Engine::thread_main(...)",)


def site(*lines: str) -> Site:
    frames = []
    for text in lines:
        place, _, name = text.partition(" ")
        file, _, line = place.rpartition(":")
        frames.append(Frame(file, name, int(line)))
    return Site(tuple(frames))


@pytest.mark.parametrize(("part", "example"), [(r.part, e) for tier in TIERS for r in tier for e in r.examples])
def test_each_example_is_what_its_rule_says(part: str, example: str) -> None:
    file, _, function = example.partition(":")
    found = part_of(Site((Frame(file, function, 1),)))
    assert found.partition(".")[0] in KINDS
    assert found == part or (part == "activations" and found.startswith("activations."))


def test_a_workspace_inside_a_forward_is_workspace() -> None:
    assert part_of(site("CUDABlas.cpp:1 at::cuda::getCUDABlasLtWorkspace()", *FORWARD, "model.py:3 forward")) == "workspace"


def test_an_encoder_called_like_any_module_is_an_encoder() -> None:
    stack = ("torch/nn/modules/linear.py:125 forward", *FORWARD, "transformers/models/t5/modeling_t5.py:300 forward", *FORWARD)
    assert part_of(site(*stack, "train.py:9 main")) == "encoders"


def test_a_forward_repeated_in_a_backward_is_an_activation_of_its_module() -> None:
    stack = (
        "model.py:60 forward",
        *FORWARD,
        "torch/utils/checkpoint.py:1500 recompute_fn",
        "torch/utils/checkpoint.py:1100 unpack_hook",
        *ENGINE,
    )
    assert part_of(site(*stack)) == "activations.model:60"


def test_a_gather_inside_a_module_is_a_collective() -> None:
    stack = ("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py:150 foreach_all_gather", *FORWARD, "model.py:60 forward")
    assert part_of(site(*stack)) == "collectives.all_gather"


def test_gradients_by_the_engine_and_by_threads_without_python() -> None:
    assert part_of(site("Functions.cpp:5 torch::autograd::generated::MmBackward0::apply", *ENGINE)) == "gradients"
    assert part_of(Site()) == "gradients"


def test_a_stack_that_says_nothing_has_no_part() -> None:
    assert part_of(site("train.py:3 main", "train.py:90 <module>")) == ""


def test_a_module_is_the_last_two_forwards_and_the_leaf() -> None:
    stack = site(
        "torch/nn/modules/linear.py:125 forward", *FORWARD, "m/attention.py:30 forward", *FORWARD, "m/block.py:60 forward", *FORWARD
    )
    assert module_of(stack.frames) == "block:60 > attention:30 > linear"
    assert where(stack) == "attention.py:30 forward"


@pytest.mark.parametrize(
    ("phase", "part"),
    [("forward", "activations.blocks.1"), ("backward", "gradients"), ("optimizer", "optimizer"), ("encode", "encoders"), ("other", "")],
)
def test_what_a_profiler_knows_is_enough(phase: str, part: str) -> None:
    assert part_of(Site(phase=phase, module="blocks.1", operator="aten::mm")) == part
