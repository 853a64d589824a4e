"""What can only be checked with a GPU: its tests, and a training run measured and explained there.

    python tools/gpu.py        (3 minutes; writes docs/results/gpu.json; without a GPU it says so and ends)

The command line is used as a user would, so this file knows no room.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "docs" / "results" / "gpu.json"
STEPS, WARM, FIRST, LAST = 400, 100, 300, 304  # of the run; logged rates count after WARM; the traced steps
BATCH = 1024
RUN = {
    "global-batch": BATCH,
    "samples": STEPS * BATCH,
    "model.width": 512,
    "model.depth": 12,
    "model.heads": 8,
    "precision.compute": "bf16",
    "observe.log-every": 10,
    "observe.profile-steps": f"{FIRST}-{LAST}",
    "observe.progress": "lines",
}


def device() -> dict[str, Any] | None:
    """Name and versions of the first CUDA device; None if torch is absent or sees none."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    if not torch.cuda.is_available():
        return None
    return {
        "device": torch.cuda.get_device_name(0),
        "count": torch.cuda.device_count(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def tests(folder: Path) -> dict[str, Any]:
    """Outcome of every test marked gpu."""
    report = folder / "gpu.xml"
    done = subprocess.run([sys.executable, "-m", "pytest", "-m", "gpu", f"--junitxml={report}"], cwd=ROOT, check=False)
    cases = xml.parse(report).getroot().iter("testcase")
    outcome = {f"{c.get('classname')}.{c.get('name')}": next((e.tag for e in c if e.tag != "properties"), "passed") for c in cases}
    return {"exit": done.returncode, "tests": outcome}


def training(folder: Path) -> dict[str, Any]:
    """Rate, MFU and breakdown of the digits recipe with a larger network in bf16."""
    run = folder / "run"
    fields = [f"--{name}={value}" for name, value in RUN.items()]
    start = time.perf_counter()
    headway("train", "digits", "--run", str(run), *fields)
    seconds = time.perf_counter() - start
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    logs = [line for line in lines if line["kind"] == "log" and line["step"] > WARM and not FIRST <= line["step"] <= LAST + 10]
    explained = json.loads(headway("explain", str(run), "--json", capture=True))
    return {
        "settings": RUN,
        "seconds": round(seconds, 1),
        "samples_s": median(line["samples_s"] for line in logs),
        "mfu": median(line["mfu"] for line in logs),
        "loss": logs[-1]["loss"],
        "steps": [step for rank in explained["ranks"] for step in rank["steps"] if step["buckets"]],
        "health": explained["health"],
    }


def headway(*words: str, capture: bool = False) -> str:
    """Run a command of ours; its output if it is captured. Raises CalledProcessError if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "headway", *words], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE if capture else None
    )
    return done.stdout or ""


def main() -> int:
    """Tests, then the measurement; the exit code is that of the tests."""
    found = device()
    if found is None:
        print("make gpu: torch sees no CUDA device here, so nothing was run (GPU_PYTHON=... names another interpreter)")
        return 0
    with tempfile.TemporaryDirectory() as name:
        outcome = tests(Path(name))
        result = {"schema": "headway.gpu/1", **found, **outcome, "training": training(Path(name))}
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {RESULT.relative_to(ROOT)}")
    return int(outcome["exit"])


if __name__ == "__main__":
    sys.exit(main())
