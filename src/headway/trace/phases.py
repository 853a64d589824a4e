"""Names that PyTorch, training frameworks and their users write on the host -> phase of a step: an ordered table, first match wins.

Annotations (record_function, NVTX) of torchtitan, Megatron, Lightning, DeepSpeed, TorchRec and hand-written loops; else the call stack, as
a profiler writes it with with_stack: path/file.py(line): function. What nothing here names is told by autograd, or is `other`.
"""

from __future__ import annotations

from typing import Final

from headway.trace.classify import Rule

NONE: Final = ""  # value of a name that says nothing


def _rule(value: str, patterns: tuple[str, ...], examples: tuple[str, ...]) -> Rule:
    return Rule(value, "|".join(patterns), examples)


def _calls(file: str, function: str) -> str:
    """Rows of the call stack: `function` of a file whose path ends with `file` (patterns)."""
    return rf"(?:^|/){file}\.py\(\d+\): (?:{function})$"


PHASES: Final = (
    _rule(
        "input",
        (
            r"^enumerate\(DataLoader\)#", r"\.__next__$",
            r"^## ?(load_batch|data_load|next_batch|wait_for_batch|copy_batch_to_gpu|wait_for_training_batch)",
            r"^(data[-_]?loader|data[-_]loading|load_(data|batch)|(get|fetch|next)_batch|batch[-_](generator|fetch))(\b|_)",
            r"^\[pl\]\[profile\].*(train_dataloader_next|fetch_next|batch_to_device)",
            _calls("utils/data/dataloader", "__next__|_next_data"), _calls("data_loader", "__iter__"),
            _calls("(train|trainer)", "batch_generator|get_batch"),
        ),
        (
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "## load_batch ##", "## copy_batch_to_gpu 3 ##",
            "dataloader_next", "batch-generator", "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
            "torch/utils/data/dataloader.py(631): __next__", "accelerate/data_loader.py(567): __iter__",
            "torchtitan/train.py(436): batch_generator",
        ),
    ),
    _rule(
        "encode",
        (
            r"^(encode|encoders?|(vae|text|image|video|clip|t5|latent)[-_ ]?encod\w*)\b", r"^encode_(prompt|text|image|video|latents?)",
            _calls(r"autoencoders?/\w+", "_?encode|tiled_encode"), _calls("autoencoder", "encode"), _calls("hf_embedder", "forward"),
            _calls(r"pipelines/\w+/\w+", r"encode_\w+|_get_\w*prompt_embeds"), r": encode_prompts?$",
        ),
        (
            "vae_encode", "text_encoder", "encode_prompt", "diffusers/models/autoencoders/autoencoder_kl.py(270): encode",
            "diffusers/pipelines/flux/pipeline_flux.py(318): encode_prompt", "torchtitan/models/flux/model/hf_embedder.py(41): forward",
            "train_dreambooth.py(1100): encode_prompt",
        ),
    ),
    _rule(
        "ema",
        (
            r"^(ema|ema_(update|step)|update_ema\w*)\b", r"\bema\.(step|update)", r": (update_ema\w*|ema_(update|step))$",
            _calls("training_utils", "step"), _calls("swa_utils", "update_parameters"), _calls(r"\w*ema\w*", "step|update"),
        ),
        (
            "ema_update", "diffusers/training_utils.py(455): step", "torch/optim/swa_utils.py(280): update_parameters",
            "train.py(80): update_ema", "timm/utils/model_ema.py(200): update",
        ),
    ),
    _rule(
        "clip",
        (r"clip_grad_(norm|value)", r"clip[-_]main[-_]grad", r"unscale_and_clip", _calls("optimizer/clip_grads", r"\w+")),
        ("torch/nn/utils/clip_grad.py(188): clip_grad_norm_", "optimizer-clip-main-grad", "megatron/core/optimizer/clip_grads.py(58): f"),
    ),
    _rule(
        "reduce",
        (
            r"^FSDP::post_backward_(reduce|rs)", r"^FullyShardedDataParallel\._post_backward", r"^DDP.*reduce",
            r"torch::distributed::reducer",
            r"^all[-_]grads[-_]sync", r"(allreduce|reduce)_gradients\b", r": ((start|finish)_grad_sync|finalize_model_grads)$",
            r"^PP:.*REDUCE_GRAD",
        ),
        (
            "FSDP::post_backward_reduce (blocks.3)", "DeepSpeedEngine.allreduce_gradients", "all-grads-sync", "PP:1REDUCE_GRAD",
            "megatron/core/distributed/finalize_model_grads.py(255): finalize_model_grads",
        ),
    ),
    _rule(
        "checkpoint",
        (
            r"^(save[-_]checkpoint|checkpoint_save|torch\.save|checkpointing)\b", r": (save_checkpoint\w*|save_state|dcp_save)$",
            r"^\[pl\]\[profile\].*(save_checkpoint|ModelCheckpoint)", _calls("torch/serialization", "save"),
            _calls(r"distributed/checkpoint/\w+", "(async_)?save"), _calls("components/checkpoint", "save"),
        ),
        (
            "save_checkpoint", "save-checkpoint", "torch/distributed/checkpoint/state_dict_saver.py(60): save",
            "torch/serialization.py(900): save", "accelerate/accelerator.py(3300): save_state",
            "[pl][profile][Callback]ModelCheckpoint{}.on_train_batch_end", "torchtitan/components/checkpoint.py(420): save",
        ),
    ),
    _rule(
        "evaluate",
        (
            r"^(evaluate|evaluation|validation|validate)\b", r"^## ?(RecMetric|metrics)", r": log_validation$",
            r"^\[pl\]\[profile\].*(validation_step|val_next|run_evaluation)",
            _calls("(training|trainer|validate|evaluate)", "evaluate|evaluation_loop|validate"),
        ),
        (
            "evaluate", "## metrics update ##", "[pl][profile][Strategy]DDPStrategy.validation_step", "train.py(120): log_validation",
            "megatron/training/training.py(2900): evaluate", "torchtitan/components/validate.py(90): validate",
        ),
    ),
    _rule(
        "optimizer",
        (
            r"^Optimizer\.(step|zero_grad)#", r"^## ?(optimizer|zero_grad) ?##",
            r"^optimizer([-_.](step|inner[-_]step|copy[-_]to[-_]main[-_]grad|unscale\S*))?$",
            r"^\[pl\]\[profile\].*optimizer_(step|zero_grad)", r"^DeepSpeedEngine\.(step|_take_model_step)$",
            _calls(r"optim(izers?)?/\w+", "step|zero_grad|step_with_ready_grads|prepare_grads"), _calls(r"\w*optimizer\w*", "step"),
            _calls("runtime/engine", "step|_take_model_step"),
        ),
        (
            "Optimizer.step#AdamW.step", "Optimizer.zero_grad#SGD.zero_grad", "## optimizer ##", "optimizer-inner-step", "optimizer_step",
            "[pl][profile][LightningModule]Net.optimizer_step", "DeepSpeedEngine.step", "torch/optim/adamw.py(161): step",
            "megatron/core/optimizer/optimizer.py(520): step", "accelerate/optimizer.py(150): step",
            "deepspeed/runtime/engine.py(2300): step",
        ),
    ),
    _rule(
        "backward",
        (
            r"^autograd::engine::evaluate_function", r"^torch::autograd::", r"^\w+Backward\d*$", r"^## ?backward", r"^Backward \d+$",
            r"^FSDP::(pre_backward|backward_prefetch|post_backward|root_post_backward)", r"^PP:\d+(B|I|W)\d*$",
            r"^(model_)?backward([-_](pass|step|compute))?$", r"^\[pl\]\[profile\].*\bbackward$", r"^DeepSpeedEngine\._?backward\w*$",
            _calls("torch/(_tensor|autograd/(__init__|graph))", "backward|_engine_run_backward"),
            _calls("(engine|schedules|accelerator)", "backward(_step)?"),
        ),
        (
            "autograd::engine::evaluate_function: AddmmBackward0", "## backward ##", "CudnnConvolutionBackward", "FSDP::pre_backward (2)",
            "PP:1B0", "PP:3W11", "Backward 2", "[pl][profile][Strategy]SingleDeviceStrategy.backward", "DeepSpeedEngine.backward",
            "torch/_tensor.py(570): backward", "megatron/core/pipeline_parallel/schedules.py(410): backward_step", "backward_pass",
        ),
    ),
    _rule(
        "forward",
        (
            r"^DistributedDataParallel\.forward", r"^## ?forward", r"^nn\.Module: ", r"^Torch-Compiled Region", r"^Forward \d+$",
            r"^FSDP::(root_)?(pre|post)_forward", r"^PP:\d+F\d*$", r"^(model_)?forward([-_](pass|step|compute|loss))?$",
            r"^\[pl\]\[profile\].*training_step$", r"^\[pl\]\[module\]", r"^DeepSpeedEngine\.forward$", _calls("schedules", "forward_step"),
        ),
        (
            "DistributedDataParallel.forward", "## forward:over_arch ##", "nn.Module: Linear_0", "FSDP::pre_forward (blocks.0)", "PP:0F1",
            "Forward 3", "[pl][profile][Strategy]DDPStrategy.training_step", "DeepSpeedEngine.forward", "forward_pass",
            "[pl][module]torch.nn.modules.linear.Linear: layer.2", "megatron/core/pipeline_parallel/schedules.py(280): forward_step",
        ),
    ),
    _rule(
        NONE,
        (r"",),
        (
            "aten::mm", "cudaLaunchKernel", "ProfilerStep#3", "torch/utils/checkpoint.py(260): checkpoint", "PP:0RECV_F1",
            "torch/autograd/function.py(34): save_for_backward",
        ),
    ),
)  # fmt: skip
