"""Reads an XSpace (*.xplane.pb, gzip too) into one `Table`: what JAX, TensorFlow and PyTorch/XLA profile on GPUs and TPUs.

A GPU plane has a line a stream; its events are launched by host events with the same correlation id. A TPU plane has a line of modules
(programs that run), a line of ops, in which a loop contains its body (only the innermost are work), and a line of asynchronous ops, from
issue to completion (its collectives are work beside the compute, its copies none: they wait most of that time). A module is launched by
the host event with its run id. Steps are marks of the host (step_num); without any, each device's own line of steps. Views that are
made from other lines ("TensorFlow Ops", "Framework Name Scope", ...) are not read. Without events of devices, the ops that threads of
the host ran are the work of one device, `cpu:0`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from headway.spec.errors import TraceError
from headway.spec.event import MODULE_PREFIX, STEP_PREFIX
from headway.spec.health import Health
from headway.trace.classify import is_collective
from headway.trace.read.collector import resting
from headway.trace.read.columns import Codes, coded, whole
from headway.trace.read.file import Reading
from headway.trace.read.protobuf import Loss
from headway.trace.read.source import load
from headway.trace.read.spans import Spans, moments
from headway.trace.read.xspace import Event, Line, Plane, planes
from headway.trace.sweep import Ints, depth
from headway.trace.table import DEVICE_WORK, Kind, Table

FIX: Final = "Profile again, for example with jax.profiler.trace(FOLDER), and give its *.xplane.pb."
_DEVICE: Final = re.compile(r"/device:(GPU|TPU):(\d{1,4})$")
_STREAM: Final = re.compile(r"Stream #(\d+)|^(\d+)$")
_LAUNCHES: Final = re.compile(r"Enqueue|Launch")  # of the host events with a run id: not those of completion
_CALL: Final = re.compile(r"^(cuda|cu|hip)[A-Z]\w+$")
_NUMBERED: Final = re.compile(r"\(\d+\)$")  # jit_step(2433868464432466958)
_PYTHON: Final = re.compile(r"^\$(\S+?):(\d+) (.*)")
_REPLACED: Final = "\ufffd".encode()


class Row(NamedTuple):
    """One row of the table."""

    kind: Kind
    start: int
    end: int
    name: str
    track: tuple[str, str]
    device: int = -1
    stream: int = -1
    link: Any = None  # what a launch and its work have in common


def read(path: Path) -> Reading:
    """The timeline in `path`. Raises TraceError if it is no XSpace or holds no events."""
    data, whole_file = load(path)
    with resting():
        return _reading(path, data, whole_file)


def _reading(path: Path, data: bytes, whole_file: bool) -> Reading:
    loss = Loss()
    found = list(planes(data, loss))
    if loss.count and data.count(_REPLACED) > len(data) // 50:
        what = "not an XSpace any more: its bytes went through a text converter (U+FFFD in place of what is no text)"
        raise TraceError(what, where=str(path), fix="Copy the original as binary.")
    if not found:
        raise TraceError("not an XSpace: no plane in it", where=str(path), fix=FIX)
    all_planes = [plane for plane, _ in found]
    on_host = not any(_DEVICE.search(plane.name) and any(line.events for line in plane.lines) for plane in all_planes)
    rows = [row for plane in all_planes for row in _rows(plane, on_host)]
    rows += _programs(all_planes, rows)
    steps = {} if any(row.kind == Kind.MARK and row.name.startswith(STEP_PREFIX) for row in rows) else _steps(all_planes)
    devices = sorted({row.device for row in rows if row.kind in DEVICE_WORK}) if steps else []
    shares = [[r for r in rows if r.device in (-1, d)] + steps.get(d, []) for d in devices] or [rows]
    health = _health(all_planes, loss, whole_file)
    maker = "cpu" if on_host else "tpu" if any(":TPU:" in plane.name for plane in all_planes) else "cuda"
    tables = tuple(
        Table(**columns, source=str(path), maker=maker, host=found[0][1], health=(*health, *doubts))
        for columns, doubts in map(_columns, filter(None, shares))
        if len(columns["start"])
    )
    if not tables:
        raise TraceError("the XSpace holds no events with usable times", where=str(path), fix=FIX)
    rest = (replace(table, health=()) for table in tables[1:])
    return Reading(source=str(path), tables=(tables[0], *rest))


def _columns(rows: Sequence[Row]) -> tuple[dict[str, Any], list[Health]]:
    """The fields of a `Table` of these rows, and what is doubtful about them."""
    kind, start, end, name, track, device, stream, link = (list(column) for column in zip(*rows, strict=True))
    links, spans = Codes({None: 0}), Spans()
    spans.add(
        whole(list(map(int, kind)), None),
        moments(start),
        moments(end),
        spans.code(name),
        coded(track, spans.tracks),
        device=whole(device),
        stream=whole(stream),
        correlation=coded(link, links),
    )
    columns, _, doubts = spans.columns()
    return columns, doubts


# ---- rows ----


def _rows(plane: Plane, on_host: bool) -> Iterator[Row]:
    """The rows of a plane; `on_host`: no device has events, so the ops of XLA run on threads of the host."""
    device = _DEVICE.search(plane.name)
    if device is None:
        for number, line in enumerate(plane.lines if plane.name.startswith("/host:") else ()):
            yield from _host(plane, line)
            yield from _threads(plane, line, number) if on_host else ()
    elif device[1] == "GPU":
        for line in plane.lines:
            stream = _STREAM.search(line.name)
            if stream:
                yield from _stream(plane, line, int(device[2]), int(stream[1] or stream[2]))
    else:
        yield from _tpu(plane, int(device[2]))


def _host(plane: Plane, line: Line) -> Iterator[Row]:
    """A thread: launches, marks of steps and modules, calls of Python, and whatever else was annotated."""
    track = (plane.name, f"{line.name}/{line.identity}")
    for e in line.events:
        name, stats = e.named.name or e.named.display, e.stats
        run = (stats.get("device_ordinal"), stats.get("run_id"))
        if isinstance(step := stats.get("step_num"), int) and 0 <= step < 10**9:
            yield Row(Kind.MARK, e.start, e.end, f"{STEP_PREFIX}{step}", track)
        elif stats.get("correlation_id"):
            call = name if _CALL.match(name) else f"launch {name}"[:200]  # TensorFlow calls a launch as its kernel
            yield Row(Kind.RUNTIME, e.start, e.end, call, track, link=stats["correlation_id"])
        elif run[1] is not None and _LAUNCHES.search(name):
            yield Row(Kind.RUNTIME, e.start, e.end, name, track, link=run)
        elif stats.get("hlo_op"):
            continue
        elif python := _PYTHON.match(name):
            yield Row(Kind.PYTHON, e.start, e.end, f"{python[1]}({python[2]}): {python[3]}", track)
        else:
            yield Row(Kind.MARK, e.start, e.end, name, track)


def _stream(plane: Plane, line: Line, device: int, stream: int) -> Iterator[Row]:
    """A stream of a GPU."""
    for e in line.events:
        name = e.named.name or e.named.display
        kind = Kind.MEMCPY if name.lower().startswith("memcpy") else Kind.MEMSET if name.lower().startswith("memset") else Kind.KERNEL
        track = (plane.name, str(stream))
        yield Row(kind, e.start, e.end, name, track, device, stream, e.stats.get("correlation_id") or None)


def _threads(plane: Plane, line: Line, number: int) -> Iterator[Row]:
    """The ops that a thread runs, the innermost: where there is no device the threads of XLA are one, each a stream of it."""
    ops = [e for e in line.events if e.stats.get("hlo_op")]
    for e, leaf in zip(ops, _innermost(ops).tolist(), strict=True):
        kind = Kind.KERNEL if leaf else Kind.DEVICE_MARK
        yield Row(kind, e.start, e.end, str(e.stats["hlo_op"]), (plane.name, f"XLA {number}"), 0, number)


def _tpu(plane: Plane, device: int) -> Iterator[Row]:
    """The ops of a TPU, each linked to the run of the module that it is in."""
    runs = [e for line in plane.lines if line.name == "XLA Modules" for e in line.events]
    runs.sort(key=lambda e: e.start)
    begins = np.array([e.start for e in runs], np.int64)
    for number, line in enumerate(line for line in plane.lines if line.name in ("XLA Ops", "Async XLA Ops")):
        if not line.events:
            continue
        track = (plane.name, line.name)
        innermost = _innermost(line.events)
        place = np.searchsorted(begins, np.array([e.start for e in line.events], np.int64), side="right") - 1
        for e, leaf, at in zip(line.events, innermost.tolist(), place.tolist(), strict=True):
            run = runs[at] if at >= 0 and e.start < runs[at].end else None
            name = xla_name(e)
            work = is_collective(name) if line.name.startswith("Async") else leaf
            link = (device, run.stats.get("run_id")) if run is not None else None
            yield Row(Kind.KERNEL if work else Kind.DEVICE_MARK, e.start, e.end, name, track, device, number, link)
    for run in runs:
        yield Row(Kind.DEVICE_MARK, run.start, run.end, run.named.name, (plane.name, "XLA Modules"), device, 99)


def _innermost(events: Sequence[Event]) -> Ints:
    """Which events hold no other of their line."""
    start = np.array([e.start for e in events], np.int64)
    end = np.array([e.end for e in events], np.int64)
    order = np.lexsort((-end, start))
    order = order[end[order] > start[order]]
    level = depth(start[order], end[order])
    out = np.ones(len(events), np.int64)
    out[order[:-1][level[1:] > level[:-1]]] = 0
    return out


def xla_name(event: Event) -> str:
    """An op as XLA calls it, with what tells its class: its category, and the operation of the program that it comes from."""
    told, name = event.named.stats, event.named.display or event.named.name.partition(" = ")[0].lstrip("%")
    source = str(told.get("tf_op", "")).rstrip(":").rpartition("/")[2]
    category = str(told.get("hlo_category", ""))
    said = ", ".join(part for part in (category, source) if part and part != name)
    return f"{name} ({said})" if said else name


def _programs(found: Sequence[Plane], rows: Sequence[Row]) -> list[Row]:
    """Marks of modules: the program of each launch that has a run id."""
    names = {
        (int(device[2]), e.stats.get("run_id")): _NUMBERED.sub("", e.named.name)
        for plane in found
        if (device := _DEVICE.search(plane.name))
        for line in plane.lines
        if line.name == "XLA Modules"
        for e in line.events
    }
    launches = [row for row in rows if row.kind == Kind.RUNTIME and row.link in names]
    return [Row(Kind.MARK, row.start, row.end, f"{MODULE_PREFIX}{names[row.link]}", row.track) for row in launches]


def _steps(found: Sequence[Plane]) -> dict[int, list[Row]]:
    """Device -> marks of its steps, where devices have lines of them. They differ between devices, so each becomes a rank of its own."""
    out: dict[int, list[Row]] = {}
    for plane in found:
        device = _DEVICE.search(plane.name)
        events = [e for line in plane.lines if line.name == "Steps" for e in line.events] if device else []
        for e in events:
            number = str(e.stats.get("step_name", e.named.name))
            if device and number.isdecimal() and len(number) < 10:
                mark = Row(Kind.MARK, e.start, e.end, f"{STEP_PREFIX}{int(number)}", (plane.name, "Steps"))
                out.setdefault(int(device[2]), []).append(mark)
    return out


def _health(found: Sequence[Plane], loss: Loss, whole_file: bool) -> list[Health]:
    out = []
    if loss.count or not whole_file:
        text = "messages that are cut or damaged are left out; what is whole is used"
        out.append(Health(what="damaged_messages", count=max(1, loss.count), affects="everything", text=text, withholds=("idle",)))
    aggregated = sum(line.lost for plane in found for line in plane.lines)
    if aggregated and not loss.count:
        text = "events without a place in time (sums of many, or times that cannot be) are left out"
        out.append(Health(what="aggregated_events", count=aggregated, affects="compute and idle time", text=text))
    kinds = Counter(plane.name for plane in found if plane.name.startswith("/device:") and not _DEVICE.search(plane.name))
    if kinds:
        text = f"planes that are not read: {', '.join(sorted(kinds)[:4])}"
        out.append(Health(what="unread_planes", count=len(kinds), affects="work of those devices", text=text))
    hidden = sum(len(line.events) for plane in found for line in plane.lines if line.name == "Async XLA Ops")
    if hidden:
        text = "asynchronous ops last from issue to completion: their copies count as no work, their collectives as communication"
        out.append(Health(what="asynchronous_ops", count=hidden, affects="copies within a TPU", text=text))
    return out
