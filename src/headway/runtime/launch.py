"""From one command to the processes of a run: local ones through torchrun's agent, or as torchrun or Slurm started us.

One path for all: the worker is the same `headway train ...` command with RANK and WORLD_SIZE in its environment.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headway.spec.errors import HeadwayError, RunError, SpecError
from headway.spec.parts import MeshSpec

T = TypeVar("T")
_PR_SET_PDEATHSIG = 1
_PER_CORE = 32  # local processes on a core at most: beyond it is a slip of the keyboard
ERRORS = "HEADWAY_ERRORS"  # folder in which a worker leaves its last words for the process that started it


class PeerLost(RunError):
    """Another rank is gone; what it said of itself matters more than this."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where this process stands."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1  # ranks on this machine, as far as told


def standing(environ: Mapping[str, str]) -> Place | None:
    """Rank and world given by torchrun or by Slurm's srun; None if nobody started us as a rank.

    A batch script has the variables of a job too (SLURM_PROCID, SLURM_NTASKS), but it is no task of a step and has no peers.
    """
    if "RANK" in environ and "WORLD_SIZE" in environ:
        return _placed(
            environ["RANK"], environ["WORLD_SIZE"], environ.get("LOCAL_RANK", environ["RANK"]), environ.get("LOCAL_WORLD_SIZE", "1")
        )
    world = int(environ.get("SLURM_STEP_NUM_TASKS", "1"))
    if "SLURM_PROCID" in environ and world > 1:
        here = re.match(r"\d+", environ.get("SLURM_STEP_TASKS_PER_NODE", ""))  # 4(x2): four on each of two
        local = int(environ.get("SLURM_LOCALID", "0"))
        return Place(rank=int(environ["SLURM_PROCID"]), world=world, local_rank=local, local_world=int(here[0]) if here else 1)
    return None


def _placed(rank: str, world: str, local_rank: str, local_world: str) -> Place:
    """Raises RunError for a rank that cannot be: it would wait for its peers for ever."""
    if not (all(n.isdecimal() for n in (rank, world, local_rank, local_world)) and int(rank) < int(world)):
        fix = "They are set by torchrun; unset them to start local processes."
        raise RunError(f"RANK={rank}, WORLD_SIZE={world}, LOCAL_RANK={local_rank} are no place among processes", fix=fix)
    return Place(rank=int(rank), world=int(world), local_rank=int(local_rank), local_world=int(local_world))


def first_host(nodes: str) -> str:
    """First host of a Slurm node list: node[03-07,9],x -> node03."""
    head = re.match(r"([^,\[]+)(?:\[([^\],-]+))?", nodes)
    if not head:
        raise RunError(f"cannot read the node list '{nodes}'", fix="Set MASTER_ADDR and MASTER_PORT yourself.")
    return head[1] + (head[2] or "")


def adopt_slurm(environ: MutableMapping[str, str], place: Place) -> None:
    """Give torch.distributed its variables where Slurm started us."""
    if "RANK" in environ:
        return
    environ["RANK"], environ["WORLD_SIZE"], environ["LOCAL_RANK"] = str(place.rank), str(place.world), str(place.local_rank)
    nodes = next((environ[n] for n in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST") if n in environ), "localhost")
    environ.setdefault("MASTER_ADDR", first_host(nodes))  # of the step: rank 0 need not be on the first node of the job
    environ.setdefault("MASTER_PORT", str(20000 + int(environ.get("SLURM_JOB_ID", "0")) % 20000))


def match_world(mesh: MeshSpec, place: Place | None) -> None:
    """Raises SpecError if the processes that exist, or that this machine could be asked to start, are not those that the mesh needs."""
    if place is None and mesh.world > (most := _PER_CORE * _cores()):
        fix = f"Start them on more machines with torchrun or Slurm; {most} are the most that are started on the {_cores()} cores here."
        raise SpecError(f"the mesh needs {mesh.world} processes ({mesh})", fix=fix)
    if place is not None and place.world != mesh.world:
        raise SpecError(
            f"the mesh needs {mesh.world} processes ({mesh}), but {place.world} were started",
            fix=f"Make the mesh axes multiply to {place.world}, e.g. --mesh.dp-shard {place.world}, or start {mesh.world} processes.",
        )


def _cores() -> int:
    """Cores that this process may use: a scheduler may give a few of many."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_local(argv: Sequence[str], world: int) -> int:
    """Run `headway ARGV` as `world` local ranks under torchrun's agent; returns the exit code for the caller.

    What a rank says of its own failure (one paragraph) is printed once, however many ranks say it.
    """
    import logging

    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in [n for n in logging.root.manager.loggerDict if n.startswith("torch.distributed.elastic")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what there is to say, we say
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, _cores() // world)))
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    os.environ.setdefault("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGQUIT" + ("" if nohup else ",SIGHUP"))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "300")  # a rank may be in a long step, then it saves
    with tempfile.TemporaryDirectory(prefix="headway-") as errors:
        os.environ[ERRORS] = errors
        config = LaunchConfig(
            min_nodes=1, max_nodes=1, nproc_per_node=world, run_id="headway", rdzv_backend="c10d", rdzv_endpoint="localhost:0",
            max_restarts=0, monitor_interval=0.2, local_addr="localhost", logs_specs=DefaultLogsSpecs(log_dir=f"{errors}/logs"),
        )  # fmt: skip
        try:
            _leave_on_second_interrupt()
            elastic_launch(config, sys.executable)("-m", "headway", *argv)
        except SignalException as stop:
            return _say(Path(errors)) or 128 + int(stop.sigval)
        except ChildFailedError as failed:
            return _verdict(Path(errors), list(failed.failures.values()), failed.get_first_failure()[1])
    return 0


def _leave_on_second_interrupt() -> None:
    """End this process at once on a second Ctrl-C; its ranks hear of it by `follow_parent`.

    The agent takes the first one as its own and then waits for the ranks; so the count is kept beside it, on the wake-up pipe.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def count() -> None:
        seen = 0
        while seen < 2:
            seen += os.read(read, 64).count(signal.SIGINT)
        os._exit(128 + signal.SIGINT)

    threading.Thread(target=count, daemon=True).start()


def follow_parent() -> None:
    """In a local rank: a SIGHUP (so a checkpoint and a clean end) when the process that started us is gone. Linux only."""
    if ERRORS in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)


def leave_words(error: HeadwayError) -> bool:
    """In a worker: keep the error for the process that started us. False if nobody asked for it."""
    folder = os.environ.get(ERRORS)
    if not folder or not Path(folder).is_dir():
        return False
    kind = "lost" if isinstance(error, PeerLost) else "own"
    (Path(folder) / f"{kind}.rank{os.environ.get('RANK', '0')}.txt").write_text(str(error), encoding="utf-8")
    return True


def lost_peer(error: RuntimeError, rank: int) -> PeerLost | None:
    """What a failed collective means, if it failed because another rank is gone."""
    text = str(error)
    if not any(
        sign in text for sign in ("Connection closed by peer", "Connection reset by peer", "Connection refused", "communicator was aborted")
    ):
        return None
    return PeerLost(
        "another rank has ended or cannot be reached any more",
        where=f"rank {rank}",
        fix="See what the other ranks say. The same command again resumes from the last checkpoint.",
    )


def _verdict(errors: Path, failures: Sequence[Any], first: Any) -> int:
    """Say why a run has failed, cause before consequence: own words, a kill, a traceback that is out already. Returns the exit code."""
    if list(errors.glob("own.*.txt")):
        return _say(errors)
    if first.exitcode < 0:
        name, fix = signal.Signals(-first.exitcode).name, "The same command again resumes from the last checkpoint."
        print(f"Error: rank {first.local_rank} was killed by {name}; the other ranks were ended. {fix}", file=sys.stderr)
        return 128 - int(first.exitcode)
    if any(f.exitcode == 1 for f in failures):
        return 1
    return _say(errors) or int(first.exitcode)


def _say(errors: Path) -> int:
    """Print what the ranks left, each text once; 2 if there was any."""
    files = sorted(errors.glob("own.*.txt")) or sorted(errors.glob("lost.*.txt"))  # causes; else consequences
    texts = [f.read_text(encoding="utf-8") for f in files]
    for text in dict.fromkeys(texts):
        print(f"Error: {text}", file=sys.stderr)
    return 2 if texts else 0


@contextmanager
def process_group(place: Place, mesh: MeshSpec) -> Iterator[Any]:
    """The default process group (none for one process) on the right device; yields the torch device."""
    import torch
    import torch.distributed as dist

    cuda = torch.cuda.is_available() and mesh.backend != "gloo"
    if mesh.backend == "nccl" and not cuda:
        raise SpecError("--mesh.backend nccl needs CUDA devices and there are none", fix="Leave it at auto.")
    device = torch.device("cuda", gpu_of(place, torch.cuda.device_count(), os.environ)) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if place.world > 1:
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", rank=place.rank, world_size=place.world)
    try:
        yield device
    finally:
        if dist.is_initialized():  # mixed precision makes a group of one process, see parallel/mesh.py
            dist.destroy_process_group()


def gpu_of(place: Place, num_gpus: int, environ: Mapping[str, str]) -> int:
    """Number of a rank's GPU among those it sees: its local rank, or the only one where Slurm shows each task its own (--gpus-per-task).

    Raises RunError if there is none for it.
    """
    if num_gpus == 1 and environ.get("SLURM_LOCALID") == str(place.local_rank):
        return 0
    if place.local_rank >= num_gpus:
        raise RunError(
            f"local rank {place.local_rank} has no GPU of its own ({num_gpus} here)",
            fix="Start one process a GPU, or use --mesh.backend gloo for CPUs.",
        )
    return place.local_rank


def on_first(place: Place, make: Callable[[], T]) -> T:
    """`make()` on rank 0, its result on every rank; an error there is raised on every rank, for rank 0 to say."""
    if place.world == 1:
        return make()
    import torch.distributed as dist

    box: list[Any] = [None, None]
    if place.rank == 0:
        try:
            box[0] = make()
        except HeadwayError as error:
            box[1] = error
    dist.broadcast_object_list(box, src=0)
    if box[1] is not None:
        box[1].relayed = place.rank != 0
        raise box[1]
    return box[0]  # type: ignore[no-any-return]
