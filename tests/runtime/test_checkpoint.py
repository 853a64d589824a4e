"""Checkpoints: any layout into any other, bitwise; beside the training; the newest kept; what does not fit is refused."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.tensor import DTensor

from headway.parallel import fsdp
from headway.parallel.mesh import build_mesh
from headway.runtime import manifest, optim
from headway.runtime.checkpoint import load_tensors
from headway.runtime.ema import Ema
from headway.spec.errors import RunError
from headway.spec.parts import MeshSpec, OptimSpec, PrecisionSpec
from tests.parallel.nets import BATCH, Net, loss_sum, make, materialise
from tests.ranks import run_ranks
from tests.runtime.saves import names, opened, state_of

FP32 = PrecisionSpec()


# ---- layouts ----


class _Run:
    """A sharded network with its optimizer and average, as a training run has them."""

    def __init__(self, spec: MeshSpec, seed: int) -> None:
        self.mesh = build_mesh(spec, "cpu")
        full = make(torch.float32, seed)
        self.net = fsdp.shard(Net().to("meta"), self.mesh, FP32, reshard=True)
        materialise(self.net, dict(full.named_parameters()) | dict(full.named_buffers()))
        self.optimizer = optim.build_optimizer(self.net, OptimSpec(lr=0.1), 0.1)
        self.ema = Ema(self.net, half_life=50)

    def step(self) -> None:
        rows = BATCH // self.mesh.data_parallel
        loss_sum(self.net, slice(self.mesh.data_rank * rows, (self.mesh.data_rank + 1) * rows), torch.float32).backward()
        optim.step(self.optimizer, torch.tensor(True))
        self.optimizer.zero_grad()
        self.ema.update(BATCH)

    def tree(self) -> dict[str, Any]:
        model = dict(fsdp.parameters_of(self.net))
        return {"student": model, "optim": optim.state(self.net, self.optimizer), "ema": self.ema.state(), "samples": 24}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, leaf in tree.items():
        if isinstance(leaf, Mapping):
            out |= _flat(leaf, f"{prefix}{key}/")
        else:
            out[prefix + key] = leaf.full_tensor().detach() if isinstance(leaf, DTensor) else leaf
    return {k: v.detach().clone() if isinstance(v, torch.Tensor) else v for k, v in out.items()}


def _place(spec: MeshSpec) -> tuple[int, int]:
    return (dist.get_rank(), spec.world) if spec.world > 1 else (0, 1)


def _save_run(folder: Path, spec: MeshSpec) -> dict[str, Any]:
    """Save after two steps, train on while it is written; what the tree was when `save` was called."""
    rank, world = _place(spec)
    checkpoints, told = opened(folder, blocking=False, rank=rank, world=world)
    run = _Run(spec, seed=0)
    run.step()
    run.step()
    before = _flat(run.tree())
    checkpoints.save(run.tree(), samples=24, meta={"step": 2})
    for _ in range(3):
        run.step()  # collectives of the training beside those of the thread
    checkpoints.wait()
    assert [kind for kind, _ in told] == (["checkpoint"] if rank == 0 else [])
    assert not torch.equal(before["student/position"], _flat(run.tree())["student/position"])
    return before


def _load_run(folder: Path, spec: MeshSpec) -> dict[str, Any]:
    rank, world = _place(spec)
    checkpoints, told = opened(folder, rank=rank, world=world)
    run = _Run(spec, seed=1)
    found = checkpoints.newest()
    assert found and found.samples == 24 and found.meta == {"step": 2} and not told
    tree = run.tree() | {"samples": 0}
    checkpoints.load(found, tree)
    assert tree["samples"] == 24
    loaded = _flat(run.tree())  # read again from the live objects
    run.step()
    return loaded


ONE, TWO, THREE, FOUR = (MeshSpec(dp_shard=n) for n in (1, 2, 3, 4))
HSDP, REPLICAS = MeshSpec(dp_replicate=2, dp_shard=2), MeshSpec(dp_replicate=2)


@pytest.mark.parametrize(
    ("source", "others"),
    [(ONE, [TWO]), (TWO, [ONE, THREE]), (THREE, [HSDP]), (FOUR, [ONE, FOUR]), (HSDP, [TWO]), (REPLICAS, [ONE])],
    ids=str,
)
def test_any_layout_loads_into_any_other_bitwise(tmp_path: Path, source: MeshSpec, others: list[MeshSpec]) -> None:
    saved = run_ranks(_save_run, source.world, tmp_path, source)[0]
    assert names(tmp_path) == ["s000000000024"]
    for layout in others:
        for loaded in run_ranks(_load_run, layout.world, tmp_path, layout):
            assert loaded.keys() == saved.keys()
            assert [k for k in saved if not _same(saved[k], loaded[k])] == []
    ema = load_tensors(tmp_path / "s000000000024", "ema")  # no process group, whatever wrote it
    assert ema.keys() == dict(make().named_parameters()).keys()
    assert all(torch.equal(ema[n], saved[f"ema/{n}"]) for n in ema)


def _same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else bool(a == b)


# ---- one process ----


def test_round_trip_of_tensors_and_values(tmp_path: Path) -> None:
    checkpoints, told = opened(tmp_path / "new" / "checkpoints")
    assert checkpoints.newest() is None and not told
    checkpoints.save(state_of(7.0), samples=7, meta={"why": "test"})
    tree = state_of(0.0) | {"note": {"x": 0.0, "list": []}}
    found = checkpoints.newest()
    assert found and found.meta == {"why": "test"}
    checkpoints.load(found, tree)
    assert tree["clock"] == 7 and tree["note"] == {"x": 0.5, "list": [1, 2]}
    assert torch.equal(tree["net"]["a.w"], torch.full((300, 70), 7.0)) and tree["net"]["b"].item() == 7.0
    assert told == [("checkpoint", told[0][1])] and told[0][1].startswith("saved s000000000007 in ")


def test_save_returns_before_it_is_written_and_the_state_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, at_gate = threading.Event(), threading.Event()
    write = FileSystemWriter.write_data
    monkeypatch.setattr(FileSystemWriter, "write_data", lambda *a: (at_gate.set(), gate.wait(30), write(*a))[2])
    checkpoints, told = opened(tmp_path, blocking=False)
    state = state_of(1.0)
    checkpoints.save(state, samples=1, meta={})
    state["net"]["a.w"].fill_(99.0)
    state["net"]["b"].fill_(99.0)
    assert at_gate.wait(30)
    checkpoints.poll()
    assert not told and manifest.folders(tmp_path) == [] and names(tmp_path) == ["s000000000001.incomplete"]
    gate.set()
    checkpoints.wait()
    assert [k for k, _ in told] == ["checkpoint"]
    assert load_tensors(tmp_path / "s000000000001", "net")["a.w"].unique().tolist() == [1.0]
    assert load_tensors(tmp_path / "s000000000001", "net")["b"].item() == 1.0


def test_one_save_at_a_time_and_poll_tells_when_it_is_over(tmp_path: Path) -> None:
    checkpoints, told = opened(tmp_path, blocking=False)
    for samples in (1, 2):
        checkpoints.save(state_of(samples), samples=samples, meta={})
    assert len(told) == 1  # the second save waited for the first
    deadline = time.monotonic() + 30
    while len(told) < 2 and time.monotonic() < deadline:
        checkpoints.poll()
        time.sleep(0.01)
    assert [text.split()[1] for _, text in told] == ["s000000000001", "s000000000002"]


def test_the_newest_are_kept(tmp_path: Path) -> None:
    checkpoints, _ = opened(tmp_path, keep=2)
    for samples in (5, 10, 1_000_000_000_000):
        checkpoints.save(state_of(1.0), samples=samples, meta={})
    assert names(tmp_path) == ["s000000000010", "s1000000000000"]


def test_the_same_samples_again_write_nothing_unless_damaged(tmp_path: Path) -> None:
    checkpoints, _ = opened(tmp_path)
    checkpoints.save(state_of(1.0), samples=1, meta={})
    path = tmp_path / "s000000000001"
    checkpoints.save(state_of(2.0), samples=1, meta={})
    assert load_tensors(path, "net")["b"].item() == 1.0
    (path / "__0_0.distcp").write_bytes(b"")
    checkpoints.save(state_of(2.0), samples=1, meta={})
    assert load_tensors(path, "net")["b"].item() == 2.0 and names(tmp_path) == ["s000000000001"]


def test_a_damaged_later_checkpoint_does_not_push_out_good_ones(tmp_path: Path) -> None:
    checkpoints, _ = opened(tmp_path, keep=1)
    checkpoints.save(state_of(3.0), samples=300, meta={})
    (tmp_path / "s000000000300" / ".metadata").unlink()
    checkpoints.save(state_of(1.0), samples=100, meta={})
    found = checkpoints.newest()
    assert found and found.samples == 100


def test_leftovers_are_removed_at_the_start_and_told(tmp_path: Path) -> None:
    checkpoints, _ = opened(tmp_path)
    checkpoints.save(state_of(1.0), samples=1, meta={})
    part = tmp_path / "s000000000002.incomplete"
    part.mkdir()
    (part / "__0_0.distcp").write_bytes(b"half")
    (tmp_path / "s000000000000.removed").mkdir()  # an old one, half removed: nothing to tell
    again, told = opened(tmp_path)
    assert names(tmp_path) == ["s000000000001"]
    assert [k for k, _ in told] == ["warning"] and "s000000000002" in told[0][1] and "cut off" in told[0][1]
    assert again.newest() is not None


# ---- what does not fit ----


def test_a_folder_that_cannot_be_read_is_an_error_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, _ = opened(tmp_path)

    def refuse(*args: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    monkeypatch.setattr(manifest, "folders", refuse)
    with pytest.raises(RunError, match=r"cannot be read.*Permission denied"):
        checkpoints.newest()


def _other_states() -> list[tuple[dict[str, Any], str]]:
    more = state_of(0.0)
    more["net"]["c"] = torch.zeros(2)
    wider = state_of(0.0)
    wider["net"]["a.w"] = torch.zeros(300, 71)
    return [(more, "net/c"), (wider, "net/a.w"), (state_of(0.0) | {"new": 1}, "new")]


@pytest.mark.parametrize(("state", "what"), _other_states(), ids=["more", "wider", "value"])
def test_a_state_that_does_not_fit_is_refused(tmp_path: Path, state: dict[str, Any], what: str) -> None:
    checkpoints, _ = opened(tmp_path)
    checkpoints.save(state_of(1.0), samples=1, meta={})
    found = checkpoints.newest()
    assert found
    with pytest.raises(RunError, match=what):
        checkpoints.load(found, state)


def test_load_tensors_says_what_is_there(tmp_path: Path) -> None:
    checkpoints, _ = opened(tmp_path)
    checkpoints.save(state_of(1.0), samples=1, meta={})
    with pytest.raises(RunError, match="holds no 'ema', only net"):
        load_tensors(tmp_path / "s000000000001", "ema")
    with pytest.raises(RunError, match="no checkpoint"):
        load_tensors(tmp_path / "nowhere", "ema")
