"""Traces from drawings: a line is a thread or a stream, a character is a microsecond, a span is [name   ].

    main   [S0                      ]        S0: mark of step 0
    main    [L1]                             L1: a launch with correlation id 1
    0.7          [g1    ]                    0.7: device 0, stream 7; g1: a matrix product launched by L1

A span begins at its '[' and ends after its ']'. Lines of one name are one track. Letters are looked up in `LEGEND`; what follows is a
number: correlation id, step, or sequence number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

US = 1_000  # nanoseconds
_SPAN = re.compile(r"\[([A-Za-z_]+)(\d*)[^\]]*\]")

LEGEND: dict[str, tuple[str, str]] = {  # letters -> (category, name); # is the number
    "S": ("user_annotation", "ProfilerStep##"),
    "L": ("cuda_runtime", "cudaLaunchKernel"),
    "W": ("cuda_runtime", "cudaStreamSynchronize"),
    "M": ("cuda_runtime", "cudaMalloc"),
    "gc": ("user_annotation", "gc"),
    "g": ("kernel", "volta_sgemm_128x64_nn"),
    "e": ("kernel", "void at::native::vectorized_elementwise_kernel<4>"),
    "n": ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    "r": ("kernel", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"),
    "h": ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"),
    "d": ("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)"),
    "z": ("gpu_memset", "Memset (Device)"),
    "y": ("cuda_sync", "Stream Sync"),
    "load": ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    "save": ("user_annotation", "headway::phase::checkpoint"),
    "fwd": ("user_annotation", "headway::phase::forward"),
    "bwd": ("user_annotation", "headway::phase::backward"),
    "red": ("user_annotation", "headway::phase::reduce"),
    "opt": ("user_annotation", "Optimizer.step#AdamW.step"),
    "A": ("user_annotation", "headway::module::a"),
    "B": ("user_annotation", "headway::module::a.b"),
    "ax": ("user_annotation", "headway::comm::dp_shard"),
    "mm": ("cpu_op", "aten::mm"),
    "addmm": ("cpu_op", "aten::addmm"),
    "lin": ("cpu_op", "aten::linear"),
    "cp": ("cpu_op", "aten::copy_"),
    "add": ("cpu_op", "aten::add_"),
    "f": ("cpu_op", "aten::mul"),
    "b": ("cpu_op", "autograd::engine::evaluate_function: MulBackward0"),
    "c": ("cpu_op", "c10d::allreduce_"),
    "G": ("user_annotation", "gloo:all_reduce"),
}
_NUMBERED = {"L", "g", "e", "n", "r", "h", "d", "z"}


def events(drawing: str) -> list[dict[str, Any]]:
    """The events of a drawing, in the format of Kineto."""
    out = []
    for line in drawing.strip("\n").splitlines():
        label, body = line.split(None, 1) if line.strip() else ("", "")
        offset = line.index(body) if body else 0
        base = _origin(drawing)
        for match in _SPAN.finditer(line, offset):
            letters, number = match[1], match[2]
            category, name = LEGEND[letters]
            args: dict[str, Any] = {}
            if letters in _NUMBERED and number:
                args["correlation"] = int(number)
            if letters in "fb" and number:
                args |= {"Sequence number": int(number), "Fwd thread id": int(letters == "b")}
            pid, tid = 1, label
            if "." in label:
                device, stream = label.split(".")
                args |= {"device": int(device), "stream": int(stream)}
                pid, tid = int(device), stream
            out.append(
                {"ph": "X", "cat": category, "name": name.replace("##", f"#{number}"), "pid": pid, "tid": tid,
                 "ts": match.start() - base, "dur": match.end() - match.start(), "args": args}
            )  # fmt: skip
    return out


def _origin(drawing: str) -> int:
    """Column of time 0: where spans may begin (after the longest label)."""
    return min(m.start() for line in drawing.splitlines() for m in _SPAN.finditer(line))


def write(path: Path, rows: Sequence[dict[str, Any]], **fields: Any) -> Path:
    """A trace file of these events."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(rows), **fields}))
    return path


def draw(path: Path, drawing: str, *, rank: int = 0, world: int = 1) -> Path:
    """A trace file of a drawing."""
    return write(path, events(drawing), distributedInfo={"backend": "nccl", "rank": rank, "world_size": world})


def span(cat: str, name: str, ts: float, dur: float, *, pid: Any = 1, tid: Any = 1, **args: Any) -> dict[str, Any]:
    """One event by hand; times in microseconds."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
