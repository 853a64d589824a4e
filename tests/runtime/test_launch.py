"""Who started this process, and where it stands: torchrun, Slurm or nobody."""

from __future__ import annotations

from typing import Any

import pytest

from headway.runtime import launch
from headway.runtime.launch import Place
from headway.spec.errors import RunError, SpecError
from headway.spec.parts import MeshSpec
from tests.ranks import run_ranks

TASK = {"SLURM_JOB_ID": "123456", "SLURM_NTASKS": "8", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_JOB_NODELIST": "node[03-07]"}
STEP = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NODELIST": "node[05-06]"}


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, None),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, Place(rank=3, world=4, local_rank=1)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Place()),
        (TASK | STEP, Place(rank=5, world=8, local_rank=1)),
        (TASK | STEP | {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, Place(rank=1, world=2, local_rank=0)),  # torchrun under srun
        (TASK | STEP | {"SLURM_STEP_TASKS_PER_NODE": "4(x2)"}, Place(rank=5, world=8, local_rank=1, local_world=4)),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, None),  # a batch script: a job of 8 tasks, but no task itself
        ({"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, None),  # srun --pty bash
    ],
)
def test_where_a_process_stands(environ: dict[str, str], place: Place | None) -> None:
    assert launch.standing(environ) == place


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("node1", "node1"), ("a,b", "a"), ("node[03-07,9],x", "node03"), ("gpu-a[12]", "gpu-a12"), ("rack1-[001,005]", "rack1-001"),
        ("n.example.org,m", "n.example.org"),
    ],
)  # fmt: skip
def test_the_first_host_of_a_node_list(nodes: str, host: str) -> None:
    assert launch.first_host(nodes) == host


def test_a_node_list_that_cannot_be_read_says_what_to_set() -> None:
    with pytest.raises(RunError, match="MASTER_ADDR"):
        launch.first_host("")


def test_slurm_gives_torch_its_variables() -> None:
    environ = TASK | STEP
    launch.adopt_slurm(environ, Place(rank=5, world=8, local_rank=1))
    assert {k: environ[k] for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK")} == {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
    assert environ["MASTER_ADDR"] == "node05", "of the step, where rank 0 is, not of the job"
    assert environ["MASTER_PORT"] == "23456"
    chosen = TASK | STEP | {"MASTER_ADDR": "head", "MASTER_PORT": "7"}
    launch.adopt_slurm(chosen, Place(rank=5, world=8))
    assert (chosen["MASTER_ADDR"], chosen["MASTER_PORT"]) == ("head", "7")


def test_a_rank_has_a_gpu_of_its_own() -> None:
    assert launch.gpu_of(Place(local_rank=3), 4, {}) == 3
    assert launch.gpu_of(Place(local_rank=3), 1, {"SLURM_LOCALID": "3"}) == 0, "--gpus-per-task 1 shows each task its own GPU"
    with pytest.raises(RunError, match="no GPU of its own"):
        launch.gpu_of(Place(local_rank=1), 1, {"SLURM_LOCALID": "0"})  # ours, started in a batch script
    with pytest.raises(RunError, match="no GPU of its own"):
        launch.gpu_of(Place(local_rank=4), 4, {"SLURM_LOCALID": "4"})


def test_the_mesh_must_match_the_processes() -> None:
    launch.match_world(MeshSpec(dp_shard=4), None)
    launch.match_world(MeshSpec(dp_shard=2, dp_replicate=2), Place(world=4))
    with pytest.raises(SpecError, match=r"needs 4 processes \(dp_replicate 2 x dp_shard 2\), but 2 were started") as error:
        launch.match_world(MeshSpec(dp_shard=2, dp_replicate=2), Place(world=2))
    assert "--mesh.dp-shard 2" in error.value.fix


def first(fail: bool) -> Any:
    import torch.distributed as dist

    place = Place(rank=dist.get_rank(), world=dist.get_world_size())
    calls: list[int] = []

    def make() -> dict[str, int]:
        calls.append(place.rank)
        if fail:
            raise SpecError("no", where="here", fix="do")
        return {"answer": 42}

    try:
        return launch.on_first(place, make), calls
    except SpecError as error:
        return (error.what, error.where, error.fix, error.relayed), calls


def test_the_first_rank_makes_it_and_all_have_it() -> None:
    assert run_ranks(first, 2, False) == [({"answer": 42}, [0]), ({"answer": 42}, [])]
    assert run_ranks(first, 2, True) == [(("no", "here", "do", False), [0]), (("no", "here", "do", True), [])]


def group_of_one() -> list[bool]:
    import torch.distributed as dist

    from headway.parallel.mesh import single

    with launch.process_group(Place(), MeshSpec()) as device:
        assert device.type == "cpu"
        before = dist.is_initialized()
        single("cpu")  # as mixed precision does
        inside = dist.is_initialized()
    return [before, inside, dist.is_initialized()]


def test_a_group_of_one_is_taken_down_at_the_end() -> None:
    assert run_ranks(group_of_one, 1) == [[False, True, False]]


@pytest.mark.parametrize(
    ("text", "lost"),
    [("Connection closed by peer [127.0.0.1]:1234", True), ("NCCL communicator was aborted on rank 3", True), ("shape mismatch", False)],
)
def test_a_failed_collective_means_a_lost_peer(text: str, lost: bool) -> None:
    assert (launch.lost_peer(RuntimeError(text), 1) is not None) == lost


@pytest.mark.parametrize("given", [("5", "2", "0"), ("x", "2", "0"), ("0", "", "0"), ("-1", "2", "0"), ("0", "2", "a")])
def test_a_rank_that_cannot_be_is_refused(given: tuple[str, str, str]) -> None:
    with pytest.raises(RunError, match="no place among processes"):
        launch.standing(dict(zip(("RANK", "WORLD_SIZE", "LOCAL_RANK"), given, strict=True)))
