"""`record`: runs a network forward and backward on the meta device and writes down every operation. No memory, no numbers, < 2 s.

A dispatch mode sees each operation with its shapes. Who asked for it comes from *scopes*: module hooks and a function mode keep a stack of
(module path, kind), and autograd numbers its nodes in the order of the forward pass, so that the numbers at which the scope changed say
to which scope the node of a backward operation belongs.

    autograd number   0 ........ 7 ........ 19 ......... 31
    scope             patch_in   blocks.0   blocks.0 (attention)
    backward of node 21  ->  blocks.0, attention
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from headway.nn import registry
from headway.spec.errors import RunError
from headway.spec.graph import Op, OpGraph

# A function of torch.nn.functional is one operation to its reader; on the meta device it falls into parts. All parts get its kind.
FUNCTION_KINDS: Final[Mapping[Any, str]] = {
    F.scaled_dot_product_attention: "attention",
    F.multi_head_attention_forward: "attention",
    F.layer_norm: "norm",
    F.rms_norm: "norm",
    F.group_norm: "norm",
    F.batch_norm: "norm",
    F.instance_norm: "norm",
    F.embedding: "embedding",
}
OP_KINDS: Final[Mapping[str, str]] = {  # aten name -> kind; all others are elementwise
    name: kind
    for kind, names in {
        "gemm": "mm addmm bmm baddbmm _scaled_mm _grouped_mm",
        "conv": "convolution _convolution convolution_backward",
        "norm": "native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward native_batch_norm "
        "native_batch_norm_backward _fused_rms_norm _fused_rms_norm_backward",
        "softmax": "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data _safe_softmax",
        "embedding": "embedding embedding_dense_backward",
        "reduce": "sum mean amax amin max min var std var_mean cumsum argmax argmin logsumexp",
        "copy": "clone copy_ _to_copy cat stack slice_backward select_backward index_select gather scatter scatter_add constant_pad_nd "
        "pixel_shuffle pixel_unshuffle repeat flip roll index",
    }.items()
    for name in names.split()
}
_NO_NUMBER: Final = 1 << 62  # autograd numbers its nodes from 0, and those outside of the order from 2^64 down
FREE: Final = frozenset(  # these move nothing
    ("_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh", "detach")
)


class NeedsValues(RunError):
    """A network that looks at values while it runs; it can be trained, but its operations cannot be written down."""


@dataclass(frozen=True)
class Scope:
    """Who asks for operations: a module path and, inside of a function of `FUNCTION_KINDS`, its kind."""

    module: str = ""
    kind: str = ""


@dataclass
class _Record:
    """What is known so far: the stack of scopes, where in the numbers of autograd it changed, the operations, what is kept."""

    stack: list[Scope] = field(default_factory=lambda: [Scope()])
    changed_at: list[int] = field(default_factory=lambda: [0])
    changed_to: list[Scope] = field(default_factory=lambda: [Scope()])
    phase: str = "forward"
    last: Scope = Scope()  # of the last node of the backward pass
    ops: list[Op] = field(default_factory=list)
    seen: dict[int, Any] = field(default_factory=dict)  # storages by identity, kept alive so that no identity is used twice
    saved_bytes: dict[str, int] = field(default_factory=dict)

    def push(self, scope: Scope, *_: Any) -> None:
        self.stack.append(scope)
        self._changed()

    def pop(self, *_: Any) -> None:
        self.stack.pop()
        self._changed()

    def _changed(self) -> None:
        self.changed_at.append(torch.autograd._get_sequence_nr())  # type: ignore[attr-defined]  # of the next node
        self.changed_to.append(self.stack[-1])

    def scope(self) -> Scope:
        """The scope of the operation that runs now."""
        if self.phase == "forward":
            return self.stack[-1]
        node = torch._C._current_autograd_node()
        number = node._sequence_nr() if node is not None else _NO_NUMBER
        if number < _NO_NUMBER:  # else the engine itself, or a node that only adds up a parameter's gradient
            self.last = self.changed_to[bisect_right(self.changed_at, number) - 1]
        return self.last

    def keep(self, x: Tensor) -> Tensor:
        """Counts the storage of a tensor that the forward pass keeps for the backward pass, once."""
        storage = x.untyped_storage()
        if storage._cdata not in self.seen:
            self.seen[storage._cdata] = storage
            module = self.stack[-1].module
            self.saved_bytes[module] = self.saved_bytes.get(module, 0) + storage.nbytes()
        return x


class _Functions(TorchFunctionMode):
    """Marks the functions of `FUNCTION_KINDS` as scopes."""

    def __init__(self, record: _Record) -> None:
        super().__init__()
        self.record = record

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kind = FUNCTION_KINDS.get(func)
        if kind is None or self.record.stack[-1].kind:
            return func(*args, **(kwargs or {}))
        self.record.push(Scope(self.record.stack[-1].module, kind))
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.record.pop()


class _Operations(TorchDispatchMode):
    """Writes down every operation that computes or moves something."""

    def __init__(self, record: _Record) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.record = record

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = func._overloadpacket
        name = packet.__name__
        inputs, outputs = list(_tensors((args, kwargs))), list(_tensors(out))
        if func.is_view or name in FREE or not outputs:
            return out
        count = flop_registry.get(packet)
        scope = self.record.scope()
        op = Op(
            kind=scope.kind or OP_KINDS.get(name, "elementwise"),
            name=f"{func.namespace}.{name}",
            phase=self.record.phase,
            module=scope.module,
            shapes=tuple(tuple(x.shape) for x in inputs),
            flops=int(count(*args, **kwargs, out_val=out)) if count else 0,
            bytes=sum(map(_touched_bytes, inputs)) + sum(map(_touched_bytes, outputs)),
        )
        self.record.ops.append(op)
        return out


def record(
    network: nn.Module, *, batch: int, channels: int, size: int, num_classes: int = 0, condition: Mapping[str, Tensor] | None = None
) -> OpGraph:
    """The operations of forward and backward of `network` (on the meta device) for a micro-batch [batch, channels, size, size].

    The condition is made after what the network needs (`nn.registry.needs`), or given: meta tensors [batch, ...]. The loss itself is not
    part of it. FLOPs are those of torch's FlopCounterMode; bytes are those of all inputs and outputs of an operation, each read or
    written once. Functions that a device fuses are here in their parts (attention with its scores, RMSNorm), also in what they keep.
    Raises NeedsValues for a network that needs values to run, RunError for one that does not return a velocity.
    """
    parameters = dict(network.named_parameters())
    assert all(p.is_meta for p in parameters.values()), "record wants a network built under torch.device('meta')"
    if condition is None:
        needs = registry.needs(network, num_classes=num_classes)
        condition = {key: torch.empty(batch, *shape, dtype=dtype, device="meta") for key, (shape, dtype) in needs.items()}
    x, t = torch.empty(batch, channels, size, size, device="meta"), torch.empty(batch, device="meta")

    memory = _Record()
    for p in (*parameters.values(), *network.buffers()):  # these are there anyway
        memory.seen[p.untyped_storage()._cdata] = p
    try:
        with torch.enable_grad(), _Functions(memory), _Operations(memory), _hooked(network, memory):
            with torch.autograd.graph.saved_tensors_hooks(memory.keep, lambda kept: kept):
                v = network(x, t, condition)
            if not isinstance(v, Tensor) or v.shape != x.shape:
                got = tuple(v.shape) if isinstance(v, Tensor) else type(v).__name__
                raise RunError(f"returned {got}, not a velocity of shape {tuple(x.shape)}", where=type(network).__name__)
            memory.phase = "backward"
            if v.requires_grad:  # a frozen network has no backward
                v.backward(torch.empty_like(v))
    except (NotImplementedError, RuntimeError) as error:
        fix = "A network must not look at values (.item(), boolean indexing) to decide what it computes."
        raise NeedsValues(f"cannot be run on the meta device: {error}", where=type(network).__name__, fix=fix) from error
    finally:
        for p in parameters.values():
            p.grad = None
    return OpGraph(
        ops=tuple(memory.ops),
        batch=batch,
        num_parameters=sum(p.numel() for p in parameters.values()),
        saved_bytes=memory.saved_bytes,
        axes=registry.axes(network),
    )


@contextlib.contextmanager
def _hooked(network: nn.Module, memory: _Record) -> Iterator[None]:
    """Every module of `network` is a scope while it runs."""
    handles = []
    for path, module in network.named_modules():
        handles.append(module.register_forward_pre_hook(partial(memory.push, Scope(path))))
        handles.append(module.register_forward_hook(memory.pop, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors inside of nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _touched_bytes(x: Tensor) -> int:
    """Bytes behind a tensor; what `expand` repeats is there once."""
    return math.prod(n for n, stride in zip(x.shape, x.stride(), strict=True) if stride) * x.element_size()
