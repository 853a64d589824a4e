"""Reads one Kineto trace (.json, .json.gz) into a `Table`. Tolerant: what is whole is used, what is lost is said.

From here on times are integer nanoseconds; no time stamp passes through a float that cannot hold it.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import Health
from headway.spec.errors import TraceError
from headway.trace.classify import collective
from headway.trace.marks import is_mark
from headway.trace.read.allocations import allocations
from headway.trace.read.kineto_json import Event, File, Inexact, Loss, decode, decode_exact, nanoseconds
from headway.trace.read.source import FIX, load
from headway.trace.sweep import Ints
from headway.trace.table import Collective, Group, Kind, Shape, Table

_KINDS = {
    **dict.fromkeys(("kernel", "concurrent_kernel"), Kind.KERNEL),
    **dict.fromkeys(("gpu_memcpy", "memcpy"), Kind.MEMCPY),
    **dict.fromkeys(("gpu_memset", "memset"), Kind.MEMSET),
    "gpu_user_annotation": Kind.DEVICE_MARK,
    "cuda_sync": Kind.SYNC,
    "runtime": Kind.RUNTIME,
    **{f"{maker}_{side}": Kind.RUNTIME for maker in ("cuda", "hip", "xpu", "mtia", "privateuse1") for side in ("runtime", "driver")},
    **dict.fromkeys(("operator", "cpu_op"), Kind.OPERATOR),
    "user_annotation": Kind.MARK,
    "python_function": Kind.PYTHON,
}
_DRAWN = {"trace", "overhead", "cuda_profiler_range"}  # known, and not a span of work
_MOST_RANKS = 1 << 20  # beyond it a number is damage, not a rank
_SIZES = {"double": 8, "long": 8, "int": 4, "float": 4, "half": 2, "bfloat16": 2, "short": 2, "byte": 1, "char": 1, "bool": 1}
_SIZES |= {"float64": 8, "int64": 8, "int32": 4, "float32": 4, "float16": 2, "int16": 2, "int8": 1, "uint8": 1, "complexfloat": 8}


def read(path: Path) -> Table:
    """The trace in `path`. Raises TraceError if it is missing, is not a trace or holds no spans."""
    data, whole = load(path)
    on = gc.isenabled()
    gc.disable()  # a decode allocates many objects and frees none: a collection would only walk them
    try:
        return _table(path, data, whole)
    finally:
        if on:
            gc.enable()


def _table(path: Path, data: bytes, whole: bool) -> Table:
    file, loss = decode(data) if data.lstrip()[:1] in (b"{", b"[") else (File(), Loss())
    if file.events is None:
        shown = data[:24].decode("utf-8", "replace")
        raise TraceError(f"not a trace: no list of events in it (it starts with {shown!r})", where=str(path), fix=FIX)
    spans = _spans(file)
    try:
        start, length, usable = _times(spans)
    except Inexact:
        file = decode_exact(data)
        spans = _spans(file)
        start, length, usable = _times(spans)
    health = _losses(loss, whole) + _unpaired(file)
    if not spans:
        raise TraceError("the trace holds no spans", where=str(path), fix="Profile at least one step, and let the export finish.")
    table = _columns(path, file, spans, (start, length, usable), health)
    return replace(table, allocations=allocations(data, file.base_ns))


def _spans(file: File) -> list[Event]:
    return [e for e in file.events or () if e.ph == "X"]


def _times(spans: list[Event]) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """(start, duration, usable) in nanoseconds. Raises Inexact."""
    start, usable = nanoseconds([e.ts for e in spans])
    length, known = nanoseconds([0 if e.dur is None else e.dur for e in spans])
    return start, length, usable & known


def _columns(path: Path, file: File, spans: list[Event], times: tuple[Ints, Ints, NDArray[np.bool_]], health: list[Health]) -> Table:
    start, length, usable = times
    base = file.base_ns if isinstance(file.base_ns, int) and abs(file.base_ns) < 1 << 61 else 0
    codes: dict[Any, int] = {}
    category = np.array([codes.setdefault(e.cat, len(codes)) for e in spans], np.int64)
    kinds = [_KINDS.get(str(c).lower(), Kind.OTHER) for c in codes]
    kind = np.array([int(k) for k in kinds], np.int8)[category]
    health += _strange(codes, category, kinds)
    lost = ~usable
    blank = np.isin(kind, (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)) & (start == 0) & (np.median(start) > 86_400 * 10**9)
    unfinished = (length < 0) & ~lost
    for what, rows, text in (
        ("unusable_time", lost, "spans whose time stamp is missing or not a number are left out"),
        ("blank_time", blank, "device spans with time stamp 0 are left out"),
        ("unfinished", unfinished, "spans with a negative duration count as empty"),
    ):
        if rows.any():
            health.append(Health(what=what, count=int(rows.sum()), text=text))
    keep = np.flatnonzero(~lost & ~blank)
    end = start + np.maximum(length, 0)
    order = keep[np.lexsort((-end[keep], start[keep]))]
    spans = [spans[i] for i in order.tolist()]
    args = [e.args for e in spans]
    names: dict[Any, int] = {}
    tracks: dict[Any, int] = {}
    device = _whole([a.device for a in args])
    kind = kind[order]
    placed = np.isin(kind, (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.SYNC, Kind.DEVICE_MARK))
    bare = np.flatnonzero(placed & (device < 0))
    device[bare] = [_device(spans[i].pid) for i in bare.tolist()]
    name = np.array([names.setdefault(e.name, len(names)) for e in spans], np.int64)
    marked = np.array([is_mark(str(n)) for n in names], bool)[name] if len(names) else np.zeros(0, bool)
    kind = np.where((kind == Kind.OPERATOR) & marked, Kind.MARK, kind).astype(np.int8)
    rank, world, backend, groups = _distributed(file.distributed)
    shape, shapes = _shapes(spans, np.flatnonzero(kind == Kind.OPERATOR))
    return Table(
        source=str(path),
        start=start[order] + base,
        end=end[order] + base,
        kind=kind,
        name=name,
        track=np.array([tracks.setdefault((str(e.pid), str(e.tid)), len(tracks)) for e in spans], np.int64),
        device=np.where(placed, device, -1),
        stream=_whole([a.stream for a in args]),
        correlation=_whole([a.correlation for a in args]),
        sequence=_whole([a.sequence for a in args]),
        forward=_whole([a.forward for a in args]),
        names=tuple(str(n) for n in names),
        tracks=tuple(tracks),
        shape=shape,
        shapes=shapes,
        collectives=_collectives(spans),
        rank=rank,
        world=world,
        backend=backend,
        groups=groups,
        devices=_devices(file.devices),
        host=file.host if isinstance(file.host, str) else "",
        health=tuple(health),
    )


def _shapes(spans: list[Event], operators: Ints) -> tuple[Ints, tuple[Shape, ...]]:
    """(shape code of each span, the shapes): each distinct text is decoded once."""
    codes: dict[tuple[bytes, bytes], int] = {}
    shape = np.full(len(spans), -1, np.int64)
    for i in operators.tolist():
        args = spans[i].args
        if dims := bytes(args.dims):
            shape[i] = codes.setdefault((dims, bytes(args.types)), len(codes))
    return shape, tuple(_shape(*text) for text in codes)


def _shape(dims: bytes, types: bytes) -> Shape:
    """A recorded text as a shape; an empty one if it is no list."""
    try:
        shape, kinds = json.loads(dims), json.loads(types)
    except ValueError:
        return Shape((), ())
    return Shape(tuple(shape), tuple(map(str, kinds))) if isinstance(shape, list) and isinstance(kinds, list) else Shape((), ())


def _whole(values: list[Any]) -> Ints:
    """Integers of up to 63 bits; -1 for anything else (missing, text, larger)."""
    return np.array(
        [-1 if v is None else v if v.__class__ is int and -1 <= v < 1 << 62 else _as_whole(v) for v in values],
        np.int64,
    )


def _as_whole(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    return -1


def _device(pid: Any) -> int:
    """A device row without a device argument: its process id is the device's number."""
    number = _as_whole(str(pid))
    return number if 0 <= number < 1024 else 0


# ---- what the file says about itself ----


def _distributed(info: Any) -> tuple[int | None, int | None, str, tuple[Group, ...]]:
    if not isinstance(info, dict):
        return None, None, "", ()
    groups = []
    for row in info.get("pg_config") or ():
        if isinstance(row, dict):
            ranks = row.get("ranks")
            members = tuple(r for r in ranks if isinstance(r, int)) if isinstance(ranks, list) else ()
            complete = len(members) == row.get("pg_size", len(members))
            groups.append(Group(str(row.get("pg_name")), str(row.get("pg_desc", "")), members if complete else ()))
    rank, world = info.get("rank"), info.get("world_size")
    return (
        rank if isinstance(rank, int) and 0 <= rank < _MOST_RANKS else None,
        world if isinstance(world, int) and 0 < world <= _MOST_RANKS else None,
        str(info.get("backend", "")),
        tuple(groups),
    )


def _devices(properties: Any) -> tuple[str, ...]:
    rows = properties if isinstance(properties, list) else []
    return tuple(str(r.get("name", "")) for r in rows if isinstance(r, dict))


def _collectives(spans: list[Event]) -> dict[int, Collective]:
    """Rows that carry the arguments of a collective, and collectives of the host with their shapes."""
    out = {}
    host = ("c10d::", "gloo:", "_c10d_functional::")
    for i, event in enumerate(spans):
        args = event.args
        if args.collective is not None:
            size = args.size if isinstance(args.size, int) else None
            out[i] = Collective(
                name=collective(str(args.collective)),
                group=None if args.group is None else str(args.group),
                text="" if args.text in (None, "undefined") else str(args.text),
                ranks=_members(args.ranks, size),
                size=size,
                bytes=_message(args.sent, args.received, args.dtype),
                number=_counted(args.number),
                peer=_counted(args.from_rank if args.to_rank is None else args.to_rank),
            )
        elif event.name is not None and event.name.startswith(host):
            out[i] = Collective(name=collective(event.name), bytes=_shaped(bytes(args.dims), bytes(args.types)))
    return out


def _counted(value: Any) -> int | None:
    number = _as_whole(value) if value.__class__ is not int else value
    return number if 0 <= number < 1 << 62 else None


def _members(text: Any, size: int | None) -> tuple[int, ...]:
    """'[0, 1]' -> (0, 1); () if it was shortened."""
    try:
        ranks = json.loads(text) if isinstance(text, str) else text
    except json.JSONDecodeError:
        return ()
    if not isinstance(ranks, list) or not all(isinstance(r, int) for r in ranks) or (size is not None and len(ranks) != size):
        return ()
    return tuple(ranks)


def _message(sent: Any, received: Any, dtype: Any) -> int | None:
    size = _element(dtype)
    counts = [n for n in (sent, received) if isinstance(n, int)]
    return max(counts) * size if counts and size else None


def _element(dtype: Any) -> int | None:
    name = str(dtype).removeprefix("c10::").lower()
    return 1 if name.startswith("float8") else _SIZES.get(name)


def _shaped(dims: bytes, types: bytes) -> int | None:
    """Bytes of the largest tensor (or list of tensors) of a host operator with recorded shapes."""
    try:
        shapes, kinds = json.loads(dims), json.loads(types)
        first = next((s for k in kinds if (s := _element(k))), None)
        return max(_count(s) for s in shapes) * first or None if first else None
    except (ValueError, TypeError):
        return None


def _count(shape: Sequence[Any]) -> int:
    if not shape:
        return 0
    return sum(_count(s) for s in shape) if isinstance(shape[0], list) else prod(shape)


# ---- health ----


def _losses(loss: Loss, whole: bool) -> list[Health]:
    out = []
    if not whole or loss.cut:
        text = "the end of the file is missing; every whole event before it is used"
        out.append(Health(what="truncated", count=max(1, loss.cut_bytes), affects="the last steps", text=text))
    if loss.events:
        out.append(Health(what="unreadable_events", count=loss.events, text="events that cannot be read are left out"))
    if loss.mended:
        out.append(Health(what="mended", count=len(loss.mended), text=f"mended while reading: {', '.join(loss.mended)}"))
    return out


def _unpaired(file: File) -> list[Health]:
    count = sum(e.ph in ("B", "E") for e in file.events or ())
    return [Health(what="begin_end_events", count=count, text="begin/end pairs are not read, only whole spans")] if count else []


def _strange(codes: dict[Any, int], category: Ints, kinds: list[Kind]) -> list[Health]:
    counts = np.bincount(category, minlength=len(codes))
    rows = {str(c): int(counts[i]) for i, c in enumerate(codes) if kinds[i] is Kind.OTHER and str(c).lower() not in _DRAWN}
    text = f"spans of unknown categories are left out: {', '.join(sorted(rows))}"
    return [Health(what="unknown_category", count=sum(rows.values()), text=text)] if rows else []
