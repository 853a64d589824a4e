"""Checkpoints under fire: flipped bits, lost files, kills at any moment, full disks; the training goes on and the last good one is used."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from headway.runtime import manifest
from headway.runtime.checkpoint import Checkpoints, load_tensors
from tests.ranks import run_ranks, start
from tests.runtime.saves import Told, names, opened, state_of

# ---- damage ----


def _two(folder: Path) -> tuple[Path, Checkpoints, Told]:
    checkpoints, told = opened(folder)
    for samples in (1, 2):
        checkpoints.save(state_of(samples), samples=samples, meta={})
    told.clear()
    return folder / "s000000000002", checkpoints, told


def _falls_back(checkpoints: Checkpoints, told: Told, why: str) -> None:
    found = checkpoints.newest()
    assert found and found.samples == 1
    assert [k for k, _ in told] == ["warning"]
    text = told[0][1]
    assert "s000000000002 is damaged" in text and why in text and "the last good one, s000000000001, is used" in text
    told.clear()


def test_any_flipped_bit_is_found(tmp_path: Path) -> None:
    newest, checkpoints, told = _two(tmp_path)
    rng = random.Random(0)
    files = sorted(newest.iterdir())
    assert [f.name for f in files] == [".metadata", "__0_0.distcp", "manifest.json"]
    for file in files:
        whole = file.read_bytes()
        for at in [0, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(20))]:
            broken = bytearray(whole)
            broken[at] ^= 1 << rng.randrange(8)
            if file.name == manifest.MANIFEST and _json(bytes(broken)) == _json(whole):
                continue  # white space between the values
            file.write_bytes(broken)
            _falls_back(checkpoints, told, file.name)
        file.write_bytes(whole)
    found = checkpoints.newest()
    assert found and found.samples == 2 and not told


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_missing_short_and_unreadable_files_are_found(tmp_path: Path) -> None:
    newest, checkpoints, told = _two(tmp_path)
    data = newest / "__0_0.distcp"
    whole = data.read_bytes()
    data.write_bytes(whole[:-100])
    _falls_back(checkpoints, told, f"has {len(whole) - 100} bytes, {len(whole)} were written")
    data.unlink()
    _falls_back(checkpoints, told, "__0_0.distcp is missing")
    data.mkdir()
    _falls_back(checkpoints, told, "__0_0.distcp")
    (newest / "manifest.json").write_text("[]")
    _falls_back(checkpoints, told, "manifest.json")
    (newest / "manifest.json").unlink()
    _falls_back(checkpoints, told, "manifest.json")


def test_no_good_one_left_is_said(tmp_path: Path) -> None:
    checkpoints, told = opened(tmp_path)
    (tmp_path / "s000000000001").mkdir()
    assert checkpoints.newest() is None
    assert "there is no good one left" in told[0][1]


def _save_for_ever(folder: Path, seed: int) -> None:
    checkpoints, _ = opened(folder, blocking=bool(seed % 2))
    found = checkpoints.newest()
    samples = found.samples if found else 0
    while True:
        samples += 1
        checkpoints.save({"w": {f"{i}": torch.full((50_000,), float(samples)) for i in range(10)}}, samples=samples, meta={})


def test_a_kill_at_any_moment_leaves_the_last_good_one(tmp_path: Path) -> None:
    rng = random.Random(3)
    cut, last = 0, 0
    for seed in range(12):
        process = start(_save_for_ever, tmp_path, seed)
        deadline = time.monotonic() + 30
        while not any(manifest.samples_of(p) > last for p in manifest.folders(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(rng.random() * 0.05)
        assert process.is_alive()
        process.kill()
        process.join()
        cut += sum(p.suffix == manifest.INCOMPLETE for p in manifest.leftovers(tmp_path))
        told: Told = []
        found = manifest.newest(tmp_path, lambda kind, text, told=told: told.append((kind, text)))
        assert found and found.samples > last and not told  # whole, and not older than what was there
        last = found.samples
        tensors = load_tensors(found.path, "w")
        assert all(t.unique().tolist() == [float(last)] for t in tensors.values()) and len(tensors) == 10
    assert cut >= 3, "kills never met a write: the test shows nothing"


# ---- saves that fail ----


def _file_size_limit(folder: Path) -> tuple[Told, list[str], bool]:
    """A disk that takes no more: files may not grow past 20,000 bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    checkpoints, told = opened(folder)
    checkpoints.save({"t": torch.zeros(10)}, samples=1, meta={})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    checkpoints.save({"t": torch.zeros(100_000)}, samples=2, meta={})
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    left, found = names(folder), checkpoints.newest()
    checkpoints.save({"t": torch.zeros(100_000)}, samples=3, meta={})  # there is room again
    return told, left, bool(found and found.samples == 1)


def test_a_full_disk_is_told_and_the_old_one_is_intact(tmp_path: Path) -> None:
    told, left, intact = run_ranks(_file_size_limit, 1, tmp_path)[0]
    assert left == ["s000000000001"] and intact
    assert [k for k, _ in told] == ["checkpoint", "warning", "checkpoint"]
    text = told[1][1]
    assert "s000000000002 could not be saved" in text and os.strerror(errno.EFBIG) in text
    assert "s000000000001 is intact" in text and "training goes on" in text
    assert names(tmp_path) == ["s000000000001", "s000000000003"]


def _one_rank_fails(folder: Path, where: str) -> tuple[Told, float]:
    rank, world = dist.get_rank(), dist.get_world_size()
    checkpoints, told = opened(folder, rank=rank, world=world, blocking=False)
    state = {"t": torch.zeros(1000), "r": torch.ones(3)}
    checkpoints.save(state, samples=1, meta={})
    checkpoints.wait()

    def fail(*args: Any) -> Any:
        raise RuntimeError("planted: no memory") if where == "stage" else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "here")

    write, stage, hashed = FileSystemWriter.write_data, checkpoints._stager.stage, manifest.digest
    if rank == world - 1:
        if where == "write":
            FileSystemWriter.write_data = fail  # type: ignore[method-assign]
        elif where == "hash":
            manifest.digest = fail
        else:
            checkpoints._stager.stage = fail  # type: ignore[method-assign]
    checkpoints.save(state, samples=2, meta={})
    value = torch.ones(1)
    dist.all_reduce(value)  # the training goes on meanwhile
    checkpoints.wait()
    FileSystemWriter.write_data, checkpoints._stager.stage, manifest.digest = write, stage, hashed  # type: ignore[method-assign]
    checkpoints.save(state, samples=3, meta={})
    checkpoints.wait()
    return told, value.item()


@pytest.mark.parametrize("where", ["write", "hash", "stage"])
def test_one_rank_that_cannot_save_stops_nobody(tmp_path: Path, where: str) -> None:
    (told, value), (other, _) = run_ranks(_one_rank_fails, 2, tmp_path, where)
    assert value == 2.0 and other == []
    assert [k for k, _ in told] == ["checkpoint", "warning", "checkpoint"]
    assert ("planted: no memory" if where == "stage" else "No space left on device") in told[1][1]
    assert "s000000000001 is intact" in told[1][1]
    assert names(tmp_path) == ["s000000000001", "s000000000003"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    checkpoints, told = opened(tmp_path / "file")
    checkpoints.save(state_of(1.0), samples=1, meta={})
    assert [k for k, _ in told] == ["warning"] and "there is no earlier one" in told[0][1] and "Not a directory" in told[0][1]


def test_old_ones_that_cannot_be_removed_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, told = opened(tmp_path, keep=1)
    checkpoints.save(state_of(1.0), samples=1, meta={})

    def refuse(*args: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "s000000000001")

    monkeypatch.setattr(manifest, "remove", refuse)
    checkpoints.save(state_of(2.0), samples=2, meta={})
    assert [k for k, _ in told] == ["checkpoint", "warning", "checkpoint"] and "Permission denied" in told[1][1]
