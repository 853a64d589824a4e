"""The life of a run from outside: signals, kills, damage, resumes. Real processes of the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headway.runtime import folder
from headway.study.kills import ranks_of

pytestmark = [pytest.mark.alone, pytest.mark.slow]
SMALL = "--model.depth 1 --model.width 32 --model.heads 2 --global-batch 32 --observe.peak h200 --observe.log-every 2 --checkpoint.every 0"


def words(run: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "headway", "train", "digits", "--run", str(run), *SMALL.split(), "--observe.profile-steps", "", *more]


def start(run: Path, *more: str) -> subprocess.Popen[str]:
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"} | {"OMP_NUM_THREADS": "1"}  # as most users have it
    return subprocess.Popen(
        words(run, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environ
    )


def finish(run: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(run, *more), capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})


def wait_until_it_steps(run: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    while (folder.read_json(run / "status.json") or {}).get("samples", 0) == 0:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.05)


def gone(run: Path) -> bool:
    end = time.monotonic() + 10
    while ranks_of(run) and time.monotonic() < end:
        time.sleep(0.1)
    return not ranks_of(run)


LONG = ("--samples", "1000000", "--guard.inject", "forward:30")


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(("number", "group", "code"), [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143)])
def test_a_signal_saves_and_ends_and_the_run_goes_on(tmp_path: Path, shards: int, number: int, group: bool, code: int) -> None:
    run = tmp_path / "run"
    process = start(run, *LONG, "--mesh.dp-shard", str(shards))
    wait_until_it_steps(run, process)
    (os.killpg if group else os.kill)(process.pid, number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == code
    name = signal.Signals(number).name
    assert len([line for line in said.splitlines() if "saved" in line]) == 1, "one line"
    assert f"stopped by {name}" in said and "checkpoint saved; the same command goes on" in said and "Traceback" not in said
    assert gone(run)
    seen = folder.status(run)["samples"]
    done = finish(run, "--samples", str(seen + 64))
    assert done.returncode == 0 and f"resumed at {seen:,} samples" in done.stderr, done.stderr


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    for shards in ("1", "2"):
        run = tmp_path / f"run{shards}"
        process = start(run, "--samples", "1000000", "--guard.inject", "forward:8000@3-9", "--mesh.dp-shard", shards)
        wait_until_it_steps(run, process)
        time.sleep(1.0)
        begin = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 130 and "Traceback" not in said, said
        assert gone(run) and time.monotonic() - begin < 8


def test_a_killed_rank_takes_the_others_along(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run, *LONG, "--mesh.dp-shard", "2")
    wait_until_it_steps(run, process)
    os.kill(max(p for p in ranks_of(run) if p != process.pid), signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 137 and gone(run)
    assert "was killed by SIGKILL; the other ranks were ended" in said and "Traceback" not in said
    assert folder.status(run)["state"] in ("failed", "dead")


def test_a_killed_parent_leaves_no_ranks_and_a_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run, *LONG, "--mesh.dp-shard", "2")
    wait_until_it_steps(run, process)
    process.kill()
    process.communicate(timeout=30)  # until the ranks have closed the pipe too
    assert gone(run)
    assert list((run / "checkpoints").glob("s*[0-9]"))


def test_a_run_goes_on_when_nobody_reads_its_lines_any_more(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run, "--samples", "1280", "--guard.inject", "forward:20")
    wait_until_it_steps(run, process)
    assert process.stderr and process.stdout
    process.stderr.close()
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert folder.status(run)["state"] == "ended" and folder.status(run)["samples"] == 1280


def test_one_run_at_a_time_and_stop(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run, *LONG)
    wait_until_it_steps(run, process)
    second = finish(run, *LONG)
    assert second.returncode == 2 and "is running already" in second.stderr
    command = [sys.executable, "-m", "headway"]
    traced = subprocess.run([*command, "profile", str(run), "--steps", "2"], capture_output=True, text=True, timeout=60)
    assert traced.returncode == 0 and "1 traces" in traced.stdout, traced.stderr
    stopped = subprocess.run([*command, "stop", str(run)], capture_output=True, text=True, timeout=60)
    assert stopped.returncode == 0, stopped.stderr
    process.communicate(timeout=30)
    assert process.returncode == 0
    again = subprocess.run([*command, "stop", str(run)], capture_output=True, text=True, timeout=60)
    assert again.returncode == 2 and "not running" in again.stderr
    told = subprocess.run([*command, "explain", str(run), "--json"], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0 and '"headway.breakdown/1"' in told.stdout


def test_a_damaged_checkpoint_is_skipped_and_said_and_none_good_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert finish(run, "--samples", "256", "--checkpoint.every", "64", "--checkpoint.keep", "2").returncode == 0
    newest, older = sorted((run / "checkpoints").glob("s*[0-9]"), reverse=True)
    tensors = next(newest.glob("*.distcp"))
    data = bytearray(tensors.read_bytes())
    data[len(data) // 2] ^= 1
    tensors.write_bytes(bytes(data))
    done = finish(run, "--samples", "256", "--checkpoint.every", "64", "--checkpoint.keep", "2")
    assert done.returncode == 0
    assert f"checkpoint {newest.name} is damaged and is skipped" in done.stderr
    assert f"the last good one, {older.name}, is used" in done.stderr
    for path in (run / "checkpoints").glob("s*[0-9]"):
        (path / "manifest.json").unlink()
    lost = finish(run, "--samples", "256")
    assert lost.returncode == 2 and "--fresh" in lost.stderr and "Traceback" not in lost.stderr, lost.stderr


def test_a_full_disk_while_saving_leaves_the_run_and_the_old_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert finish(run, "--samples", "128").returncode == 0
    limit = f"ulimit -f 300; exec {' '.join(repr(w) for w in words(run, '--samples', '320', '--checkpoint.every', '64'))}"
    done = subprocess.run(["bash", "-c", limit], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, "it goes on to the end, which is not saved"
    assert "done: 320 samples" in done.stderr and "the end could not be saved" in done.stderr
    assert "could not be saved" in done.stderr and "s000000000128 is intact" in done.stderr and "Traceback" not in done.stderr
    assert (run / "checkpoints" / "s000000000128").is_dir()


def test_what_makes_the_run_itself_cannot_change_on_resume(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert finish(run, "--samples", "64").returncode == 0
    other = finish(run, "--samples", "128", "--model.mlp-ratio", "2")
    assert other.returncode == 2 and "--model.mlp-ratio was 4.0, now 2.0" in other.stderr
    laid_out = finish(run, "--samples", "128", "--mesh.dp-shard", "2", "--optim.lr", "1e-4")
    assert laid_out.returncode == 0 and "optim.lr 0.002 -> 0.0001" in laid_out.stderr
    fresh = finish(run, "--samples", "64", "--model.mlp-ratio", "2", "--fresh")
    assert fresh.returncode == 0 and (tmp_path / "run.1" / "run.json").is_file()
