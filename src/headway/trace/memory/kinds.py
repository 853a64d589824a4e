"""Which part a block belongs to, by the stack that asked for it: one ordered table of tiers, examples beside each rule (a test runs them).

A rule looks at "file:function" of one frame. Tiers are tried in order and a tier holds if any frame of the stack matches one of its
rules; within a tier the innermost frame that matches decides. So the workspace of a matrix product is workspace wherever the product is,
and in the last tier a forward that is repeated inside a backward is a forward.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from headway.trace.memory.history import Frame, Site

_ENCODERS = r"autoencoder|(^|[/_])vae|text_?encoder|image_?encoder|modeling_(t5|umt5|clip|siglip|dinov2)|open_clip|(^|/)t5|conditioner"


@dataclass(frozen=True)
class Rule:
    """Frames in which `pattern` is found (any case) belong to `part`; each example must come out as `part` of the whole table."""

    part: str
    pattern: str
    examples: tuple[str, ...]


TIERS: Final[tuple[tuple[Rule, ...], ...]] = (
    (
        Rule(
            "workspace",
            r"cu(da)?blas\w*(workspace|handle)|getchosenworkspace|cudnn.*workspace|run_conv_plan|raw_cudnn|cudnnv8|miopen.*(find|"
            r"workspace)|hipblaslt|do_bench|autotun|benchmark_(gpu|all_configs)|split_?kv|workspace_?(buffer|manager)",
            (
                "CUDABlas.cpp:at::cuda::getCUDABlasLtWorkspace()",
                "CublasHandlePool.cpp:at::cuda::getCurrentCUDABlasHandle()",
                "Conv_v8.cpp:at::native::run_conv_plan(cudnnContext*, at::Tensor const&)",
                "triton/testing.py:do_bench",
                "torch/_inductor/runtime/triton_heuristics.py:autotune_to_one_config",
                "aten/src/ATen/native/cudnn/Conv_v7.cpp:at::native::raw_cudnn_convolution_forward_out_32bit",
            ),
        ),
    ),
    (
        Rule(
            "optimizer",
            r"torch/optim/(?!swa_utils)|(apex|transformer_engine|bitsandbytes|torchao|deepspeed|megatron|headway)/.*optim\w*(/|\.py:)(?!.*gather)|"
            r"/(muon|shampoo|soap|lion|adafactor|came|prodigy)\.py:|cpu_adam|fused_adam|:_init_group$|:optimizer_step$",
            (
                "/usr/lib/python3.11/site-packages/torch/optim/adamw.py:_init_group",
                "torch/optim/adam.py:_multi_tensor_adam",
                "megatron/core/optimizer/optimizer.py:step",
                "site-packages/apex/optimizers/fused_adam.py:step",
                "/home/me/project/muon.py:zeropower_via_newtonschulz5",
                "src/headway/runtime/optim.py:step",
            ),
        ),
        Rule(
            "parameters",
            r"swa_utils|(^|[/_])ema\w*\.py:|ema_model|:(_?update_)?ema$",
            (
                "torch/optim/swa_utils.py:update_parameters",
                "diffusers/training_utils/ema_model.py:step",
                "train/ema.py:update",
                "loop.py:ema",
            ),
        ),
    ),
    (
        Rule(
            "encoders",
            rf"({_ENCODERS})[^:]*:|:(_?get_)?(t5|clip|text|prompt|image|qwen\w*|caption)_?(prompt_)?embed\w*$|:(vae|text)_?encode|"
            r":encode_(prompt|text|image|images|caption|latents?|video|first_stage)\w*$|:(tokenize_and_)?encode_batch$",
            (
                "diffusers/models/autoencoders/autoencoder_kl.py:encode",
                "transformers/models/t5/modeling_t5.py:forward",
                "pipeline_flux.py:_get_t5_prompt_embeds",
                "train.py:encode_prompt",
                "sgm/modules/encoders/conditioner.py:forward",
                "wan/modules/vae.py:forward",
            ),
        ),
    ),
    (
        Rule(
            "collectives.all_gather",
            r"foreach_all_gather|all_gather_(copy|outputs?|inputs?)|init_all_gather|alloc_all_gather|unsharded_(flat_)?param|:_all_gather|all_gather_"
            r"(into_tensor|coalesced|object|params?)|allgather|partition_parameters\.py:|partitioned_param_coordinator",
            (
                "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py:foreach_all_gather",
                "torch/distributed/fsdp/_fully_shard/_fsdp_param.py:init_all_gather_outputs",
                "torch/distributed/fsdp/_flat_param.py:_alloc_padded_unsharded_flat_param",
                "torch/distributed/distributed_c10d.py:all_gather_into_tensor",
                "deepspeed/runtime/zero/partition_parameters.py:_all_gather_dtype",
            ),
        ),
        Rule(
            "collectives.reduce_scatter",
            r"foreach_reduce|reduce_scatter|reducescatter",
            (
                "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py:foreach_reduce",
                "torch/distributed/distributed_c10d.py:reduce_scatter_tensor",
            ),
        ),
        Rule(
            "collectives.buckets",
            r"c10d::(reducer|logger)|initialize_buckets|param_and_grad_buffer|gradient_bucket|torch/nn/parallel/distributed\.py:_(ddp_init|sync)",
            (
                "reducer.cpp:c10d::Reducer::initialize_buckets(std::vector<std::vector<unsigned long>>)",
                "megatron/core/distributed/param_and_grad_buffer.py:__init__",
                "torch/nn/parallel/distributed.py:_ddp_init_helper",
            ),
        ),
        Rule(
            "collectives.all_to_all",
            r"all_to_all|alltoall|deep_?ep|token_dispatcher",
            (
                "torch/distributed/distributed_c10d.py:all_to_all_single",
                "megatron/core/transformer/moe/token_dispatcher.py:token_permutation",
            ),
        ),
        Rule(
            "collectives.other",
            r"c10d|processgroupnccl|nccl|distributed_c10d\.py:|_functional_collectives|symm(etric)?_mem|nvshmem|tensor_parallel/mappings",
            (
                "ProcessGroupNCCL.cpp:c10d::ProcessGroupNCCL::collective",
                "torch/distributed/_functional_collectives.py:all_reduce",
                "torch/distributed/_symmetric_memory/__init__.py:empty",
            ),
        ),
    ),
    (
        Rule(
            "parameters",
            r"torch/nn/modules/module\.py:(_apply|to|cuda|to_empty|half|float|bfloat16|register_\w+|load_state_dict)$|torch/nn/parameter\.py:|"
            r"torch/nn/init\.py:|:(reset_parameters|_?init_weights|_?load_from_state_dict|load_state_dict|from_pretrained|materialize_meta\w*|"
            r"_?load_checkpoint\w*|init_sharded_param|_init_sharded_param)$|torch/nn/modules/\w+\.py:__init__$|_flat_param\.py:(_init|flatten)",
            (
                "torch/nn/modules/module.py:_apply",
                "torch/nn/modules/linear.py:__init__",
                "torch/nn/init.py:_no_grad_normal_",
                "transformers/modeling_utils.py:from_pretrained",
                "torch/distributed/fsdp/_fully_shard/_fsdp_param.py:_init_sharded_param",
                "model.py:init_weights",
            ),
        ),
        Rule(
            "activations.(input)",
            r"torch/utils/data/|pin_memory|prefetch\w*\.py:|:(next_batch|get_batch|prefetch\w*|to_device|move_to_device|send_to_device|_prepare_"
            r"inputs?|batch_to_device|load_batch)$|(data)?loader\.py:",
            (
                "torch/utils/data/_utils/pin_memory.py:pin_memory",
                "train.py:get_batch",
                "accelerate/utils/operations.py:send_to_device",
                "src/headway/data/loader.py:__next__",
            ),
        ),
    ),
    (
        Rule(
            "activations",
            r"torch/nn/modules/module\.py:_?(wrapped_)?call_impl$|torch/utils/checkpoint\.py:(unpack_hook|recompute_fn|_?checkpoint\w*|forward)$|"
            r"_aot_autograd/\w+\.py:forward$|eval_frame\.py:|:forward$|:_?(compute_)?loss(_fn|_func)?$|torch/nn/functional\.py:|losses?\.py:",
            (
                "torch/nn/modules/module.py:_call_impl",
                "torch/utils/checkpoint.py:recompute_fn",
                "torch/_functorch/_aot_autograd/runtime_wrappers.py:forward",
                "model.py:forward",
                "train.py:compute_loss",
                "torch/nn/functional.py:cross_entropy",
            ),
        ),
        Rule(
            "gradients",
            r"torch::autograd::(engine|accumulategrad|generated::\w*backward|pynode|node::operator)|accumulategrad|backward\w*::apply|:_?backward\w*$|"
            r"_engine_run_backward|clip_grad|_aot_autograd/\w+\.py:(backward|_backward_impl)|grad_?scaler|main_grad",
            (
                "engine.cpp:torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
                "accumulate_grad.cpp:torch::autograd::AccumulateGrad::apply",
                "Functions.cpp:torch::autograd::generated::AddmmBackward0::apply",
                "torch/_tensor.py:backward",
                "torch/autograd/graph.py:_engine_run_backward",
                "torch/nn/utils/clip_grad.py:clip_grad_norm_",
                "torch/_functorch/_aot_autograd/runtime_wrappers.py:backward",
            ),
        ),
    ),
)
_COMPILED: Final = tuple(tuple((r.part, re.compile(r.pattern, re.IGNORECASE)) for r in tier) for tier in TIERS)
_OF_PHASE: Final = {
    "input": "activations.(input)", "encode": "encoders", "forward": "activations", "backward": "gradients", "reduce": "collectives.other",
    "clip": "gradients", "optimizer": "optimizer", "ema": "parameters",
}  # fmt: skip
_LIBRARY: Final = re.compile(
    r"^none$|(^|/)(torch|triton)/|lib/python3[^/]*/(?!(site|dist)-packages)|torchinductor_|<frozen|^<|\.(cpp|cu|cc|cuh|h|c|hpp|so)\b|^\?\?$|^$"
)
INSTANCE: Final = "nn.Module: "
_FORWARD: Final = re.compile(r"forward$|^__call__$")


def part_of(site: Site) -> str:
    """The part of blocks asked for at `site`; activations carry the module that made them. "" if nothing says it."""
    if site.phase:
        part = _OF_PHASE.get(site.phase, "")
        return f"activations.{site.module or '(no module)'}" if part == "activations" else part
    found = [tuple_of(f"{f.file}:{f.function}") for f in site.frames]
    for tier in range(len(_COMPILED)):
        part = next((parts[tier] for parts in found if parts[tier]), "")
        if part == "activations":
            return f"activations.{module_of(site.frames) or '(no module)'}"
        if part:
            return part
    if site.part:  # torch's profiler takes what an optimizer needs in passing for activations, so the stack is asked first
        return "activations.(no module)" if site.part == "activations" else site.part
    if not site.frames and site.operator == "":
        return "gradients"  # an empty stack was recorded: a thread without Python and without C++ frames, as autograd's are
    return ""


@cache
def tuple_of(frame: str) -> tuple[str, ...]:
    """For each tier, the part that the first of its rules gives "file:function"; "" for none."""
    frame = frame.replace("\\", "/")
    return tuple(next((part for part, pattern in tier if pattern.search(frame)), "") for tier in _COMPILED)


def module_of(frames: Sequence[Frame]) -> str:
    """The calls of forward that lead to a block, as stem:line, outermost first; the last two of the user's own, then torch's leaf.

    A stack names files and lines, not instances: blocks that a loop calls are one module here. A profiler's stack names instances too
    ("nn.Module: Block_3"): then these. "" without any forward.
    """
    instances = [f.function.removeprefix(INSTANCE) for f in frames if f.function.startswith(INSTANCE)]
    if instances:
        return ".".join(reversed(instances[:2]))
    own = [f for f in frames if _FORWARD.search(f.function) and not _LIBRARY.search(f.file)]
    leaf = next((f for f in frames if "torch/nn/modules/" in f.file.replace("\\", "/") and f.function == "forward"), None)
    names = [f"{stem(f.file)}:{f.line}" for f in reversed(own[:2])]
    return " > ".join(names + ([stem(leaf.file)] if leaf else []))


def where(site: Site) -> str:
    """The innermost line that is the user's own, else the innermost of Python, else the first of all."""
    if site.phase or not site.frames:
        return " ".join(x for x in (site.module, site.operator) if x) or (site.phase if site.phase else "(no stack)")
    frames = site.frames
    python = [f for f in frames if f.file.endswith(".py")]
    chosen = next((f for f in frames if not _LIBRARY.search(f.file.replace("\\", "/"))), None) or next(iter(python), frames[0])
    return f"{stem(chosen.file)}{'.py' if chosen.file.endswith('.py') else ''}:{chosen.line} {chosen.function}"[:160]


def stem(file: str) -> str:
    """A file's name without folders and ending."""
    return file.replace("\\", "/").rpartition("/")[2].partition(".")[0] or "?"
