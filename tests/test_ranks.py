"""The harness that starts ranks: results, failures, timeouts, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.ranks import RanksFailed, run_ranks, start


def _sum(x: float) -> tuple[float, int, str]:
    t = torch.tensor(x * (dist.get_rank() + 1), requires_grad=True)
    (t * t).backward()
    assert t.grad is not None
    dist.all_reduce(t.grad)
    return t.grad.item(), torch.get_num_threads(), os.environ["RANK"]


def _tensor() -> torch.Tensor:
    return torch.full((1000,), float(os.environ["RANK"]))


def _one() -> bool:
    return dist.is_initialized()


def _rank_one_fails() -> None:
    if dist.get_rank() == 1:
        raise ValueError("planted on rank 1")
    dist.barrier()


def _hang(path: str) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    Path(f"{path}/{dist.get_rank()}").write_text(f"{os.getpid()} {child.pid}")
    time.sleep(1000)


def _killed() -> None:
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def _warn() -> None:
    warnings.warn("a planted warning", stacklevel=1)


def test_results_by_rank_again_and_again() -> None:
    for world in (2, 3, 2):
        total = 2.0 * world * (world + 1) / 2
        assert run_ranks(_sum, world, 1.0) == [(total, 1, str(r)) for r in range(world)]


def _threads_of_the_server() -> int:
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(status.split("Threads:")[1].split()[0])


def test_the_server_has_no_thread_to_lose_in_a_fork() -> None:
    assert run_ranks(_threads_of_the_server, 1) == [1]


def test_tensors_come_back_whole() -> None:
    assert [t.sum().item() for t in run_ranks(_tensor, 3)] == [0.0, 1000.0, 2000.0]


def test_one_process_has_no_group() -> None:
    assert run_ranks(_one, 1) == [False]


def test_failure_names_the_rank_and_shows_its_traceback() -> None:
    with pytest.raises(RanksFailed, match="rank 1 raised") as caught:
        run_ranks(_rank_one_fails, 2)
    text = str(caught.value)
    assert "planted on rank 1" in text and "_rank_one_fails" in text and "rank 0" in text


def test_death_is_told_from_an_exception() -> None:
    with pytest.raises(RanksFailed, match="rank 0 was killed by SIGKILL"):
        run_ranks(_killed, 2)


def test_timeout_shows_where_each_rank_stands_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RanksFailed, match="rank 1 did not come back within 4 s") as caught:
        run_ranks(_hang, 2, str(tmp_path), timeout=4)
    assert "_hang" in str(caught.value)
    pids = [int(p) for rank in range(2) for p in (tmp_path / str(rank)).read_text().split()]
    assert len(pids) == 4
    time.sleep(0.2)
    assert not [p for p in pids if _alive(p)]


def test_warnings_of_a_rank_are_errors() -> None:
    with pytest.raises(RanksFailed, match="a planted warning"):
        run_ranks(_warn, 1)


def test_a_single_process_can_be_killed() -> None:
    process = start(time.sleep, 1000)
    process.kill()
    process.join(10)
    assert process.exitcode == -signal.SIGKILL


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False
