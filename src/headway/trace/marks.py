"""Names on the host: which phase of a step, which module, which group, and what a thread does while its device is idle.

Our own traces carry marks (spec/event.py). Traces of others carry what PyTorch and its users write; that is read where a trace has no
marks of ours.
"""

from __future__ import annotations

import re
from typing import Final

from headway.spec.breakdown import IDLE_CAUSES
from headway.spec.event import COMM_PREFIX, MODULE_PREFIX, PHASE_PREFIX, PHASES, STEP_PREFIX
from headway.trace.classify import Rule, first

PHASE_CODE: Final = {name: i for i, name in enumerate(PHASES)}
CAUSE_CODE: Final = {name: i for i, name in enumerate(IDLE_CAUSES)}
OTHER_PHASE: Final = PHASE_CODE["other"]
FROM_PHASE: Final = ("input", "encode", "checkpoint", "evaluate")  # a phase that is the cause of idle time by itself

NONE: Final = ""  # value of a name that says nothing

FOREIGN_PHASES: Final = (
    Rule(
        "input",
        r"^enumerate\(DataLoader\)#|^## ?(load_batch|data_load|next_batch|wait_for_batch|copy_batch_to_gpu|wait_for_training_batch)|"
        r"^(dataloader|data_loading|get_batch|fetch_batch)\b|\.__next__$",
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "## load_batch ##", "## copy_batch_to_gpu 3 ##"),
    ),
    Rule("encode", r"^(encode|vae_encode|text_encode|encoder)\b", ("vae_encode",)),
    Rule("clip", r"clip_grad_(norm|value)", ("torch/nn/utils/clip_grad.py(188): clip_grad_norm_",)),
    Rule(
        "reduce",
        r"^FSDP::post_backward_reduce|^FSDP::post_backward_rs|^FullyShardedDataParallel\._post_backward|^DDP.*reduce|torch::distributed::reducer",
        ("FSDP::post_backward_reduce (blocks.3)",),
    ),
    Rule(
        "optimizer",
        r"^Optimizer\.(step|zero_grad)#|^## ?(optimizer|zero_grad) ?##|^optimizer(_step|\.step)?$",
        ("Optimizer.step#AdamW.step", "Optimizer.zero_grad#SGD.zero_grad", "## optimizer ##"),
    ),
    Rule("checkpoint", r"^(save_checkpoint|checkpoint_save|torch\.save|checkpointing)\b", ("save_checkpoint",)),
    Rule("evaluate", r"^(evaluate|evaluation|validation|validate)\b|^## ?(RecMetric|metrics)", ("evaluate", "## metrics update ##")),
    Rule(
        "backward",
        r"^autograd::engine::evaluate_function|^torch::autograd::|Backward\d*$|^## ?backward|"
        r"^FSDP::(pre_backward|backward_prefetch|post_backward|root_post_backward)",
        ("autograd::engine::evaluate_function: AddmmBackward0", "## backward ##", "CudnnConvolutionBackward", "FSDP::pre_backward (2)"),
    ),
    Rule(
        "forward",
        r"^DistributedDataParallel\.forward|^## ?forward|^nn\.Module: |^FSDP::(root_)?(pre|post)_forward|^Torch-Compiled Region",
        ("DistributedDataParallel.forward", "## forward:over_arch ##", "nn.Module: Linear_0", "FSDP::pre_forward (blocks.0)"),
    ),
    Rule(NONE, r"", ("aten::mm", "cudaLaunchKernel", "ProfilerStep#3")),
)

_SYNC = (
    r"^(cuda|hip|xpu|mtia)(Ctx|Device|Stream|Event|Context)Synchronize|^cu(Ctx|Stream|Event)Synchronize|^(cuda|hip)Memcpy$|"
    r"^(Stream|Context|Event|Device) Sync|^(torch\.)?(cuda\.)?synchronize\b"
)
CAUSES: Final = (
    Rule("sync", _SYNC, ("cudaStreamSynchronize", "hipDeviceSynchronize", "cudaMemcpy", "Stream Sync", "torch.cuda.synchronize")),
    Rule(
        "allocator",
        r"^(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree|FreeHost|ExtMalloc)|^cuMem(Create|Map|Unmap|Release|SetAccess|AddressReserve|AddressFree)",
        ("cudaMalloc", "hipFree", "cudaHostAlloc", "cuMemMap"),
    ),
    Rule(
        "compile",
        r"_dynamo[/.](convert_frame|output_graph|symbolic_convert)|_inductor[/.](compile_fx|codecache|graph|scheduler|async_compile)|"
        r"^compile_fx|^_compile\b|^dynamo|^inductor|^triton.*compile|cuModuleLoad|cuLibraryLoad|(cuda|hip)ModuleLoad|nvrtcCompile|hiprtcCompile",
        ("torch/_dynamo/convert_frame.py(1013): compile_inner", "cuModuleLoadData", "hipModuleLoad", "cuLibraryLoadData"),
    ),
    Rule("gc", r"^(python )?gc\b|^headway::gc|built-in function collect|\bgc\.collect", ("gc", "<built-in function collect>")),
    Rule(
        "collective",
        r"^gloo:|::barrier|monitored_barrier|wait_tensor|^record_param_comms$|^(c10d|nccl|xccl):.*wait|^Work.*wait",
        ("gloo:all_reduce", "c10d::barrier", "_c10d_functional::wait_tensor"),
    ),
    Rule(NONE, r"", ("cudaLaunchKernel", "aten::mm", "cudaEventQuery", "cudaStreamWaitEvent", "Stream Wait Event")),
)
READS_DEVICE: Final = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|equal)$")  # a sync where a device works

_MARK = re.compile(
    r"^(headway::|ProfilerStep#|Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)#|FSDP::|gloo:|nccl:|xccl:|hccl:|## |"
    r"DistributedDataParallel\.|(cuda|hip|cu)[A-Z]\w*$|gc$|torch\.cuda\.)"
)
_GLOO_LAUNCH = re.compile(r"^c10d::(?!.*(wait|set_))")
_FSDP = re.compile(r"^FSDP::\w+(?: for)? ?\(?([\w.]+)\)?$")


def is_mark(name: str) -> bool:
    """Whether a row that its writer calls an operator is an annotation: it says what goes on, and computes nothing by itself."""
    return _MARK.match(name) is not None


def step(name: str) -> int:
    """N of ProfilerStep#N; -1 for other names."""
    number = name.removeprefix(STEP_PREFIX)
    return int(number) if number != name and number.isdecimal() and len(number) < 10 else -1


def own_phase(name: str) -> int:
    """Code of the phase of a mark of ours; -1 for other names."""
    if not name.startswith(PHASE_PREFIX):
        return -1
    return PHASE_CODE.get(name.removeprefix(PHASE_PREFIX), OTHER_PHASE)


def foreign_phase(name: str) -> int:
    """Code of the phase that a name of PyTorch or of a user stands for; -1 for none."""
    return PHASE_CODE.get(first(FOREIGN_PHASES, name), -1)


def cause(name: str) -> int:
    """Code of the idle cause that a row stands for; -1 for none."""
    return CAUSE_CODE.get(first(CAUSES, name), -1)


def module(name: str) -> str:
    """Module path of a mark: ours, FSDP's, or a recorded nn.Module call; '' for other names."""
    if name.startswith(MODULE_PREFIX):
        return name.removeprefix(MODULE_PREFIX)
    if name.startswith("nn.Module: "):
        return name.removeprefix("nn.Module: ")
    found = _FSDP.match(name)
    return found[1] if found else ""


def is_backward(name: str) -> bool:
    """Whether the autograd engine runs a node in this row."""
    return name.startswith("autograd::engine::evaluate_function") or name.endswith(("Backward", "Backward0", "Backward1"))


def launches_gloo(name: str) -> bool:
    """Whether a host operator hands a collective to Gloo's threads."""
    return _GLOO_LAUNCH.match(name) is not None


def axis(text: str) -> str:
    """A mesh axis or group name in [a-z0-9_-]: 'mesh_dp_shard' -> dp_shard, 'default_pg' -> world."""
    name = re.sub(r"[^a-z0-9_-]+", "_", text.lower().removeprefix(COMM_PREFIX)).strip("_")
    if name in ("default_pg", "default", "world"):
        return "world"
    return name.removeprefix("mesh_") or "group"
