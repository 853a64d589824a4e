"""How fast `headway explain` is against HolisticTraceAnalysis on the same trace: whole processes, CPU seconds, in turn.

    python -m venv ../hta && ../hta/bin/pip install HolisticTraceAnalysis==0.5.0 'pandas<3'
    python -m headway.bench.explain TRACE.json.gz --peer-python ../hta/bin/python --out docs/results/explain_speed.json

A process is counted from its start to its end, with all its children: interpreter, imports, unpacking, decoding, analysis, printing. Ours
answers with its table; the peer reads the trace and gives its temporal breakdown, the nearest that it has, and no more.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway.runtime import folder
from headway.spec.errors import RunError
from headway.stats.intervals import Interval, mean_interval
from headway.stats.paired import Paired, children_cpu_ns, run_paired

SCHEMA = "headway.explain_speed/1"
MOST_CPU_S, MOST_RATIO = 0.85, 1 / 3  # what is promised

PEER = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=sys.argv[2])
print(analysis.get_temporal_breakdown(visualize=False))
"""
PEER_VERSION = "from importlib.metadata import version as v; print(v('HolisticTraceAnalysis'), v('pandas'), v('numpy'))"


def process(argv: Sequence[str]) -> Callable[[], None]:
    """A call that runs `argv` to its end on one thread a library. Raises RunError if it fails."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

    def run() -> None:
        done = subprocess.run(argv, env={**os.environ, **threads}, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise RunError(f"exit code {done.returncode}: {lines[-1]}", where=" ".join(argv[:3]))

    return run


def measure(trace: Path, peer_python: str, repeats: int) -> dict[str, Any]:
    """CPU seconds of both on `trace`, in turn, and their ratio with a 95 % interval."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(trace, folder))  # the peer wants a folder to itself
        ours = process([sys.executable, "-m", "headway", "explain", str(copy)])
        peer = process([peer_python, "-c", PEER, str(copy), folder])
        paired = run_paired(peer, ours, repeats=repeats, clock=children_cpu_ns)
    version = subprocess.run([peer_python, "-c", PEER_VERSION], capture_output=True, text=True, check=True).stdout.split()
    return {
        "schema": SCHEMA,
        "trace": trace.name,
        "trace_bytes": trace.stat().st_size,
        "repeats": repeats,
        "headway_cpu_s": _seconds(paired.b_ns / 1e9),
        "peer_cpu_s": _seconds(paired.a_ns / 1e9),
        "ratio": _interval(paired.mean()),
        "second_over_first": _interval(paired.second_over_first()),
        "peer": dict(zip(("HolisticTraceAnalysis", "pandas", "numpy"), version, strict=True)),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "num_cpus": os.cpu_count(),
        "holds": _holds(paired),
    }


def _holds(paired: Paired) -> bool:
    """Both promises, at the upper ends of their intervals."""
    return mean_interval(paired.b_ns / 1e9).high <= MOST_CPU_S and paired.mean().high <= MOST_RATIO


def _seconds(samples: Any) -> dict[str, Any]:
    return {**_interval(mean_interval(samples)), "min": round(float(samples.min()), 4), "max": round(float(samples.max()), 4)}


def _interval(interval: Interval) -> dict[str, float]:
    return {"mean": round(interval.estimate, 4), "low": round(interval.low, 4), "high": round(interval.high, 4)}


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 0 if both promises hold."""
    parser = argparse.ArgumentParser(prog="python -m headway.bench.explain", description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path, help="Kineto trace (.json, .json.gz)")
    parser.add_argument("--peer-python", required=True, help="python of an environment with HolisticTraceAnalysis 0.5.0")
    parser.add_argument("--repeats", type=int, default=10, help="pairs (10)")
    parser.add_argument("--out", type=Path, help="JSON to write")
    args = parser.parse_args(argv)
    result = measure(args.trace, args.peer_python, args.repeats)
    ours, peer, ratio = (result[k] for k in ("headway_cpu_s", "peer_cpu_s", "ratio"))
    print(f"headway explain        {ours['mean']:.3f} CPU s  [{ours['low']:.3f}, {ours['high']:.3f}]  (at most {MOST_CPU_S})")
    print(f"HolisticTraceAnalysis  {peer['mean']:.3f} CPU s  [{peer['low']:.3f}, {peer['high']:.3f}]")
    print(f"ratio                  {ratio['mean']:.3f}        [{ratio['low']:.3f}, {ratio['high']:.3f}]  (at most {MOST_RATIO:.3f})")
    if args.out:
        folder.write_json(args.out, result)
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
