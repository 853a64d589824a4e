"""The memory snapshot of a run: what outlives a step is named, modules are timed, and the file reads back as parts that are right."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.runtime import folder
from headway.spec.event import memory_file
from headway.trace.memory.account import account
from headway.trace.read.snapshot import histories
from headway.train import hooks
from headway.train.loop import loop
from headway.train.snapshot import MemoryRecording, named, start_memory
from headway.train.step import step
from tests.train import runs
from tests.train.test_hooks import At, observed


def size(tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def test_on_a_cpu_nothing_is_recorded(tmp_path: Path) -> None:
    run, *_ = runs.live(runs.small(), tmp_path)
    assert start_memory(run.state) is None


def test_every_tensor_that_outlives_a_step_is_named_once_with_its_bytes(tmp_path: Path) -> None:
    run, *_ = runs.live(runs.small(), tmp_path)
    step(run.state, next(run.batches), run.emit)
    sums: dict[str, int] = {}
    for _, num, part in named(run.state):
        sums[part] = sums.get(part, 0) + num
    student = run.state.roles["student"]
    assert run.state.ema is not None
    weights = size(p for net in run.state.roles.values() for p in (*net.parameters(), *net.buffers())) + size(
        run.state.ema.state().values()
    )
    assert sums["parameters"] == weights
    state = [v for s in run.state.optimizers["student"].state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    assert sums["optimizer"] == size(state) >= 2 * size(student.parameters())
    places = [address for address, num, _ in named(run.state) if num]
    assert len(places) == len(set(places))


def test_a_recording_reads_back_with_the_right_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, *_ = runs.live(runs.small(), tmp_path)
    calls: list[dict[str, Any]] = []

    def snapshot() -> dict[str, Any]:
        """One segment a tensor, at its true address: what an allocator that never splits would hold."""
        blocks = {address: num for address, num, _ in named(run.state) if num}
        segments = [
            {"address": a, "total_size": n, "blocks": [{"address": a, "size": n, "state": "active_allocated"}]} for a, n in blocks.items()
        ]
        return {"segments": segments, "device_traces": []}

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **options: calls.append(options))
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", snapshot)
    recording = MemoryRecording(run.state)
    step(run.state, next(run.batches), run.emit)
    file = tmp_path / "traces" / memory_file(3, 7)
    recording.write(file, 3, 7)
    assert [c.get("enabled", "all") for c in calls] == ["all", None]
    assert [p.name for p in file.parent.iterdir()] == ["memory000007.rank3.pickle"]
    data = pickle.loads(file.read_bytes())
    paths = {path for _, _, path in data["headway"]["modules"]}
    assert any(path.startswith("blocks.0") for path in paths)
    assert all(start <= end for start, end, _ in data["headway"]["modules"])
    (history,) = histories(data, str(file))
    found = account(history, 3)
    expected: dict[str, int] = {}
    for _, num, part in named(run.state):
        expected[part] = expected.get(part, 0) + num
    assert history.rank == 3
    assert dict(found.parts) == {part: num for part, num in expected.items() if num}
    hooks = [h for m in run.state.roles["student"].modules() for h in (*m._forward_pre_hooks, *m._forward_hooks)]
    step(run.state, next(run.batches), run.emit)
    assert len(data["headway"]["modules"]) == len(recording._modules), f"hooks are still there: {hooks}"


@pytest.mark.parametrize(
    ("planned", "asked_at", "num", "written"),
    [
        ("2-3", 99, 0, [4]),
        ("2-3", 3, 2, [6]),  # a window that was asked for follows at once: after it
        ("6-7", 99, 0, []),  # the run ends with the window
        ("5-6", 99, 0, [7]),  # the run ends with the recorded step
    ],
)
def test_the_step_after_a_window_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: str, asked_at: int, num: int, written: list[int]
) -> None:
    spec = runs.small(observe=observed(profile_steps=planned))
    run, others, signals, _ = runs.live(spec, tmp_path)
    steps: list[int] = []
    tracing: dict[int, bool] = {}

    class Recording:
        def write(self, file: Path, rank: int, step: int) -> None:
            assert file == tmp_path / "traces" / memory_file(rank, step)
            steps.append(step)

    monkeypatch.setattr(hooks, "start_memory", lambda state: Recording())
    ask = At(asked_at, lambda: folder.ask(tmp_path, "profile", steps=num))
    note = [At(n, lambda n=n: tracing.update({n: run.tracing})) for n in range(8)]
    loop(run, [ask, *others, hooks.Profile(spec, signals), *note])
    assert run.state.step == 8
    assert steps == written
    first = int(planned[0])
    assert [n for n in range(8) if tracing[n]] == list(range(first, max([*written, int(planned[-1])]) + 1))
