"""The numbered examples run as their `Usage:` lines say, with few samples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.runtime import folder

EXAMPLES = Path(__file__).parents[2] / "examples"


def usages() -> list[list[str]]:
    """Every command under `Usage:` in an example's docstring."""
    lines = [line.strip() for path in sorted(EXAMPLES.glob("[0-9]*.py")) for line in path.read_text().splitlines()]
    return [line.split()[1:] for line in lines if line.startswith("headway ")]


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


@pytest.mark.parametrize("words", usages(), ids=" ".join)
def test_the_usage_lines_work(words: list[str], tmp_path: Path) -> None:
    done = headway(words, tmp_path)
    wrong = "33" in words  # the line that shows a refusal
    assert done.returncode == (2 if wrong else 0), done.stderr
    if wrong:
        assert "does not divide" in done.stdout
    else:
        logs = [e for e in folder.read_events(tmp_path / "runs" / "own") if e["kind"] == "log"]
        assert logs[-1]["loss"] < logs[0]["loss"]
        assert {"pull", "critic"} <= set(logs[-1]), "an objective's own figures are logged"
        assert logs[-1]["critic"] < logs[0]["critic"]
