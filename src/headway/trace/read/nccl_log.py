"""Reads what NCCL logs (NCCL_DEBUG=INFO or WARN), of one rank or of many in one file, among whatever else was printed.

    HOST:PID:TID [DEVICE] [file.cc:LINE] NCCL INFO|WARN TEXT        anything may stand before it: a launcher's prefix, a time

Lines about channels do not name their communicator: they belong to the one that their thread, or else their process, spoke of last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headway.spec.errors import TraceError
from headway.spec.health import Health
from headway.spec.nccl import NcclComm, NcclLog, NcclWarning
from headway.trace.read.file import Reading
from headway.trace.read.source import Broken, blocks

FIX: Final = "Run with NCCL_DEBUG=INFO (and NCCL_DEBUG_FILE=nccl.%h.%p.log for a file a process)."
_LINE: Final = re.compile(r"(?:([\w.-]+):(\d{1,18}):(\d{1,18}) \[(-?\d{1,9})\] (?:\d+ )?)?(?:(\S+:\d+) )?NCCL (INFO|WARN) (.*)")
_VERSION: Final = re.compile(r"NCCL version ([\w.+-]+)")
_INIT: Final = re.compile(r"comm (0x[0-9a-f]+) rank (\d{1,9}) n[rR]anks (\d{1,9})")
_FIELDS: Final = {
    "device": re.compile(r"cudaDev (\d{1,9})"), "bus": re.compile(r"busId ([0-9a-f]+)"), "identity": re.compile(r"commId (0x[0-9a-f]+)"),
    "nodes": re.compile(r"nNodes (\d{1,9})"),
}  # fmt: skip
_TIMING: Final = re.compile(r"Init timings.*?rank (\d{1,9}) nranks (\d{1,9}) total (\d{1,9}\.\d+)")
_LINK: Final = re.compile(r"Channel (\d{1,9})(?:/\d+)? : (\d{1,9})\[\w+\] -> (\d{1,9})\[\w+\] (?:\[\w+\] )?via (\S+)(.*)")
_RING: Final = re.compile(r"Channel \d+/\d+ : +\d")
_CHANNELS: Final = re.compile(r"(?:comm (0x[0-9a-f]+), )?(\d{1,9}) coll channels")
_NETWORK: Final = re.compile(r"Using network (\S[^\n]{0,39})|NET/(IB|Socket) : Using ")
_CALL: Final = re.compile(r"(\w+): opCount ([0-9a-f]{1,15}) .*?comm (0x[0-9a-f]+)")
_NUMBERS: Final = re.compile(r"0x[0-9a-f]+|\d+")
_MOST_LINE: Final = 1 << 14
_MOST_WARNINGS: Final = 200  # different ones of a process


@dataclass
class _Comm:
    said: dict[str, int | str] = field(default_factory=dict)
    complete: bool = False
    begun: bool = False
    rings: int = 0
    links: Counter[str] = field(default_factory=Counter)
    peers: dict[int, str] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    last: int | None = None


@dataclass
class _Process:
    version: str = ""
    network: str = ""
    comms: dict[str, _Comm] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)  # thread -> communicator; "" -> of the process
    warnings: dict[str, list[str | int]] = field(default_factory=dict)  # text without numbers -> text, where, count


def read(path: Path) -> Reading:
    """The processes in `path`. Raises TraceError if NCCL says nothing in it."""
    found: dict[tuple[str, int], _Process] = {}
    version, whole = "", True
    try:
        for line in _lines(path):
            if "NCCL " not in line:
                continue
            if said := _VERSION.search(line):
                version = version or said[1]
            if parts := _LINE.search(line):
                host, pid, thread, _, where, level, text = parts.groups("")
                process = found.setdefault((host, int(pid or 0)), _Process())
                if level == "WARN":
                    _warn(process, text, where)
                else:
                    _take(process, thread, text)
                if said:
                    process.version = said[1]
    except Broken:
        whole = False
    if not found:
        raise TraceError("no line of NCCL in it", where=str(path), fix=FIX)
    logs = tuple(_log(str(path), host, pid, process, version) for (host, pid), process in found.items())
    cut = Health(what="truncated", count=1, affects="what the rest would have told", text="the end of an NCCL log is missing")
    return Reading(source=str(path), nccl=logs, health=() if whole else (cut,))


def _lines(path: Path) -> Iterator[str]:
    """Lines as text; what is longer than a line of NCCL ever is, is cut."""
    rest = b""
    for block in blocks(path):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line[:_MOST_LINE].decode("utf-8", "replace")
        rest = rest[-_MOST_LINE:]
    yield rest.decode("utf-8", "replace")


def _warn(process: _Process, text: str, where: str) -> None:
    key = _NUMBERS.sub("#", text)
    known = process.warnings.get(key)
    if known is not None:
        known[2] = int(known[2]) + 1
    elif len(process.warnings) < _MOST_WARNINGS:
        process.warnings[key] = [text.strip()[:500], where, 1]


def _take(process: _Process, thread: str, text: str) -> None:
    """What one INFO line says of the process or of a communicator."""
    if made := _INIT.search(text):
        comm = process.comms.setdefault(made[1], _Comm())
        if "Init START" in text and comm.begun:  # an address that was freed and used again: another communicator
            process.comms[f"{made[1]}+{len(process.comms)}"] = process.comms.pop(made[1])
            comm = process.comms[made[1]] = _Comm()
        process.current[thread] = process.current[""] = made[1]
        comm.said |= {"rank": int(made[2]), "size": int(made[3])}
        for key, pattern in _FIELDS.items():
            if found := pattern.search(text):
                comm.said[key] = int(found[1]) if key in ("device", "nodes") else found[1]
        comm.begun |= "Init START" in text or "Init COMPLETE" in text
        comm.complete |= "Init COMPLETE" in text
        return
    if network := _NETWORK.search(text):
        process.network = (network[1] or process.network or network[2]).strip()
        return
    if call := _CALL.search(text):
        comm = process.comms.setdefault(call[3], _Comm())
        comm.calls[call[1]] += 1
        comm.last = max(comm.last or 0, int(call[2], 16))
        return
    current = process.comms.get(process.current.get(thread, process.current.get("", "")))
    if current is None:
        return
    if link := _LINK.search(text):
        name = _transport(link[4], link[5])
        current.links[name] += 1
        for peer in (int(link[2]), int(link[3])):
            if peer != current.said.get("rank"):
                current.peers.setdefault(peer, name)
    elif timing := _TIMING.search(text):
        if (current.said.get("rank"), current.said.get("size")) == (int(timing[1]), int(timing[2])):
            current.said["init_ns"] = round(float(timing[3]) * 1e9)
    elif channels := _CHANNELS.search(text):
        process.comms.get(channels[1] or "", current).said["channels"] = int(channels[2])
    elif _RING.search(text):
        current.rings += 1


def _transport(via: str, rest: str) -> str:
    """P2P/CUMEM/read -> P2P/CUMEM, SHM/direct/direct -> SHM, NET/IB/0/GDRDMA -> NET/IB/GDRDMA, NET/Socket/1 -> NET/Socket."""
    parts = [p for p in f"{via}{rest}".strip().partition(" comm ")[0].partition(" ")[0].split("/") if p]
    kind = parts[0] if parts else "unknown"
    if kind == "NET":
        direct = [p for p in parts[2:] if p.startswith("GDRDMA")]
        return "/".join([*parts[:2], *(["GDRDMA"] if direct else [])]).partition("(")[0]
    return "/".join(parts[:2]) if kind == "P2P" else kind


def _log(source: str, host: str, pid: int, process: _Process, version: str) -> NcclLog:
    return NcclLog(
        source=source,
        host=host,
        process=pid,
        version=process.version or version,
        network=process.network,
        comms=tuple(
            NcclComm(
                handle=handle.partition("+")[0],
                complete=c.complete,
                rings=c.rings,
                links=dict(c.links),
                peers=c.peers,
                operations=dict(c.calls),
                last_operation=c.last,
                **c.said,  # type: ignore[arg-type]
            )
            for handle, c in process.comms.items()
        ),
        warnings=tuple(NcclWarning(text=str(t), where=str(w), count=int(n)) for t, w, n in process.warnings.values()),
    )
