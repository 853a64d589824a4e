"""Events of a Kineto trace as columns: added piece by piece, put together into a `Table` at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from headway.spec.breakdown import Health
from headway.trace.classify import collective
from headway.trace.marks import is_mark
from headway.trace.read.kineto_json import NO_RAW, Event, nanoseconds
from headway.trace.sweep import Ints
from headway.trace.table import Collective, Kind, Shape

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
_PLACED = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.SYNC, Kind.DEVICE_MARK)
_ISSUES = ("c10d::", "gloo:", "_c10d_functional::", "nccl:", "xccl:", "hccl:")  # names of collectives on the host
_SIZES = {"double": 8, "long": 8, "int": 4, "float": 4, "half": 2, "bfloat16": 2, "short": 2, "byte": 1, "char": 1, "bool": 1}
_SIZES |= {"float64": 8, "int64": 8, "int32": 4, "float32": 4, "float16": 2, "int16": 2, "int8": 1, "uint8": 1, "complexfloat": 8}
_ARGS = ("device", "stream", "correlation", "sequence", "forward")


class Rows:
    """Columns of the spans so far. What is equal (names, categories, shapes) is kept once, under a code."""

    def __init__(self) -> None:
        self.count, self.unpaired = 0, 0  # spans; begin and end events
        self._parts: dict[str, list[Any]] = {}
        self._categories: dict[Any, int] = {}
        self._kinds: list[Kind] = []
        self._names: dict[Any, int] = {}
        self._issues: list[bool] = []  # of each name
        self._tracks: dict[tuple[Any, Any], int] = {}
        self._shapes: dict[tuple[bytes, bytes], int] = {}
        self._collectives: dict[int, Collective] = {}

    def add(self, events: list[Event]) -> None:
        """Take the spans among `events`. Raises Inexact, and then has taken none."""
        phases = [e.ph for e in events]
        spans = events if phases.count("X") == len(events) else [e for e, ph in zip(events, phases, strict=True) if ph == "X"]
        start, usable = nanoseconds([e.ts for e in spans])
        length, known = nanoseconds([0 if e.dur is None else e.dur for e in spans])
        self.unpaired += phases.count("B") + phases.count("E")
        args = [e.args for e in spans]
        category = _coded([e.cat for e in spans], self._categories)
        self._kinds += [_KINDS.get(str(c).lower(), Kind.OTHER) for c in list(self._categories)[len(self._kinds) :]]
        kind = np.array(self._kinds, np.int8)[category] if len(spans) else np.zeros(0, np.int8)
        name = _coded([e.name for e in spans], self._names)
        self._issues += [n is not None and n.startswith(_ISSUES) for n in list(self._names)[len(self._issues) :]]
        columns: dict[str, NDArray[Any]] = {key: _whole([getattr(a, key) for a in args]) for key in _ARGS}
        bare = np.flatnonzero(np.isin(kind, _PLACED) & (columns["device"] < 0))
        columns["device"][bare] = [_device(spans[i].pid) for i in bare.tolist()]
        columns |= {
            "start": start, "length": length, "usable": usable & known, "category": category, "kind": kind, "name": name,
            "track": _coded([(e.pid, e.tid) for e in spans], self._tracks), "shape": self._shape([a.dims for a in args], spans),
        }  # fmt: skip
        issued = np.array(self._issues, bool)[name] if len(spans) else np.zeros(0, bool)
        said = [i for i, a in enumerate(args) if a.collective is not None]
        for i in sorted({*said, *np.flatnonzero(issued).tolist()}):
            self._collectives[self.count + i] = _collective(spans[i])
        for key, column in columns.items():
            self._parts.setdefault(key, []).append(column)
        self.count += len(spans)

    def _shape(self, dims: list[Any], spans: list[Event]) -> Ints:
        """Code of the recorded shapes of each span; -1 for none."""
        code = np.full(len(dims), -1, np.int64)
        for i in [i for i, d in enumerate(dims) if d is not NO_RAW]:
            code[i] = self._shapes.setdefault((bytes(dims[i]), bytes(spans[i].args.types)), len(self._shapes))
        return code

    def columns(self) -> tuple[dict[str, Any], list[Health]]:
        """The fields of a `Table` that are made of spans, in order of start, longest first; and what is doubtful about them."""
        found = {key: np.concatenate(parts) for key, parts in self._parts.items()}
        self._parts = {}
        kind, start, length, lost = found["kind"], found["start"], found["length"], ~found.pop("usable")
        health = self._strange(found.pop("category"))
        device_work = np.isin(kind, (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET))
        blank = device_work & (start == 0) & (np.median(start) > 86_400 * 10**9)
        for what, rows, text in (
            ("unusable_time", lost, "spans whose time stamp is missing or not a number are left out"),
            ("blank_time", blank, "device spans with time stamp 0 are left out"),
            ("unfinished", (length < 0) & ~lost, "spans with a negative duration count as empty"),
        ):
            if rows.any():
                health.append(Health(what=what, count=int(rows.sum()), text=text))
        end = start + np.maximum(found.pop("length"), 0)
        keep = np.flatnonzero(~lost & ~blank)
        order = keep[np.lexsort((-end[keep], start[keep]))]
        out: dict[str, Any] = {"end": end[order]}
        for key in list(found):
            out[key] = found.pop(key)[order]
        kind = out["kind"]
        marked = np.array([is_mark(str(n)) for n in self._names], bool)[out["name"]]
        out["kind"] = np.where((kind == Kind.OPERATOR) & marked, Kind.MARK, kind).astype(np.int8)
        out["shape"] = np.where(out["kind"] == Kind.OPERATOR, out["shape"], -1)
        out["device"] = np.where(np.isin(kind, _PLACED), out["device"], -1)
        out["names"] = tuple(map(str, self._names))
        tracks: dict[tuple[str, str], int] = {}
        codes = [tracks.setdefault((str(pid), str(tid)), len(tracks)) for pid, tid in self._tracks]
        out["track"] = np.array(codes, np.int64)[out["track"]]
        out["tracks"] = tuple(tracks)
        out["shapes"] = tuple(_shape(*text) for text in self._shapes)
        place = np.full(self.count, -1, np.int64)
        place[order] = np.arange(len(order))
        out["collectives"] = {int(place[i]): c for i, c in self._collectives.items() if place[i] >= 0}
        return out, health

    def _strange(self, category: Ints) -> list[Health]:
        counts = np.bincount(category, minlength=len(self._categories))
        unknown = [k is Kind.OTHER and str(c).lower() not in _DRAWN for c, k in zip(self._categories, self._kinds, strict=True)]
        rows = {str(c): int(n) for c, n, odd in zip(self._categories, counts, unknown, strict=True) if odd}
        text = f"spans of unknown categories are left out: {', '.join(sorted(rows))}"
        return [Health(what="unknown_category", count=sum(rows.values()), text=text)] if rows else []


def _coded(values: list[Any], codes: dict[Any, int]) -> Ints:
    """Codes of `values`; `codes` grows by those that are new."""
    for value in dict.fromkeys(values):
        codes.setdefault(value, len(codes))
    return np.array([codes[v] for v in values], np.int64)


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


def _collective(event: Event) -> Collective:
    """What a span says of its collective: in its arguments, or (a host operator) by its name and shapes."""
    args = event.args
    if args.collective is None:
        return Collective(name=collective(str(event.name)), bytes=_shaped(bytes(args.dims), bytes(args.types)))
    size = args.size if isinstance(args.size, int) else None
    return Collective(
        name=collective(str(args.collective)),
        group=None if args.group is None else str(args.group),
        text="" if args.text in (None, "undefined") else str(args.text),
        ranks=_members(args.ranks, size),
        size=size,
        bytes=_message(args.sent, args.received, args.dtype),
        number=_counted(args.number),
        peer=_counted(args.from_rank if args.to_rank is None else args.to_rank),
    )


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
