"""Exports of Nsight Systems written by hand: the events of a Kineto trace in the tables that nsys would have written."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

DEVICE = "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER"
SCHEMA: Mapping[str, str] = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{DEVICE}, demangledName INTEGER, shortName INTEGER, graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{DEVICE}, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{DEVICE}, value INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{DEVICE}, syncType INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{DEVICE}, graphId INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, globalTid INTEGER, text TEXT, textId INTEGER, domainId INTEGER",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT",
}
OF_CATEGORY = {
    "kernel": "CUPTI_ACTIVITY_KIND_KERNEL",
    "gpu_memcpy": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "gpu_memset": "CUPTI_ACTIVITY_KIND_MEMSET",
    "cuda_sync": "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "cuda_runtime": "CUPTI_ACTIVITY_KIND_RUNTIME",
    "user_annotation": "NVTX_EVENTS",
    "cpu_op": "NVTX_EVENTS",
}
MACHINE = 1 << 48
Rows = Mapping[str, Sequence[Sequence[Any]]]


def process(pid: int) -> int:
    """A globalPid."""
    return MACHINE | pid << 24


def tables(events: Sequence[Mapping[str, Any]], *, pid: int = 7) -> dict[str, list[list[Any]]]:
    """The rows of each table (names as text, see `write`); times of events are microseconds."""
    out: dict[str, list[list[Any]]] = {name: [] for name in OF_CATEGORY.values()}
    threads = {tid: i + 1 for i, tid in enumerate(dict.fromkeys(str(e["tid"]) for e in events))}
    for number, e in enumerate(events):
        start, end, args, name = round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000), e.get("args", {}), e["name"]
        device = [start, end, args.get("device", 0), args.get("stream", 7), args.get("correlation", 0), process(pid)]
        thread = process(pid) | threads[str(e["tid"])]
        table = OF_CATEGORY[e["cat"]]
        if e["cat"] == "cpu_op":
            seq = f"seq = {args['Sequence number']}, " if "Sequence number" in args else ""
            row = [start, end, 59, thread, f"{name}, {seq}op_id = {number}", None, 0]
        elif table == "NVTX_EVENTS":
            row = [start, end, 59, thread, name, None, 0]
        elif table.endswith("RUNTIME"):
            row = [start, end, thread, args.get("correlation", 0), f"{name}_v7000"]
        elif table.endswith("KERNEL"):
            row = [*device, name, name[:8], None]
        elif table.endswith("MEMCPY"):
            row = [*device, 1 if "HtoD" in name else 2, *((0, 2) if "HtoD" in name else (2, 0))]
        elif table.endswith("SYNCHRONIZATION"):
            row = [*device, 3]
        else:
            row = [*device, 0]
        out[table].append(row)
    return out


def write(path: Path, rows: Rows, *, gpu: str = "NVIDIA H100", schema: Mapping[str, str] = SCHEMA) -> Path:
    """A database of these rows; text in columns of names goes to StringIds. Empty tables are left out."""
    numbers: dict[str, int] = {}
    with closing(sqlite3.connect(path)) as db:
        for table, columns in schema.items():
            mine = rows.get(table, ())
            if not mine and table not in ("StringIds", "TARGET_INFO_GPU"):
                continue
            db.execute(f"CREATE TABLE {table} ({columns})")
            names = [c.split()[0] for c in columns.split(", ")]
            named = [n.endswith(("nameId", "Name")) for n in names]
            made = [
                [
                    numbers.setdefault(v, len(numbers) + 1) if by_number and isinstance(v, str) else v
                    for v, by_number in zip(row, named, strict=True)
                ]
                for row in mine
            ]
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", made)
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, v) for v, i in numbers.items()])
        db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, ?)", (gpu,))
        db.commit()
    return path
