"""The only way in which tests start ranks: a fork server that has torch imported already.

Importing torch costs 2.5 CPU seconds, so one server imports it once for the whole test session and every rank is a fork of it. The
server runs no operation and so has no threads when it forks.

    def _sum(x: float) -> float:                    # at module level, so that it can be pickled
        t = torch.tensor(x * (dist.get_rank() + 1))
        dist.all_reduce(t)
        return t.item()

    assert run_ranks(_sum, 2, 1.0) == [3.0, 3.0]
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import forkserver, reduction
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_PRELOAD = [
    "torch",
    "torch._dynamo",  # the first optimizer would import it: 0.4 s in each rank
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.utils.checkpoint",
    "numpy.random",
    "hypothesis",
    "pytest",
]
_GRACE_S = 5.0  # after the first failure the peers get this long to fail by themselves
_PR_SET_PDEATHSIG = 1


class RanksFailed(AssertionError):
    """A rank raised, died or did not come back; the message holds what each of them said."""


def run_ranks(fn: Callable[..., Any], world: int, *args: Any, timeout: float = 60.0) -> list[Any]:
    """The results of `fn(*args)` on `world` processes, by rank.

    Each has RANK, LOCAL_RANK, WORLD_SIZE and OMP_NUM_THREADS=1 in its environment, warnings as errors, and a Gloo group over a
    FileStore (world 1: no process group, as in a run of one process). Raises RanksFailed with the traceback of every rank that
    failed, first failure first; no process is left behind, whatever happens.
    """
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        ranks = [_Rank(fn, args, rank, world, Path(folder), timeout) for rank in range(world)]
        try:
            problems = _wait(ranks, timeout)
        finally:
            for rank in ranks:
                rank.kill()
    if problems:
        raise RanksFailed("\n".join(problems))
    return [rank.result for rank in ranks]


def start(fn: Callable[..., Any], *args: Any) -> BaseProcess:
    """One process from the fork server that runs `fn(*args)`, for a test that kills it: `.pid`, `.join()`, `.kill()`, `.exitcode`."""
    process = _context().Process(target=_single, args=(pickle.dumps((fn, args)),), daemon=True)
    process.start()
    return process


class _Rank:
    """A started rank and what came back from it."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], rank: int, world: int, folder: Path, timeout: float) -> None:
        self.rank, self.done, self.result = rank, False, None
        self.stacks = folder / f"stacks.{rank}"
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        payload = pickle.dumps((fn, args))  # plain pickle: torch's own would pass tensors by shared memory and need a live sender
        self.process: ForkServerProcess = _context().Process(target=_main, args=(theirs, payload, rank, world, str(folder), timeout))
        self.process.start()
        theirs.close()

    def read(self) -> str | None:
        """Take what the rank sent; the text of its failure, None if it came back with a result."""
        self.done = True
        try:
            ok, value = pickle.loads(self.pipe.recv_bytes())
        except EOFError:
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            return f"rank {self.rank} {how} without a result"
        if ok:
            self.result = value
            return None
        return f"rank {self.rank} raised:\n{value}"

    def dump(self) -> str:
        """Where a rank that did not come back stands."""
        if self.process.pid and self.process.is_alive() and self.stacks.exists():
            os.kill(self.process.pid, signal.SIGUSR1)
            time.sleep(0.3)
            return self.stacks.read_text()
        return ""

    def kill(self) -> None:
        """End the process and everything that it started."""
        if not self.done and self.process.pid:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self.process.kill()
        self.process.join()
        self.pipe.close()


def _wait(ranks: list[_Rank], timeout: float) -> list[str]:
    problems: list[str] = []
    deadline = time.monotonic() + timeout
    while waiting := [r for r in ranks if not r.done]:
        ready = multiprocessing.connection.wait([r.pipe for r in waiting], max(0.0, deadline - time.monotonic()))
        failures = [text for r in waiting if r.pipe in ready and (text := r.read())]
        if failures and not problems:
            deadline = min(deadline, time.monotonic() + _GRACE_S)
        problems += failures
        if not ready:
            why = "was still running when a peer failed" if problems else f"did not come back within {timeout:g} s"
            problems += [f"rank {r.rank} {why}:\n{r.dump()}" for r in waiting]
            break
    return problems


@functools.cache
def _context() -> ForkServerContext:
    """The context of a fork server that is running and has torch imported with one thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
    return context


def _prepare() -> None:
    import torch

    os.setsid()  # a group of its own, so that a kill takes its children too
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # Linux: never outlive the server
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    warnings.simplefilter("error")


def _single(payload: bytes) -> None:
    _prepare()
    fn, args = pickle.loads(payload)
    fn(*args)


def _main(pipe: multiprocessing.connection.Connection, payload: bytes, rank: int, world: int, folder: str, timeout: float) -> None:
    with open(f"{folder}/stacks.{rank}", "w") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        try:
            _prepare()
            answer = pickle.dumps((True, _call(payload, rank, world, folder, timeout)))
        except BaseException:
            answer = pickle.dumps((False, traceback.format_exc()))
        pipe.send_bytes(answer)
        pipe.close()
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)  # whatever the rank started goes with it
        os._exit(0)  # peers that wait for a failed rank see a closed connection at once


def _call(payload: bytes, rank: int, world: int, folder: str, timeout: float) -> Any:
    import torch.distributed as dist

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    if world > 1:
        store = dist.FileStore(f"{folder}/store", world)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=timeout))
    fn, args = pickle.loads(payload)
    result = fn(*args)
    if dist.is_initialized():
        dist.barrier()  # nobody leaves while a peer still talks to it
    return result


assert reduction.HAVE_SEND_HANDLE, "the fork server passes file descriptors"
