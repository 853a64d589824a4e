"""A set of traces that is larger than memory, through the pool of processes: time, and the most memory that any process takes.

    python -m headway.bench.fleet --gigabytes 16 --out docs/results/fleet.json

The traces are generated: every rank has the same steps of operators, launches, kernels, a collective on a second stream. They are gzip
files of two members (what differs between ranks, and the events), so that making them costs little. The answer is checked: every rank has
all its steps and the busy time that was generated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headway.runtime import folder
from headway.spec.breakdown import group
from headway.trace.explain import explain

SCHEMA = "headway.fleet/1"
STEPS, KERNELS = 5, 9000  # a rank; about 54 MB of JSON
STEP_US, KERNEL_US, LAUNCH_US = 100_000, 8, 5


def events() -> Iterator[str]:
    """The events of one rank: per kernel an operator with shapes, a launch, the kernel and the arrow between; one collective a step."""
    number = 0
    for step in range(STEPS):
        begin = step * STEP_US
        yield _span("user_annotation", f"ProfilerStep#{step}", 1, 1, begin, STEP_US, "{}")
        for k in range(KERNELS):
            number += 1
            at = begin + 10 * k + 1
            inputs = f'"Input Dims":[[64,{256 + k % 7},1152],[1152,1152]],"Input type":["float","float"]'
            shapes = f'{{"External id":{number},"Sequence number":{number},{inputs}}}'
            yield _span("cpu_op", f"aten::op{k % 97}", 1, 1, at, 8, shapes)
            yield _span("cuda_runtime", "cudaLaunchKernel", 1, 1, at + 1, LAUNCH_US, f'{{"cbid":211,"correlation":{number}}}')
            yield f'{{"ph":"s","id":{number},"pid":1,"tid":1,"ts":{at + 1},"cat":"ac2g","name":"ac2g"}}'
            yield _kernel(f"void kernel_{k % 41}<float>(float*, int)", 7, at + 8, KERNEL_US, number)
            yield f'{{"ph":"f","id":{number},"pid":0,"tid":7,"ts":{at + 8},"cat":"ac2g","name":"ac2g","bp":"e"}}'
        number += 1
        yield _span("cuda_runtime", "cudaLaunchKernel", 1, 1, begin + 10 * KERNELS + 20, LAUNCH_US, f'{{"correlation":{number}}}')
        yield _kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20, begin + 10 * KERNELS + 30, 900, number
        )


BUSY_US = KERNELS * KERNEL_US + 900  # of a step: no two spans of the device overlap


def _span(cat: str, name: str, pid: int, tid: int, ts: int, dur: int, args: str) -> str:
    return f'{{"ph":"X","cat":"{cat}","name":"{name}","pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur},"args":{args}}}'


def _kernel(name: str, stream: int, ts: int, dur: int, correlation: int) -> str:
    args = (
        f'{{"External id":{correlation},"queued":0,"device":0,"context":1,"stream":{stream},"correlation":{correlation},'
        '"registers per thread":32,"shared memory":0,"blocks per SM":10.5,"warps per SM":42.0,"grid":[512,1,1],"block":[128,1,1],'
        '"est. achieved occupancy %":66}'
    )
    return _span("kernel", name, 0, stream, ts, dur, args)


def generate(folder: Path, gigabytes: float) -> tuple[int, int]:
    """Traces of as many ranks as make `gigabytes` of JSON; (number of ranks, bytes of JSON)."""
    body = ",\n".join(events()).encode() + b"]}"
    world = max(1, round(gigabytes * 1e9 / len(body)))
    packed = gzip.compress(body, compresslevel=1)
    for rank in range(world):
        info = {"backend": "nccl", "rank": rank, "world_size": world}
        head = f'{{"schemaVersion":1,"distributedInfo":{json.dumps(info)},"traceEvents":[\n'.encode()
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(head) + packed)
    return world, world * len(body)


def measure(gigabytes: float, workers: int) -> dict[str, Any]:
    """Generate, explain, check. Memory is the peak resident size."""
    with tempfile.TemporaryDirectory() as name, Watch() as watch:
        world, size = generate(Path(name), gigabytes)
        start = time.perf_counter()
        result = explain([name], workers=workers)
        wall = time.perf_counter() - start
    busy = {r.rank: [s.wall_ns - group(s.buckets)["idle"] for s in r.steps] for r in result.ranks}
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "schema": SCHEMA,
        "json_gb": round(size / 1e9, 2),
        "files": world,
        "events": world * STEPS * (5 * KERNELS + 3),
        "workers": workers,
        "wall_s": round(wall, 1),
        "parent_cpu_s": round(own.ru_utime + own.ru_stime, 1),
        "workers_cpu_s": round(sum(watch.cpu_s.values()), 1),
        "parent_peak_mb": round(own.ru_maxrss / 1e3),
        "parent_peak_not_mapped_mb": round(watch.own_kb / 1e3),
        "worker_peak_mb": round(max(watch.peak_kb.values(), default=0) / 1e3),
        "ranks_with_a_wrong_sum": sum(busy.get(rank) != [BUSY_US * 1000] * STEPS for rank in range(world)),
        "python": platform.python_version(),
        "num_cpus": os.cpu_count(),
    }


class Watch:
    """Peak memory and CPU time of every process below this one, looked up five times a second (Linux)."""

    def __init__(self) -> None:
        self.peak_kb: dict[int, int] = {}
        self.cpu_s: dict[int, float] = {}
        self.own_kb = 0  # of this process, the most that was not mapped from files
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            own = Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()
            self.own_kb = max(self.own_kb, int(own[0]) if own else 0)
            for pid in descendants(os.getpid()):
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                except OSError:  # it has ended
                    continue
                peak = status.partition("VmHWM:")[2].split()
                self.peak_kb[pid] = int(peak[0]) if peak else 0
                self.cpu_s[pid] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """Processes that `pid` has started, and those that they have."""
    try:
        children = [int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]
    except OSError:
        return []
    return children + [d for c in children for d in descendants(c)]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 0 if every sum is right."""
    parser = argparse.ArgumentParser(prog="python -m headway.bench.fleet", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=16, help="JSON to generate (16)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    parser.add_argument("--out", type=Path, help="JSON to write")
    args = parser.parse_args(argv)
    result = measure(args.gigabytes, args.workers)
    print(json.dumps(result, indent=2))
    if args.out:
        folder.write_json(args.out, result)
    return 1 if result["ranks_with_a_wrong_sum"] else 0


if __name__ == "__main__":
    sys.exit(main())
