"""The numbered examples run as their `Usage:` lines say, with few samples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headway.runtime import folder

EXAMPLES = Path(__file__).parents[2] / "examples"


def usages(example: str) -> list[list[str]]:
    """Every command under `Usage:` in an example's docstring, in order."""
    lines = [line.strip() for line in (EXAMPLES / example).read_text().splitlines()]
    return [line.split()[1:] for line in lines if line.startswith(("headway ", "python "))]


def headway(words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [str(EXAMPLES.parent / w) if w.startswith("examples/") else w for w in words]
    return subprocess.run(
        [sys.executable, "-m", "headway", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_everything_of_ones_own(tmp_path: Path) -> None:
    train, judge, check = usages("01_own_everything.py")
    done = headway(train, tmp_path)
    assert done.returncode == 0, done.stderr
    logs = [e for e in folder.read_events(tmp_path / "runs" / "own") if e["kind"] == "log"]
    assert logs[-1]["loss"] < logs[0]["loss"]
    assert {"pull", "critic"} <= set(logs[-1]), "an objective's own figures are logged"
    assert logs[-1]["critic"] < logs[0]["critic"]
    done = headway(judge, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "reward smoothness" in done.stdout
    done = headway(check, tmp_path)  # the line that shows a refusal
    assert done.returncode == 2
    assert "does not divide" in done.stdout


def test_any_loop(tmp_path: Path) -> None:
    (file, folder_name), *explain = usages("02_any_loop.py")
    done = subprocess.run(
        [sys.executable, EXAMPLES.parent / file, folder_name], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    for words in explain:
        done = headway(words, tmp_path)
        assert done.returncode == 0, done.stderr
        assert "1 rank x 60 steps (4 profiled)" in done.stdout
        for part in ("gemm", "input", "forward", "backward", "optimizer"):
            assert f"{part}  " in done.stdout
        assert "a profiler is open" in done.stdout, "the export of the trace is a cliff with a name"
    assert (tmp_path / "any" / "report.html").stat().st_size > 10_000
