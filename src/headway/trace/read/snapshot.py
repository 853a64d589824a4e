"""Reads memory snapshots of torch.cuda.memory (pickle or JSON, gzip too) of every torch since 2.1 into a `History` a device.

What is in one: `segments` (what is reserved now, cut into blocks) and `device_traces` (a list of events a device, oldest first; a ring
buffer, so the oldest may be gone). Fields come and go between versions: time stamps since 2.2, pools and compile contexts later; blocks
of some versions say no address, only sizes in order. A program of ours adds the key "headway": rank, device,
[step, end] and [address, bytes, part] and [start, end, module] in nanoseconds and bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headway.spec.breakdown import Health
from headway.spec.errors import TraceError
from headway.spec.memory import KINDS
from headway.trace import marks
from headway.trace.memory.history import ACTIONS, Action, Blocks, Frame, History, Named, Segments, Site
from headway.trace.read.collector import resting
from headway.trace.read.file import Reading
from headway.trace.read.pickles import plain
from headway.trace.read.source import load
from headway.trace.sweep import NEVER, Ints, Steps, innermost

FIX = "Give a file of torch.cuda.memory._dump_snapshot(), whole."
_LIMIT = 1 << 62  # of addresses, sizes and microseconds x 1000
_MOST_DEVICES = 1024
_DEPTH = 256  # frames of a stack that are looked at
_IN_NAME = re.compile(r"(.+)\((\d{1,9})\): (.+)")
_PARTS = {  # categories of torch's profiler that say more than a stack
    "parameter": "parameters",
    "optimizer_state": "optimizer",
    "gradient": "gradients",
    "activation": "activations",
    "input": "activations.(input)",
}


def read(path: Path) -> Reading:
    """The histories in `path`. Raises TraceError if it is no snapshot or holds nothing."""
    data, whole = load(path)
    with resting():
        found = histories(_decode(path, data), str(path))
    if not whole:
        raise TraceError("the end of the file is missing", where=str(path), fix=FIX)
    if not found:
        raise TraceError("the snapshot holds no memory of any device", where=str(path), fix="Take it after the first allocation on a GPU.")
    return Reading(source=str(path), memory=found)


def _decode(path: Path, data: bytes) -> Any:
    if data[:1] == b"\x80":
        return plain(data, path, FIX)
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"not a memory snapshot ({error})", where=str(path), fix=FIX) from None


def histories(data: Any, source: str) -> tuple[History, ...]:
    """One history for each device of a decoded snapshot. Raises TraceError if it is none."""
    if not isinstance(data, Mapping) or not ("segments" in data or "device_traces" in data):
        raise TraceError("not a memory snapshot: no segments and no device traces in it", where=source, fix=FIX)
    segments, broken = _dicts(data.get("segments"))
    traces = data.get("device_traces")
    traces = traces if isinstance(traces, Sequence) and not isinstance(traces, (str, bytes)) else ()
    of_device: dict[int, list[Mapping[str, Any]]] = {}
    for segment in segments:
        of_device.setdefault(_number(segment.get("device", 0)), []).append(segment)
    said = data.get("headway") if isinstance(data.get("headway"), Mapping) else {}
    out = []
    for device in sorted({*of_device, *(i for i, t in enumerate(traces[:_MOST_DEVICES]) if t)}):
        if 0 <= device < _MOST_DEVICES:
            events, lost = _dicts(traces[device] if device < len(traces) else ())
            note = _health(broken + lost)
            out.append(_history(source, device, events, of_device.get(device, []), data, said or {}, note))
    return tuple(h for h in out if len(h) or len(h.segments.size))


def _history(
    source: str,
    device: int,
    events: Sequence[Mapping[str, Any]],
    segments: Sequence[Mapping[str, Any]],
    data: Mapping[str, Any],
    said: Mapping[str, Any],
    health: tuple[Health, ...],
) -> History:
    stacks = _Stacks()
    action = np.array([ACTIONS.get(str(e.get("action")), Action.OTHER) for e in events], np.int64)
    address, size = _column(events, "addr"), _column(events, "size")
    address = np.where(action == Action.OOM, _column(events, "device_free"), address)
    time = _column(events, "time_us")
    time = np.where(time > 0, time * 1000, -1)  # a broken one becomes negative and is none
    usable = ((address >= 0) & (size >= 0)) | np.isin(action, (Action.OOM, Action.SNAPSHOT, Action.OTHER))
    blocks, misfits = _blocks(segments, stacks)
    drawn = any("category" in e for e in events[:1])  # by torch's profiler: its one segment is all addresses between two blocks
    own = said.get("device", 0) == device
    ends, spans = _annotated(data.get("external_annotations"))
    modules, module_at = _modules((_spans(said.get("modules")) or spans) if own or not said else [])
    settings = data.get("allocator_settings")
    lost = int((~usable).sum()) + misfits
    return History(
        source=source,
        device="cpu" if drawn and device == len(data["device_traces"]) - 1 else f"cuda:{device}",
        time=_rising(time[usable]),
        action=action[usable],
        address=address[usable],
        size=np.maximum(size[usable], 0),
        site=np.array([stacks.code(e.get("frames"), e.get("category")) for e in events], np.int64)[usable],
        blocks=blocks,
        layout=not drawn,
        segments=Segments()
        if drawn
        else Segments(
            address=_column(segments, "address"),
            size=np.maximum(_column(segments, "total_size"), 0),
            expandable=np.array([bool(s.get("is_expandable")) for s in segments], np.int64),
            private=np.array([tuple(_pair(s.get("segment_pool_id"))) != (0, 0) for s in segments], np.int64),
        ),
        sites=tuple(stacks.sites),
        rank=_number(said["rank"]) if _number(said.get("rank", -1)) >= 0 else None,
        named=_named(said.get("named")) if own else (),
        step_ends=_step_ends(said.get("step_ends")) or ends,
        modules=modules,
        module_at=module_at,
        settings=settings if isinstance(settings, Mapping) else {},
        health=health + (_health(lost) if lost else ()),
    )


def _blocks(segments: Sequence[Mapping[str, Any]], stacks: _Stacks) -> tuple[Blocks, int]:
    """What is in use, and the number of blocks that cannot be read."""
    rows: list[tuple[int, int, int, int]] = []
    lost = 0
    for segment in segments:
        blocks, broken = _dicts(segment.get("blocks"))
        sizes = [_number(b.get("size")) for b in blocks]
        places = [_number(segment.get("address")) + n for n in accumulate([max(s, 0) for s in sizes], initial=0)]
        lost += broken
        for block, size, place in zip(blocks, sizes, places[:-1], strict=True):
            state = str(block.get("state"))
            if state.startswith("active"):
                at = _number(block["address"]) if "address" in block else place
                lost += size < 0 or at < 0
                rows.append((at, size, state != "active_allocated", stacks.code(_frames(block) or None)))  # empty: not recorded
    table = np.array([r for r in rows if r[0] >= 0 and r[1] >= 0], np.int64).reshape(-1, 4)
    return Blocks(address=table[:, 0], size=table[:, 1], awaiting=table[:, 2], site=table[:, 3]), lost


def _frames(block: Mapping[str, Any]) -> Any:
    """The stack of a block; older ones keep it in a list of what the block was used for."""
    past = block.get("history")
    if block.get("frames") or not (isinstance(past, list) and past and isinstance(past[0], Mapping)):
        return block.get("frames")
    return past[0].get("frames")


class _Stacks:
    """Stacks seen so far as codes. Writers share stacks and frames between events: each object is looked at once."""

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self._by_value: dict[tuple[tuple[Frame, ...], str], int] = {}
        self._by_object: dict[tuple[int, str], int] = {}
        self._frames: dict[int, Frame] = {}

    def code(self, frames: Any, category: Any = None) -> int:
        """The code of a list of frames; -1 where nothing was recorded (an empty stack is a stack: a thread without Python)."""
        if not isinstance(frames, (list, tuple)):
            return -1
        part = _PARTS.get(category, "") if isinstance(category, str) else ""
        found = self._by_object.get((id(frames), part))
        if found is None:
            value = tuple([self._frame(f) for f in frames[:_DEPTH] if isinstance(f, Mapping)])
            found = self._by_value.setdefault((value, part), len(self._by_value))
            if found == len(self.sites):
                self.sites.append(Site(value, part=part))
            self._by_object[id(frames), part] = found
        return found

    def _frame(self, frame: Mapping[str, Any]) -> Frame:
        made = self._frames.get(id(frame))
        if made is None:
            file, name, line = str(frame.get("filename", "")), str(frame.get("name", "")), max(0, _number(frame.get("line", 0)))
            said = _IN_NAME.match(name) if file in ("", "none") else None  # a profiler's frame: all in the name
            made = Frame(said[1], said[3], int(said[2])) if said else Frame(file, name, line)
            self._frames[id(frame)] = made
        return made


# ---- values that may be anything ----


def _dicts(value: Any) -> tuple[list[Mapping[str, Any]], int]:
    """The mappings of a list, and how many of its items are none."""
    if not isinstance(value, (list, tuple)):
        return [], int(value is not None)
    found = [v for v in value if isinstance(v, Mapping)]
    return found, len(value) - len(found)


def _number(value: Any) -> int:
    """A whole number of up to 62 bits, else -1."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LIMIT else -1


def _column(rows: Sequence[Mapping[str, Any]], key: str) -> Ints:
    limit = _LIMIT // 1000 if key == "time_us" else _LIMIT
    return np.array([v if v.__class__ is int and 0 <= v < limit else -1 for v in (r.get(key) for r in rows)], np.int64)


def _pair(value: Any) -> tuple[int, ...]:
    return tuple(map(_number, value)) if isinstance(value, (list, tuple)) else (0, 0)


def _rising(time: Ints) -> Ints:
    """Time stamps that never fall: events are in order, so one that is earlier than the one before it is not believed."""
    return np.maximum.accumulate(time) if len(time) and (time >= 0).any() else time


def _tuples(value: Any, num: int) -> list[Sequence[Any]]:
    """The lists of `num` values in a list."""
    rows = value if isinstance(value, (list, tuple)) else ()
    return [r for r in rows if isinstance(r, (list, tuple)) and len(r) == num]


def _named(value: Any) -> tuple[Named, ...]:
    made = [Named(_number(address), _number(size), str(part)) for address, size, part in _tuples(value, 3)]
    return tuple(n for n in made if n.address > 0 and n.size > 0 and n.part.partition(".")[0] in KINDS)


def _step_ends(value: Any) -> dict[int, int]:
    pairs = [(_number(step), _number(ns)) for step, ns in _tuples(value, 2)]
    return {step: ns for step, ns in pairs if step >= 0 and ns > 0}


Span = tuple[int, int, str]  # start and end in nanoseconds, module


def _spans(value: Any) -> list[Span]:
    made = [(_number(start), _number(end), str(module)) for start, end, module in _tuples(value, 3)]
    return [s for s in made if 0 < s[0] <= s[1]]


def _annotated(value: Any) -> tuple[dict[int, int], list[Span]]:
    """Ends of steps, and modules, that the program marked with record_function while it recorded annotations too."""
    ends: dict[int, int] = {}
    spans: list[Span] = []
    opened: dict[str, list[int]] = {}
    for row in _dicts(value)[0]:
        name, at = str(row.get("name")), _number(row.get("time_us")) * 1000
        if not 0 < at < _LIMIT:
            continue
        if str(row.get("stage")).upper() != "END":
            opened.setdefault(name, []).append(at)
            continue
        if marks.step(name) >= 0:
            ends[marks.step(name)] = at
        if marks.module(name) and opened.get(name):
            spans.append((opened[name].pop(), at, marks.module(name)))
    return ends, spans


def _modules(spans: Sequence[Span]) -> tuple[tuple[str, ...], Steps]:
    names = tuple(dict.fromkeys(name for _, _, name in spans))
    code = {name: i for i, name in enumerate(names)}
    rows = np.array([(start, end, code[name]) for start, end, name in spans], np.int64).reshape(-1, 3)
    return names, innermost(rows[:, 0], rows[:, 1], rows[:, 2]) if names else NEVER


def _health(count: int) -> tuple[Health, ...]:
    text = "events and blocks of the snapshot that cannot be read are left out"
    return (Health(what="unreadable_events", count=count, affects="memory", text=text),) if count else ()
