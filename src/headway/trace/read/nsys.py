"""Reads an Nsight Systems export (nsys export --type sqlite) into a `Table` a process. Times are integer nanoseconds, as they are stored.

Which tables and columns there are depends on the version and on what was traced, so both are looked up. Correlation ids count from the
beginning in every process: host rows carry the process in globalTid, device rows in globalPid (machine, process and thread in 64 bits).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from headway.spec.errors import TraceError
from headway.spec.health import Health
from headway.trace.read.columns import Codes, coded, whole
from headway.trace.read.database import Database, opened
from headway.trace.read.file import Reading
from headway.trace.read.nvtx import step_names, told
from headway.trace.read.processes import parted, split
from headway.trace.read.spans import NO_TIME, Spans, moments
from headway.trace.sweep import Ints, classes, distinct
from headway.trace.table import DEVICE_WORK, HOST, Kind, Table

FIX: Final = "Export the report with: nsys export --type sqlite REPORT.nsys-rep"
_PREFIX: Final = "CUPTI_ACTIVITY_KIND_"
_HOST: Final = ((f"{_PREFIX}RUNTIME", ("nameId",)), (f"{_PREFIX}DRIVER", ("nameId",)), ("NVTX_EVENTS", ("text", "textId")))
_KERNEL_NAMES: Final = ("demangledName", "shortName", "mangledName")
_FIELDS: Final = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")  # of all that runs on a device
_DEVICE: Final[tuple[tuple[str, Kind, tuple[str, ...]], ...]] = (
    (f"{_PREFIX}KERNEL", Kind.KERNEL, ()),
    (f"{_PREFIX}GRAPH_TRACE", Kind.KERNEL, ("graphId",)),
    (f"{_PREFIX}MEMCPY", Kind.MEMCPY, ("copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId")),
    (f"{_PREFIX}MEMSET", Kind.MEMSET, ()),
    (f"{_PREFIX}SYNCHRONIZATION", Kind.SYNC, ("syncType",)),
)
_WAYS: Final = ("", "HtoD", "DtoH", "HtoD", "DtoH", "DtoD", "DtoD", "DtoD", "DtoD", "HtoH", "PtoP", "HtoD", "DtoH", "DtoD")  # of copyKind
_PLACES: Final = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device", "Managed")  # of srcKind and dstKind
_SYNCS: Final = ("Sync", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")  # of syncType
_RANGES: Final = (59, 60, 70, 71)  # eventType: push-pop and start-end; the others are single moments and names
_VERSION: Final = re.compile(r"_v\d+$")  # cudaLaunchKernel_v7000
_PROCESS_BITS: Final = 24  # of a global id that are the thread
_MUCH: Final = 0.01  # of a trace, from which the profiler's own work is said


def read(path: Path) -> Reading:
    """The processes in `path`. Raises TraceError if it is no database, no export of Nsight Systems, or holds no spans."""
    with opened(path) as database:
        known = [t for t in database.tables if t.startswith(_PREFIX) or t == "NVTX_EVENTS"]
        if not known:
            what = "a SQLite database, but no export of Nsight Systems: it has no table CUPTI_ACTIVITY_KIND_* or NVTX_EVENTS"
            raise TraceError(what, where=str(path), fix=FIX)
        spans = Spans()
        text_of = {number: text for number, text in database.rows("StringIds", "id", "value") if isinstance(text, str)}
        health = _host(database, spans, text_of)
        bound = _device(database, spans, text_of, health)
        if not len(spans):
            fix = "Trace CUDA and NVTX while a step runs: nsys profile --trace=cuda,nvtx."
            raise TraceError("the export holds no spans", where=str(path), fix=fix)
        columns, owner, doubts = spans.columns()
        unnamed = int((columns["name"] == spans.names["unnamed"]).sum()) if "unnamed" in spans.names else 0
        if unnamed:
            text = "calls and kernels whose name is missing in the export"
            health.append(Health(what="unnamed", count=unnamed, affects="classes of kernels, causes of idle time", text=text))
        listed = {_owner(row[0]) for row in database.rows("PROCESSES", "globalPid")}
        table = Table(
            **columns,
            source=str(path),
            devices=_models(database),
            host=_session(database),
            health=(*database.health(), *health, *doubts, *_profiler(database, columns)),
        )
    if not len(table):
        raise TraceError("the export holds no spans with usable times", where=str(path), fix=FIX)
    found = _processes(table, owner, listed) if bound else split(table)  # exports without globalPid: by the ids of launches
    return Reading(source=str(path), tables=found)


def binary(path: Path) -> NoReturn:
    """A report as Nsight Systems keeps it: nothing but its own tools can read it."""
    raise TraceError("a binary report of Nsight Systems, which only its own tools can read", where=str(path), fix=FIX)


# ---- host ----


def _host(database: Database, spans: Spans, text_of: dict[Any, str]) -> list[Health]:
    """Calls of the runtime and the driver, and NVTX ranges."""
    health: list[Health] = []
    for table, names in _HOST:
        ranges = table == "NVTX_EVENTS"
        present = database.tables.get(table, frozenset())
        raw, threads = Codes(), Codes()
        parts: list[list[Ints]] = []
        for start, end, thread, correlation, event, text in database.chunks(
            table, "start", "end", "globalTid", "correlationId", "eventType", names
        ):
            part = [moments(start), moments(end), coded(thread, threads), coded(text, raw), whole(list(correlation))]
            keep = np.isin(whole(list(event)), _RANGES) if ranges and "eventType" in present else np.ones(len(start), bool)
            parts.append([column[keep] for column in part])
        if not parts:
            continue
        begin, stop, of_thread, code, ids = (np.concatenate(column) for column in zip(*parts, strict=True))
        texts = [_named(value, text_of) for value in raw]
        said = [told(t) if ranges else (_VERSION.sub("", t), -1, Kind.RUNTIME) for t in texts]
        name = spans.code([s[0] for s in said])[code]
        kind = np.array([s[2] for s in said], np.int64)[code]
        sequence = np.array([s[1] for s in said], np.int64)[code]
        track = coded([_thread(t) for t in threads], spans.tracks)[of_thread]
        owner = np.array([_owner(t) for t in threads], np.int64)[of_thread]
        if ranges:
            health += _steps(spans, name, kind, track, begin, stop)
        spans.add(kind, begin, stop, name, track, owner, correlation=ids, sequence=sequence)
    return health


def _steps(spans: Spans, name: Ints, kind: Ints, track: Ints, start: Ints, end: Ints) -> list[Health]:
    """Give ranges that are steps the name of a step mark, in place."""
    marks = np.flatnonzero((kind == Kind.MARK) & (end > start) & (start > NO_TIME))
    written, found = step_names(tuple(spans.names), name[marks], track[marks], start[marks], end[marks])
    if not found:
        return []
    rows = marks[list(found)]
    name[rows] = spans.code(list(found.values()))
    return [Health(what="steps_by_name", count=len(found), affects="steps", text=f"NVTX ranges called {written!r} are taken for the steps")]


def _named(value: Any, text_of: dict[Any, str]) -> str:
    """A name that is stored as it is, or as a number of StringIds."""
    return value if isinstance(value, str) else text_of.get(value, "unnamed")


def _thread(thread: Any) -> tuple[str, str]:
    """(process, thread) of a globalTid; files that other programs wrote have small numbers: of the thread alone."""
    if not isinstance(thread, int) or thread < 0:
        return "0", "0"
    return str(thread >> _PROCESS_BITS & 0xFFFFFF), str(thread & 0xFFFFFF)


def _owner(thread: Any) -> int:
    """Machine and process of a global id; -1 for none."""
    return thread >> _PROCESS_BITS if isinstance(thread, int) and 0 <= thread < 1 << 63 else -1


# ---- devices ----


def _device(database: Database, spans: Spans, text_of: dict[Any, str], health: list[Health]) -> bool:
    """Kernels, copies, memsets and waits; whether every row says its process."""
    bound = True
    for table, kind, more in _DEVICE:
        kernels = table.endswith("_KERNEL")
        raw = Codes()
        present = database.tables.get(table, frozenset())
        count = 0
        for *columns, text in database.chunks(table, *_FIELDS, *more, _KERNEL_NAMES if kernels else ()):
            start, end = moments(columns[0]), moments(columns[1])
            device, stream, correlation, process, *extra = (whole(list(c)) for c in columns[2:])
            name = coded(text, raw) if kernels else _described(spans, table, extra, device)
            if kernels:
                name = spans.code([_named(value, text_of) for value in raw])[name]
            device, stream = (np.where(numbers < 1 << 31, numbers, -1) for numbers in (device, stream))
            pairs, code = classes(device, stream)
            track = coded([(str(d), str(s)) for d, s in pairs.tolist()], spans.tracks)[code]
            owner = np.where(process >= 0, process >> _PROCESS_BITS, -1)
            spans.add(kind, start, end, name, track, owner, device=np.maximum(device, 0), stream=stream, correlation=correlation)
            bound &= "globalPid" in present
            count += len(start)
        if count and table.endswith("GRAPH_TRACE"):
            text = "graphs that were traced as a whole: what ran in them is not known; trace with --cuda-graph-trace=node"
            health.append(Health(what="graphs_as_a_whole", count=count, affects="compute classes, collectives, floors", text=text))
    return bound


def _described(spans: Spans, table: str, extra: Sequence[Ints], device: Ints) -> Ints:
    """Names of rows that have none: what they are, as PyTorch calls them."""
    if table.endswith("MEMSET"):
        return spans.code(["Memset (Device)"])[np.zeros(len(device), np.int64)]
    if table.endswith("GRAPH_TRACE"):
        return spans.code([f"CUDA graph {graph}" for graph in extra[0].tolist()])
    if table.endswith("SYNCHRONIZATION"):
        known: Ints = np.where(extra[0] < len(_SYNCS), extra[0], 0).clip(0)
        return spans.code(_SYNCS)[known]
    way, source, target, from_device, to_device = extra
    way = np.where((way == 8) & (from_device >= 0) & (to_device >= 0) & (from_device != to_device), 10, way)
    rows, code = classes(*(np.where(column < len(_WAYS), column, -1) for column in (way, source, target)))
    names = spans.code([_copy(*row) for row in rows.tolist()])
    return names[code]


def _copy(way: int, source: int, target: int) -> str:
    name = f"Memcpy {_WAYS[way] if 0 < way < len(_WAYS) else 'of unknown way'}"
    known = all(0 <= place < len(_PLACES) for place in (source, target))
    return f"{name} ({_PLACES[source]} -> {_PLACES[target]})" if known else name


# ---- what the file says about itself ----


def _processes(table: Table, owner: Ints, listed: set[int]) -> tuple[Table, ...]:
    """One table for each process that worked on a device; without any, for each with host rows.

    Rows that do not say their process, or one that is not listed and has no host rows (damage), belong to the only one there is, or
    else are left out.
    """
    if listed:
        known = np.array(sorted({*listed, *owner[table.of(*HOST)].tolist()}), np.int64)
        owner = np.where(np.isin(owner, known), owner, -1)
    working = distinct(owner[table.of(*DEVICE_WORK) & (owner >= 0)])
    chosen = working if len(working) else distinct(owner[table.of(*HOST) & (owner >= 0)])
    if len(chosen) < 2:
        return parted(table, np.where(owner < 0, chosen[0] if len(chosen) else -1, owner), chosen.tolist() or [-1])
    lost = int((owner < 0).sum())
    if lost:
        text = "rows that do not say their process are left out"
        note = Health(what="no_process", count=lost, affects="counts of kernels, compute and idle", text=text)
        table = replace(table, health=(*table.health, note))
    return parted(table, owner, chosen.tolist())


def _models(database: Database) -> tuple[str, ...]:
    """Names of the devices by the number that CUDA gives them."""
    name_of = {number: str(name) for number, name in database.rows("TARGET_INFO_GPU", "id", "name") if isinstance(number, int)}
    number_of = dict(database.rows("TARGET_INFO_CUDA_DEVICE", "cudaId", "gpuId")) or {number: number for number in name_of}
    known = {n: name_of.get(gpu, "") for n, gpu in number_of.items() if isinstance(n, int) and 0 <= n < 1024}
    return tuple(known.get(i, "") for i in range(max(known, default=-1) + 1))


def _session(database: Database) -> str:
    """The machine, and when time began to count: clocks of two sessions do not agree."""
    said = {str(name): str(value) for name, value in database.rows("TARGET_INFO_SYSTEM_ENV", "name", "value")}
    began = next((row[0] for row in database.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")), "")
    return f"{said.get('Hostname', 'unknown')} from {began}" if began else said.get("Hostname", "")


def _profiler(database: Database, columns: dict[str, Any]) -> list[Health]:
    """What the profiler says it failed to do, and how much it worked itself."""
    out = []
    said = [str(text).strip() for level, text in database.rows("DIAGNOSTIC_EVENT", "severity", "text") if level in (2, 3)]
    if said:
        out.append(Health(what="profiler_warnings", count=len(said), text=f"Nsight Systems warned: {said[0][:200]}"))
    spent = [
        max(0, e - s)
        for table in (f"{_PREFIX}OVERHEAD", "PROFILER_OVERHEAD")
        for s, e in database.rows(table, "start", "end")
        if isinstance(s, int) and isinstance(e, int)
    ]
    extent = int(columns["end"].max() - columns["start"].min()) if len(columns["start"]) else 0
    if sum(spent) > _MUCH * extent > 0:
        text = f"the profiler itself worked for {sum(spent) / 1e6:.1f} ms on the host (buffers, modules): the program's idle time is less"
        out.append(Health(what="profiler_overhead", count=len(spent), affects="idle time", text=text))
    return out
