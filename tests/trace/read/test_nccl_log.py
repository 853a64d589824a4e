"""NCCL's own log, of one rank or many, among other output: what communicators run over, and what is slow about it."""

from __future__ import annotations

import gzip
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from headway.report.page import page
from headway.report.terminal import print_breakdown
from headway.spec.breakdown import to_json
from headway.spec.errors import TraceError
from headway.spec.nccl import NcclLog
from headway.trace.explain import explain
from headway.trace.read.file import read
from tests.trace.drawing import draw


def rank(number: int, *, host: str = "n0", size: int = 2, via: str = "P2P/CUMEM/read", done: bool = True, channels: int = 2) -> list[str]:
    at = f"{host}:{100 + number}:{200 + number} [{number}] NCCL INFO"
    comm = f"comm 0x55{number} rank {number} nranks {size} cudaDev {number} nvmlDev {number} busId {number}7000 commId 0xabc"
    peer = (number + 1) % size
    lines = [
        f"{at} Bootstrap: Using eth0:10.0.0.{number}<0>",
        f"{at} NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        f"{at} Using network IB",
        f"{at} ncclCommInitRankConfig {comm} - Init START",
        f"{at} comm 0x55{number} rank {number} nRanks {size} nNodes 1 localRanks 2 localRank {number} MNNVL 0",
        *(f"{at} Channel {c:02d}/{channels:02d} : 0 1" for c in range(channels)),
        f"{at} Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1",
        *(f"{at} Channel {c:02d}/0 : {number}[{number}] -> {peer}[{peer}] via {via}" for c in range(channels)),
        f"{at} {channels} coll channels, {channels} collnet channels, 0 nvls channels, 2 p2p channels, 1 p2p channels per peer",
    ]
    if done:
        lines += [
            f"{at} ncclCommInitRankConfig {comm} - Init COMPLETE",
            f"{at} Init timings - ncclCommInitRankConfig: rank {number} nranks {size} total {1 + number}.25 (kernels 0.17, rest 0.00)",
        ]
    return lines


def calls(number: int, count: int) -> list[str]:
    at = f"n0:{100 + number}:{200 + number} [{number}] NCCL INFO"
    return [
        f"{at} AllReduce: opCount {i:x} sendbuff 0x7f recvbuff 0x7f count 1 datatype 7 op 0 root 0 comm 0x55{number} [nranks=2] stream 0x55"
        for i in range(count)
    ]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def logs(path: Path, *lines: str) -> tuple[NcclLog, ...]:
    return read(write(path, *lines)).nccl


def test_fields(tmp_path: Path) -> None:
    noise = ["epoch 1 loss 0.5", "NCCL version 2.27.3+cuda12.9", "Traceback (most recent call last):"]
    found = logs(tmp_path / "a.log", *noise, *rank(0), *rank(1), *calls(0, 20))
    assert [(log.host, log.process, log.version, log.network) for log in found] == [
        ("n0", 100, "2.27.3+cuda12.9", "IB"), ("n0", 101, "2.27.3+cuda12.9", "IB"),
    ]  # fmt: skip
    (comm,) = found[0].comms
    assert (comm.handle, comm.identity, comm.rank, comm.size, comm.device, comm.bus, comm.nodes) == ("0x550", "0xabc", 0, 2, 0, "07000", 1)
    assert (comm.complete, comm.init_ns, comm.channels, comm.rings) == (True, 1_250_000_000, 2, 2)
    assert dict(comm.links) == {"P2P/CUMEM": 2}
    assert dict(comm.peers) == {1: "P2P/CUMEM"}
    assert (dict(comm.operations), comm.last_operation) == ({"AllReduce": 20}, 19)


@pytest.mark.parametrize(
    ("via", "name"),
    [
        ("P2P/IPC/read", "P2P/IPC"), ("P2P/direct pointer", "P2P/direct"), ("SHM/direct/direct", "SHM"),
        ("NET/IB/0/GDRDMA", "NET/IB/GDRDMA"),
        ("NET/IB/3(0)/GDRDMA", "NET/IB/GDRDMA"), ("NET/IB/1", "NET/IB"), ("NET/Socket/0/Shared", "NET/Socket"), ("NVLS", "NVLS"),
        ("NET/AWS Libfabric/0/GDRDMA", "NET/AWS"), ("P2P/CUMEM comm 0x55 nRanks 02", "P2P/CUMEM"),
    ],
)  # fmt: skip
def test_transports(tmp_path: Path, via: str, name: str) -> None:
    (log,) = logs(tmp_path / "a.log", *rank(0, via=via))
    assert dict(log.comms[0].links) == {name: 2}


@pytest.mark.parametrize(
    "prefix", ["", "[rank0]: ", "[1,0]<stdout>:", "2026-01-02 03:04:05,678 ", "(Worker pid=7) ", "[2026-03-18 11:13:09] ", "0: "]
)
def test_prefixes_of_launchers(tmp_path: Path, prefix: str) -> None:
    (log,) = logs(tmp_path / "a.log", *(prefix + line for line in rank(0)))
    assert log.host == "n0"
    assert log.comms[0].complete


def test_old_lines(tmp_path: Path) -> None:
    """Before commId; RCCL with a time; directions of NET links in brackets."""
    at = "h:1:2 [0] 1558545003174220 NCCL INFO"
    (log,) = logs(
        tmp_path / "a.log",
        f"{at} Channel 00 : 0[7000] -> 1[8000] via P2P/IPC",  # of no communicator that was named
        f"{at} comm 0x7f rank 0 nranks 2 cudaDev 0 busId 7000 - Init START",
        f"{at} Channel 00 : 0[7000] -> 1[8000] [send] via NET/Socket/0",
        f"{at} comm 0x7f rank 0 nranks 2 cudaDev 0 busId 7000 - Init COMPLETE",
    )
    (comm,) = log.comms
    assert (comm.identity, comm.complete, dict(comm.links)) == ("", True, {"NET/Socket": 1})


def test_address_used_again(tmp_path: Path) -> None:
    (log,) = logs(tmp_path / "a.log", *rank(0), *(line.replace("0xabc", "0xdef") for line in rank(0)))
    assert [(c.handle, c.identity, dict(c.links)) for c in log.comms] == [
        ("0x550", "0xabc", {"P2P/CUMEM": 2}),
        ("0x550", "0xdef", {"P2P/CUMEM": 2}),
    ]


def test_ranks_of_two_files_are_one_communicator(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"nccl.n0.{i}.log", *rank(i), *calls(i, 20 - i)) for i in (0, 1)]
    found = explain(paths)
    (links,) = found.nccl
    assert (links.identity, links.size, links.ranks, links.hosts, links.init_ns) == ("0xabc", 2, (0, 1), 1, 2_250_000_000)
    assert dict(links.links) == {"P2P/CUMEM": 4}
    assert dict(links.last_operations) == {0: 19, 1: 18}
    assert not found.health
    out = StringIO()
    print_breakdown(found, Console(file=out, width=100))
    for text in (" ".join(out.getvalue().split()), page(breakdown=found).replace("<wbr>", "")):
        assert "connections P2P/CUMEM 4" in text
        assert "last opCount 18 on rank 1, 19 on others" in text
    assert to_json(found)["nccl"][0]["links"] == {"P2P/CUMEM": 4}


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ([*rank(0, via="NET/Socket/0"), *rank(1, via="NET/Socket/0")], "nccl_over_tcp"),
        ([*rank(0, via="NET/IB/0"), *rank(1, via="NET/IB/0")], "nccl_without_gpudirect"),
        ([*rank(0, via="SHM/direct/direct"), *rank(1)], "nccl_over_host_memory"),
        ([*rank(0), *rank(1, channels=4)], "nccl_uneven_channels"),
        ([*rank(0), *rank(1, done=False)], "nccl_init_incomplete"),
        (["n0:1:1 [0] NCCL INFO NCCL version 2.27.3", "n1:1:1 [0] NCCL INFO NCCL version 2.21.5"], "nccl_versions"),
        (["n1:5:6 [0] transport/net_ib.cc:839 NCCL WARN NET/IB : Got completion with error 12, vendor err 129"], "nccl_warnings"),
    ],
)
def test_health(tmp_path: Path, lines: list[str], what: str) -> None:
    assert {h.what for h in explain([write(tmp_path / "a.log", *lines)]).health} == {what}


def test_warnings_are_counted_without_their_numbers(tmp_path: Path) -> None:
    lines = [f"n1:5:6 [0] transport/net_ib.cc:839 NCCL WARN NET/IB : Got completion with error 12, len {i}" for i in range(500)]
    (log,) = logs(tmp_path / "a.log", *lines)
    (warning,) = log.warnings
    assert (warning.count, warning.where, warning.text) == (500, "transport/net_ib.cc:839", "NET/IB : Got completion with error 12, len 0")


def test_some_way_into_a_log_and_packed(tmp_path: Path) -> None:
    lines = [*(f"line {i} of a launcher" for i in range(5000)), *rank(0)]
    assert len(logs(tmp_path / "job.out", *lines)) == 1
    packed = tmp_path / "job.log.gz"
    packed.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert len(read(packed).nccl) == 1


def test_text_of_another_program(tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        explain([write(tmp_path / "a.log", "nothing of it", "NCCL_DEBUG is not set")])


def test_beside_a_trace_in_one_folder(tmp_path: Path) -> None:
    draw(tmp_path / "rank0.json", "\nmain [L1]\n0.7    [g1 ]")
    write(tmp_path / "nccl.log", *rank(0), *rank(1))
    write(tmp_path / "notes.txt", "not a log")
    found = explain([tmp_path])
    assert len(found.ranks) == 1
    assert len(found.nccl) == 1


def test_real_lines(shared: Path) -> None:
    folder = shared / "faults/nccl_log"
    for name in ("ib_error12_gid.log", "ib_error12_late_pingmesh.log", "resiliency_device_failed.log", "hca_mismatch_silent_hang.txt"):
        assert "nccl_warnings" in {h.what for h in explain([folder / name]).health}, name
