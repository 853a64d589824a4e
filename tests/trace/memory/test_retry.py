"""Requests that found no block: what counts as one, and why it failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.trace.memory.retry import Retries, reason
from headway.trace.part import of_file

GIB = 1 << 30
CODES = {"M": "cudaMalloc", "F": "cudaFree", "S": "cudaEventSynchronize", "L": "cudaLaunchKernel"}


def trace(folder: Path, calls: str, memory: list[dict[str, Any]]) -> Path:
    """A step with these calls on one thread, 10 us each from 100 us on."""
    span: dict[str, Any] = {"ph": "X", "pid": 1, "tid": 1}
    events = [span | {"cat": "user_annotation", "name": "ProfilerStep#3", "ts": 50, "dur": 1000}]
    events += [
        span | {"cat": "cuda_runtime", "name": CODES[c], "ts": 100 + 10 * i, "dur": 9, "args": {"correlation": i + 1}}
        for i, c in enumerate(calls)
    ]
    events.append({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 60, "dur": 5, "args": {"device": 0, "stream": 7}})
    events += memory
    (folder / "rank0.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return folder / "rank0.json"


def noted(ts: float, size: int, allocated: int, reserved: int) -> dict[str, Any]:
    args = {"Bytes": size, "Addr": 4096, "Device Type": 1, "Device Id": 0, "Total Allocated": allocated, "Total Reserved": reserved}
    return {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}


@pytest.mark.parametrize(
    ("calls", "freed"),
    [
        ("LMFFML", [2]),
        ("MSFSFM", [2]),  # looks at the device between
        ("MFMFFM", [3]),  # the same request, tried twice
        ("MFMLMFM", [1, 1]),
        ("LFFLMM", []),  # empty_cache, then blocks as they are needed
        ("MLFM", []),
        ("FM", []),
        ("MF", []),
        ("MM", []),
        ("", []),
    ],
)  # fmt: skip
def test_what_is_a_retry(tmp_path: Path, calls: str, freed: list[int]) -> None:
    (found,) = of_file(trace(tmp_path, calls, []))
    assert found.retries.freed.tolist() == freed
    assert reason([found.retries]) == ("retries" if freed else "allocator")


@pytest.mark.parametrize(("free", "why"), [(2 * GIB, "fragmentation"), (GIB, "fragmentation"), (GIB - 1, "full")])
def test_memory_is_in_pieces_or_full(tmp_path: Path, free: int, why: str) -> None:
    memory = [noted(90, 512, 10 * GIB, 10 * GIB + free), noted(150, GIB, 11 * GIB, 12 * GIB)]
    (found,) = of_file(trace(tmp_path, "MFFM", memory))
    assert (found.retries.asked[0], found.retries.reserved[0], found.retries.allocated[0]) == (GIB, 10 * GIB + free, 10 * GIB)
    assert reason([Retries(), found.retries]) == why


def test_outside_of_the_steps_is_no_matter(tmp_path: Path) -> None:
    path = trace(tmp_path, "MFFM", [])
    path.write_text(path.read_text().replace('"ts": 50, "dur": 1000', '"ts": 500, "dur": 1000'))
    assert not len(of_file(path)[0].retries)
