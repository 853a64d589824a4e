"""`headway explain` on a large trace: CPU seconds and peak memory of whole processes, against HolisticTraceAnalysis on the same file.

    python -m venv ../hta && ../hta/bin/pip install HolisticTraceAnalysis==0.5.0 'pandas<3'
    python -m headway.bench.large TRACE.json.gz --peer-python ../hta/bin/python --out docs/results/explain_large.json     (3 minutes)

The large trace is ten shifted copies of the given one (`bench.shifted`). Beside the two: a bare typed decode of the same bytes (msgspec,
the same fields, no collector), which is the least that any reader of such a file can cost; where our seconds go; and the cost over the
number of events at three sizes, which is linear if another event costs the same at each.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from headway.bench.explain import PEER, PEER_VERSION
from headway.runtime import folder
from headway.spec.errors import RunError

SCHEMA = "headway.explain_large/1"
COPIES = (2, 5, 10)
MOST_CPU, MOST_MEMORY, MOST_GROWTH = 1 / 8, 0.6, 1.25  # what is promised: shares of the peer; cost of an event, large over small


@dataclass(frozen=True)
class Cost:
    """One process from its start to its end."""

    cpu_s: float
    peak_mb: float


def cost(argv: Sequence[str]) -> Cost:
    """What `argv` costs, on one thread a library. Raises RunError if it fails."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(argv, env={**os.environ, **threads}, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise RunError(f"exit code {child.returncode}: {lines[-1]}", where=" ".join(argv[:3]))
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3)


def bare(path: str) -> None:
    """The least: decode all events of a trace, typed."""
    from headway.trace.read.kineto_json import decode_sound

    gc.disable()
    decode_sound(Path(path).read_bytes())


def stages(path: str) -> dict[str, float]:
    """CPU seconds of each stage of an answer, in this process."""
    from headway.trace import explain, part
    from headway.trace.read import kineto

    spent: dict[str, float] = {"decode": 0.0, "read": 0.0}

    def timed(name: str, function: Any) -> Any:
        def run(*args: Any, **named: Any) -> Any:
            begin = time.process_time()
            try:
                return function(*args, **named)
            finally:
                spent[name] += time.process_time() - begin

        return run

    kineto.decode_events = timed("decode", kineto.decode_events)  # type: ignore[attr-defined]
    part.read = timed("read", part.read)  # type: ignore[attr-defined]
    begin = time.process_time()
    explain.explain([path])
    whole = time.process_time() - begin
    return {"decode": spent["decode"], "columns": spent["read"] - spent["decode"], "analysis": whole - spent["read"]}


def measure(trace: Path, peer_python: str, repeats: int) -> dict[str, Any]:
    """Everything, each size `repeats` times in turn; the peer once, on the largest."""
    with tempfile.TemporaryDirectory() as folder:
        made = {n: _made(trace, Path(folder) / f"copies{n}" / "rank0.json", n) for n in COPIES}
        explain = [sys.executable, "-m", "headway", "explain"]
        ours = {n: [] for n in COPIES}  # type: dict[int, list[Cost]]
        for _ in range(repeats):
            for n, (path, _) in made.items():
                ours[n].append(cost([*explain, str(path)]))
        largest = made[COPIES[-1]][0]
        of_decode = [cost([sys.executable, "-c", f"from headway.bench.large import bare; bare({str(largest)!r})"]) for _ in range(repeats)]
        split = "import json, sys; from headway.bench.large import stages; print(json.dumps(stages(sys.argv[1])))"
        told = subprocess.run([sys.executable, "-c", split, str(largest)], capture_output=True, text=True, check=True).stdout
        peer = cost([peer_python, "-c", PEER, str(largest), str(largest.parent)])
        size = largest.stat().st_size
    version = subprocess.run([peer_python, "-c", PEER_VERSION], capture_output=True, text=True, check=True).stdout.split()
    middle = {n: _median(costs) for n, costs in ours.items()}
    decode = _median(of_decode)
    best = middle[COPIES[-1]]
    sizes = [{"copies": n, "events": made[n][1], "cpu_s": round(c.cpu_s, 3), "peak_mb": round(c.peak_mb)} for n, c in middle.items()]
    slopes = [(b["cpu_s"] - a["cpu_s"]) / (b["events"] - a["events"]) * 1e6 for a, b in pairwise(sizes)]
    result = {
        "schema": SCHEMA,
        "trace": trace.name,
        "bytes": size,
        "events": made[COPIES[-1]][1],
        "repeats": repeats,
        "headway": _rounded(best),
        "headway_all_cpu_s": [round(c.cpu_s, 3) for c in ours[COPIES[-1]]],
        "peer": _rounded(peer),
        "peer_versions": dict(zip(("HolisticTraceAnalysis", "pandas", "numpy"), version, strict=True)),
        "cpu_over_peer": round(best.cpu_s / peer.cpu_s, 4),
        "memory_over_peer": round(best.peak_mb / peer.peak_mb, 4),
        "bare_decode": _rounded(decode),
        "cpu_over_bare_decode": round(best.cpu_s / decode.cpu_s, 2),
        "stages_cpu_s": {k: round(v, 3) for k, v in json.loads(told).items()},
        "sizes": sizes,
        "cpu_s_per_million_events": [round(s, 3) for s in slopes],
        "growth": round(slopes[-1] / slopes[0], 3),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "num_cpus": os.cpu_count(),
    }
    return {**result, "holds": _holds(result)}


def _made(trace: Path, path: Path, copies: int) -> tuple[Path, int]:
    """A trace of `copies` and the number of its events; made by another process, since the peak of this one is a child's too."""
    path.parent.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "headway.bench.shifted", str(trace), str(path), "--copies", str(copies)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return path, int(done.stdout.split(": ")[-1].split()[0].replace(",", ""))


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(statistics.median(c.cpu_s for c in costs), statistics.median(c.peak_mb for c in costs))


def _rounded(cost: Cost) -> dict[str, float]:
    return {"cpu_s": round(cost.cpu_s, 3), "peak_mb": round(cost.peak_mb)}


def _holds(result: dict[str, Any]) -> bool:
    return bool(
        result["cpu_over_peer"] <= MOST_CPU and result["memory_over_peer"] <= MOST_MEMORY and result["growth"] <= MOST_GROWTH,
    )


def told(result: dict[str, Any]) -> str:
    """The result in words."""
    ours, peer, decode = (result[k] for k in ("headway", "peer", "bare_decode"))
    stages = result["stages_cpu_s"]
    most = max(stages, key=lambda k: stages[k])
    growth = ", ".join(f"{s:.2f}" for s in result["cpu_s_per_million_events"])
    return "\n".join(
        (
            f"{result['bytes'] / 1e6:.0f} MB, {result['events']:,} events",
            f"headway explain        {ours['cpu_s']:6.2f} CPU s  {ours['peak_mb']:6.0f} MB",
            f"HolisticTraceAnalysis  {peer['cpu_s']:6.2f} CPU s  {peer['peak_mb']:6.0f} MB",
            f"ratio                  1/{1 / result['cpu_over_peer']:.1f} (at most 1/{1 / MOST_CPU:.0f})"
            f"  {result['memory_over_peer']:.0%} (at most {MOST_MEMORY:.0%})",
            f"bare typed decode      {decode['cpu_s']:6.2f} CPU s  {decode['peak_mb']:6.0f} MB: ours takes"
            f" {result['cpu_over_bare_decode']:.1f} times its CPU seconds",
            f"ours by stage          {', '.join(f'{k} {v:.2f} s' for k, v in stages.items())}; the next limit: {most}",
            f"a million more events  {growth} CPU s from size to size: {result['growth']:.2f} times (linear up to {MOST_GROWTH})",
        )
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 0 if what is promised holds."""
    parser = argparse.ArgumentParser(prog="python -m headway.bench.large", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path, help="Kineto trace (.json, .json.gz)")
    parser.add_argument("--peer-python", required=True, help="python of an environment with HolisticTraceAnalysis 0.5.0")
    parser.add_argument("--repeats", type=int, default=3, help="of ours and of the decode (3)")
    parser.add_argument("--out", type=Path, help="JSON to write")
    args = parser.parse_args(argv)
    result = measure(args.trace, args.peer_python, args.repeats)
    print(told(result))
    if args.out:
        folder.write_json(args.out, result)
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
