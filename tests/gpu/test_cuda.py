"""What only a GPU can show: the same draws as on a CPU, and a run whose own trace adds up. Run by `make gpu`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def _cuda() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")


def test_draws_are_those_of_a_cpu() -> None:
    """Bits and uniforms bit by bit; normals, held in float32, within 4 units in the last place."""
    import torch

    from headway.kernels.draw import Draw

    ids, visits = torch.tensor([0, 1, 5, 1 << 40]), torch.tensor([0, 3, 1, 9])
    here, there = Draw(7, "digits", ids, visits), Draw(7, "digits", ids.cuda(), visits.cuda())
    assert torch.equal(here.bits("noise", 1001, 3), there.bits("noise", 1001, 3).cpu())
    assert torch.equal(here.uniform("t", (33,)), there.uniform("t", (33,)).cpu())
    a, b = here.normal("noise", (1000,)), there.normal("noise", (1000,)).cpu()
    ulp = torch.nextafter(a.abs(), torch.full_like(a, torch.inf)) - a.abs()
    assert ((a - b).abs() <= 4 * ulp).all()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_never_waits_for_the_device(tmp_path: Path, accumulate: int) -> None:
    import torch

    from tests.train import runs

    run, *_ = runs.live(runs.small(accumulate=accumulate), tmp_path, device="cuda")
    list(runs.steps(run, 2))  # libraries are set up, memory is allocated
    torch.cuda.set_sync_debug_mode("error")
    try:
        list(runs.steps(run, 3))
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_a_run_learns_and_its_trace_adds_up(tmp_path: Path, compute: str) -> None:
    run = tmp_path / "run"
    fields = ["--samples", "20k", "--global-batch", "128", "--precision.compute", compute, "--observe.profile-steps", "100-102"]
    headway("train", "digits", "--run", str(run), *fields, "--observe.progress", "lines")
    assert "ema weights" in headway("sample", str(run), "--columns", "2", "--steps", "4") and (run / "samples.png").is_file()
    losses = [e["loss"] for line in (run / "events.jsonl").read_text().splitlines() if (e := json.loads(line))["kind"] == "log"]
    assert losses[-1] < 0.7 * losses[0]
    explained = json.loads(headway("explain", str(run), "--json"))
    (rank,) = explained["ranks"]
    steps = [step for step in rank["steps"] if step["buckets"]]
    assert rank["device"].startswith("cuda")
    assert [step["step"] for step in steps] == [100, 101, 102]
    for step in steps:
        assert sum(step["buckets"].values()) == sum(step["phases"].values()) == step["wall_ns"]
        assert step["buckets"]["compute.gemm"] > 0
        assert step["phases"]["backward"] > 0
    (memory,) = explained["memory"]
    assert (memory["measured"], memory["step"]) == ("snapshot", 103), "of the step after the traced window"
    assert sum(memory["parts"].values()) == memory["reserved_bytes"] >= memory["allocated_bytes"]
    assert {"parameters", "optimizer"} <= set(memory["parts"])
    assert any(part.startswith("activations.blocks.") for part in memory["parts"])


def headway(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "headway", *words], capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stderr
    return done.stdout
