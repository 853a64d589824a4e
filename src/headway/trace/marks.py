"""Names on the host: which phase of a step, which module, which group, and what a thread does while its device is idle.

Our own traces carry marks (spec/event.py). Traces of others carry what PyTorch and its users write; that is read where a trace has no
marks of ours.
"""

from __future__ import annotations

import re
from typing import Final

from headway.spec.breakdown import IDLE_CAUSES
from headway.spec.event import COMM_PREFIX, MODULE_PREFIX, PHASE_PREFIX, PHASES, STEP_PREFIX
from headway.trace import phases
from headway.trace.classify import Rule, first
from headway.trace.phases import NONE

PHASE_CODE: Final = {name: i for i, name in enumerate(PHASES)}
CAUSE_CODE: Final = {name: i for i, name in enumerate(IDLE_CAUSES)}
OTHER_PHASE: Final = PHASE_CODE["other"]
FROM_PHASE: Final = ("input", "encode", "checkpoint", "evaluate")  # a phase that is the cause of idle time by itself

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
    r"^(headway::|ProfilerStep#|Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)#|FSDP::|gloo:|nccl:|xccl:|hccl:|## |\[pl\]\[|PP:|"
    r"Torch-Compiled Region|TorchDynamo Cache Lookup|"
    r"DistributedDataParallel\.|(cuda|hip|cu)[A-Z]\w*$|gc$|torch\.cuda\.)"
)
_GLOO_LAUNCH = re.compile(r"^c10d::(?!.*(wait|set_))")
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")
_SHORT = 16  # letters of a code's name: enough to tell graphs apart
CALL: Final = "nn.Module: "  # before the name of a module that a profiler saw being called
_REGION = re.compile(r"^Torch-Compiled Region: (\S+)")
_COMPILED = re.compile(r"^## Call CompiledFxGraph (\w+) ##|^(CompiledFunction)$")
_LIGHTNING = re.compile(r"^\[pl\]\[module\][\w.]+: ([\w.]+)")
_FSDP = re.compile(r"^FSDP::\w+ (?:for |\()([\w.]+)\)?$")  # the root's own marks name no module


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
    return PHASE_CODE.get(first(phases.PHASES, name), -1)


def cause(name: str) -> int:
    """Code of the idle cause that a row stands for; -1 for none."""
    return CAUSE_CODE.get(first(CAUSES, name), -1)


def module(name: str) -> str:
    """Module path of a mark: ours, Lightning's or FSDP's; '' for other names."""
    if name.startswith(MODULE_PREFIX):
        return name.removeprefix(MODULE_PREFIX)
    found = _LIGHTNING.match(name) or _FSDP.match(name)
    return found[1] if found else ""


def region(name: str) -> str:
    """Number of the region that torch.compile made, frame/version; '' for other names."""
    found = _REGION.match(name)
    return found[1] if found else ""


def compiled(name: str) -> str:
    """Name of a compiled graph's code, cut short; '' for other names."""
    found = _COMPILED.match(name)
    return (found[1] or found[2])[:_SHORT] if found else ""


def is_backward(name: str) -> bool:
    """Whether the autograd engine runs a node in this row."""
    return _BACKWARD.search(name) is not None


def launches_gloo(name: str) -> bool:
    """Whether a host operator hands a collective to Gloo's threads."""
    return _GLOO_LAUNCH.match(name) is not None


def axis(text: str) -> str:
    """A mesh axis or group name in [a-z0-9_-]: 'mesh_dp_shard' -> dp_shard, 'default_pg' -> world."""
    name = re.sub(r"[^a-z0-9_-]+", "_", text.lower().removeprefix(COMM_PREFIX)).strip("_")
    if name in ("default_pg", "default", "world"):
        return "world"
    return name.removeprefix("mesh_") or "group"
