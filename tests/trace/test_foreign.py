"""Programs of others: their phases, modules and compiled graphs, by what they annotate, else by the call stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.spec.breakdown import StepBreakdown
from headway.trace.explain import explain
from tests.trace.drawing import span, write

STEP_US = 1000


def explained(tmp_path: Path, *rows: dict[str, Any]) -> StepBreakdown:
    """One step of 1000 us."""
    step = span("user_annotation", "ProfilerStep#3", 0, STEP_US)
    (found,) = explain([write(tmp_path / "t.json", [step, *rows])]).ranks[0].steps
    found.check()
    return found


def mark(name: str, begin: float, end: float, cat: str = "user_annotation", tid: int = 1, **args: Any) -> dict[str, Any]:
    return span(cat, name, begin, end - begin, tid=tid, **args)


def launched(number: int, at: float, begin: float, end: float, tid: int = 1) -> list[dict[str, Any]]:
    """A kernel of [begin, end) that thread `tid` launched at `at`."""
    return [
        span("cuda_runtime", "cudaLaunchKernel", at, 1, tid=tid, correlation=number),
        span("kernel", "volta_sgemm_128x64_nn", begin, end - begin, pid=0, tid=7, device=0, stream=7, correlation=number),
    ]


LOOPS = {
    "torchtitan": {
        "input": ("python_function", "torchtitan/train.py(436): batch_generator"),
        "forward": ("python_function", "nn.Module: FluxModel_0"),
        "backward": ("python_function", "torch/_tensor.py(570): backward"),
        "clip": ("python_function", "torchtitan/distributed/utils.py(330): clip_grad_norm_"),
        "optimizer": ("user_annotation", "Optimizer.step#AdamW.step"),
        "checkpoint": ("python_function", "torchtitan/components/checkpoint.py(420): save"),
    },
    "pipelining": {
        "forward": ("user_annotation", "PP:0F1"),
        "backward": ("user_annotation", "PP:0B1"),
        "reduce": ("user_annotation", "PP:0REDUCE_GRAD"),
    },
    "Megatron": {
        "input": ("user_annotation", "batch-generator"),
        "forward": ("python_function", "megatron/core/pipeline_parallel/schedules.py(280): forward_step"),
        "backward": ("python_function", "megatron/core/pipeline_parallel/schedules.py(410): backward_step"),
        "reduce": ("python_function", "megatron/core/distributed/finalize_model_grads.py(255): finalize_model_grads"),
        "clip": ("python_function", "megatron/core/optimizer/clip_grads.py(58): get_grad_norm_fp32"),
        "optimizer": ("python_function", "megatron/core/optimizer/optimizer.py(520): step_with_ready_grads"),
        "checkpoint": ("python_function", "megatron/training/checkpointing.py(300): save_checkpoint"),
        "evaluate": ("python_function", "megatron/training/training.py(2900): evaluate"),
    },
    "Lightning": {
        "input": ("user_annotation", "[pl][profile][_TrainingEpochLoop].train_dataloader_next"),
        "forward": ("user_annotation", "[pl][profile][Strategy]DDPStrategy.training_step"),
        "backward": ("user_annotation", "[pl][profile][Strategy]DDPStrategy.backward"),
        "optimizer": ("user_annotation", "[pl][profile][LightningModule]Net.optimizer_step"),
        "checkpoint": ("user_annotation", "[pl][profile][Callback]ModelCheckpoint{'monitor': None}.on_train_batch_end"),
        "evaluate": ("user_annotation", "[pl][profile][Strategy]DDPStrategy.validation_step"),
    },
    "DeepSpeed": {
        "forward": ("user_annotation", "DeepSpeedEngine.forward"),
        "backward": ("user_annotation", "DeepSpeedEngine.backward"),
        "reduce": ("user_annotation", "DeepSpeedEngine.allreduce_gradients"),
        "optimizer": ("user_annotation", "DeepSpeedEngine.step"),
    },
    "diffusers with accelerate": {
        "input": ("python_function", "accelerate/data_loader.py(567): __iter__"),
        "encode": ("python_function", "diffusers/models/autoencoders/autoencoder_kl.py(270): encode"),
        "forward": ("python_function", "nn.Module: UNet2DConditionModel_0"),
        "backward": ("python_function", "accelerate/accelerator.py(2700): backward"),
        "clip": ("python_function", "torch/nn/utils/clip_grad.py(188): clip_grad_norm_"),
        "optimizer": ("python_function", "accelerate/optimizer.py(150): step"),
        "ema": ("python_function", "diffusers/training_utils.py(455): step"),
        "checkpoint": ("python_function", "accelerate/accelerator.py(3300): save_state"),
        "evaluate": ("python_function", "examples/train_text_to_image.py(120): log_validation"),
    },
    "by hand": {
        "input": ("user_annotation", "dataloader_next"),
        "encode": ("user_annotation", "vae_encode"),
        "forward": ("user_annotation", "forward_pass"),
        "backward": ("user_annotation", "backward"),
        "optimizer": ("user_annotation", "optimizer_step"),
        "ema": ("user_annotation", "ema_update"),
        "checkpoint": ("user_annotation", "save_checkpoint"),
    },
}


@pytest.mark.parametrize("name", LOOPS)
def test_phases(tmp_path: Path, name: str) -> None:
    """Each phase lasts 60 us and is followed by 40 us of nothing; a kernel launched in it belongs to it, whenever it runs."""
    rows = [mark(text, 100 * i, 100 * i + 60, cat) for i, (cat, text) in enumerate(LOOPS[name].values())]
    step = explained(tmp_path, *rows)
    assert {n: ns for n, ns in step.phases.items() if n != "other"} == {phase: 60_000 for phase in LOOPS[name]}
    late = [e for i in range(len(rows)) for e in launched(i + 1, 100 * i + 10, 100 * i + 65, 100 * i + 85)]
    step = explained(tmp_path, *rows, *late)
    assert {n: ns for n, ns in step.phases.items() if n != "other"} == {phase: 80_000 for phase in LOOPS[name]}


def test_what_an_encoder_calls_is_encoding(tmp_path: Path) -> None:
    """An encoder's modules are no forward of the network that is trained."""
    rows = (
        mark("encode_prompt", 100, 300),
        mark("nn.Module: T5EncoderModel_0", 120, 280, "python_function"),
        mark("aten::linear", 130, 150, "cpu_op", **{"Sequence number": 3}),
        mark("nn.Module: Flux_0", 400, 500, "python_function"),
        *launched(1, 140, 900, 950),
    )
    step = explained(tmp_path, *rows)
    assert step.phases == {"encode": 250_000, "forward": 100_000, "other": 650_000}


def test_recomputation_is_no_checkpoint(tmp_path: Path) -> None:
    step = explained(tmp_path, mark("torch/utils/checkpoint.py(260): checkpoint", 0, 500, "python_function"))
    assert "checkpoint" not in step.phases


# ---- modules ----


def test_calls_of_modules_nest_to_a_path(tmp_path: Path) -> None:
    rows = (
        mark("nn.Module: Net_0", 0, 600, "python_function"),
        mark("nn.Module: Block_0", 0, 200, "python_function"),
        mark("nn.Module: Linear_0", 50, 100, "python_function"),
        mark("nn.Module: Block_1", 300, 500, "python_function"),
        mark("nn.Module: Linear_1", 300, 350, "python_function"),
        *launched(1, 310, 700, 800),
    )
    step = explained(tmp_path, *rows)
    assert step.modules == {
        "Net_0": 200_000, "Net_0.Block_0": 150_000, "Net_0.Block_0.Linear_0": 50_000,
        "Net_0.Block_1": 150_000, "Net_0.Block_1.Linear_1": 150_000, "other": 300_000,
    }  # fmt: skip


def test_paths_of_lightning(tmp_path: Path) -> None:
    step = explained(tmp_path, mark("[pl][module]torch.nn.modules.linear.Linear: layer.2", 0, 300))
    assert step.modules == {"layer.2": 300_000, "other": 700_000}
    assert step.phases["forward"] == 300_000


# ---- compiled graphs ----


def test_compiled_graphs_are_an_exact_partition(tmp_path: Path) -> None:
    """Regions of torch.compile, the backward of one on autograd's thread by its sequence number, the rest of the step."""
    rows = (
        mark("Torch-Compiled Region: 0/0", 0, 200, "cpu_op"),
        mark("## Call CompiledFxGraph fabcdefghijklmnopq ##", 10, 190),
        mark("CompiledFunction", 20, 180, "cpu_op", **{"Sequence number": 5}),
        mark("Torch-Compiled Region: 1/2", 200, 300, "cpu_op"),
        mark(
            "autograd::engine::evaluate_function: CompiledFunctionBackward", 400, 600, "cpu_op", tid=2,
            **{"Sequence number": 5, "Fwd thread id": 1},
        ),
        *launched(1, 50, 220, 280),
        *launched(2, 450, 700, 800, tid=2),
    )  # fmt: skip
    step = explained(tmp_path, *rows)
    assert step.graphs["0/0"] == 200_000 + 60_000 + 200_000 + 100_000  # before the first kernel, it; waiting for the second, it
    assert step.graphs["1/2"] == 20_000  # the first kernel's wait; then the device waits for autograd's thread
    assert sum(step.graphs.values()) == step.wall_ns


def test_without_regions_the_code_names_the_graph(tmp_path: Path) -> None:
    step = explained(tmp_path, mark("## Call CompiledFxGraph fabcdefghijklmnopq ##", 0, 200))
    assert step.graphs == {"fabcdefghijklmno": 200_000, "none": 800_000}


def test_nothing_compiled_no_partition(tmp_path: Path) -> None:
    assert explained(tmp_path, mark("aten::mm", 0, 10, "cpu_op")).graphs == {}
