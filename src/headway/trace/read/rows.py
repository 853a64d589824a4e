"""Events of a Kineto trace as columns: added list by list, put together into a `Table` at the end."""

from __future__ import annotations

import json
from itertools import compress, repeat
from operator import attrgetter, is_, is_not
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.breakdown import Health
from headway.trace.classify import is_copy
from headway.trace.marks import is_mark
from headway.trace.memory.history import Allocations
from headway.trace.read.allocations import Instants
from headway.trace.read.columns import Codes, as_whole, coded, whole
from headway.trace.read.kineto_json import NO_RAW, Begin, End, Instant, Span, nanoseconds
from headway.trace.read.pairs import paired
from headway.trace.read.said import said
from headway.trace.read.spans import FAR_NS
from headway.trace.sweep import Ints
from headway.trace.table import DEVICE_WORK, ON_DEVICE, Collective, Kind, Shape

_KINDS: Final = {
    **dict.fromkeys(("kernel", "concurrent_kernel", "mtia_ccp_events"), Kind.KERNEL),
    **dict.fromkeys(("gpu_memcpy", "memcpy"), Kind.MEMCPY),
    **dict.fromkeys(("gpu_memset", "memset"), Kind.MEMSET),
    "gpu_user_annotation": Kind.DEVICE_MARK,
    **dict.fromkeys(("cuda_sync", "xpu_sync"), Kind.SYNC),
    "runtime": Kind.RUNTIME,
    **{
        f"{maker}_{side}": Kind.RUNTIME for maker in ("cuda", "hip", "xpu", "mtia", "privateuse1", "glow") for side in ("runtime", "driver")
    },
    **dict.fromkeys(("operator", "cpu_op"), Kind.OPERATOR),
    "user_annotation": Kind.MARK,
    "python_function": Kind.PYTHON,
}
_MAKERS: Final = ("xpu", "mtia", "privateuse1")  # whose devices torch calls by their own names; AMD's it calls cuda
_DAY_NS: Final = 86_400 * 10**9
_DRAWN: Final = {"trace", "overhead", "cuda_profiler_range", "cuda_event", "mtia_insight", "gpu_pm_counter"}  # known, and no span of work
_IS_PLACED: Final = np.isin(np.arange(len(Kind)), ON_DEVICE)  # of each kind
_ISSUES: Final = ("c10d::", "gloo:", "_c10d_functional::", "nccl:", "xccl:", "hccl:")  # names of collectives on the host
_ARGS: Final = {key: attrgetter(key) for key in ("device", "stream", "correlation", "sequence", "forward")}
_TS, _DUR, _CAT, _NAME, _ARGUMENTS = (attrgetter(key) for key in ("ts", "dur", "cat", "name", "args"))
_DIMS, _COLLECTIVE, _DIRECTION = attrgetter("dims"), attrgetter("collective"), attrgetter("direction")
_TRACK: Final = attrgetter("pid", "tid")


class Rows:
    """Columns of the spans so far. What is equal (names, categories, shapes) is kept once, under a code."""

    def __init__(self) -> None:
        self.count = 0  # of spans
        self._parts: dict[str, list[Any]] = {}
        self._ends: list[tuple[Ints, Ints, Ints]] = []  # of begin/end pairs: place among all events, track, time
        self._place = 0
        self._categories, self._names, self._tracks, self._shapes = Codes(), Codes(), Codes(), Codes()
        self._kinds: list[Kind] = []  # of each category
        self._issues: list[bool] = []  # of each name
        self._collectives: dict[int, Collective] = {}
        self._different: dict[Collective, Collective] = {}
        self._instants = Instants()

    def add(self, events: list[Any]) -> None:
        """Take the spans and the memory events among `events`. Raises Inexact, and then has taken none."""
        types = list(map(type, events))
        present = set(types)
        spans = _only(events, types, Span) if Begin not in present else [e for e in events if isinstance(e, Span)]
        start, usable = nanoseconds(list(map(_TS, spans)))
        durations = list(map(_DUR, spans))
        length, known = nanoseconds([0 if d is None else d for d in durations] if durations.count(None) else durations)
        ends = [i for i, t in enumerate(types) if t is End] if End in present else []
        closed, sure = nanoseconds([events[i].ts for i in ends])
        self._instants.add(_only(events, types, Instant) if Instant in present else [])
        if ends:
            rows = np.flatnonzero(sure)
            track = coded([(events[i].pid, events[i].tid) for i in ends], self._tracks)
            self._ends.append((self._place + np.array(ends, np.int64)[rows], track[rows], closed[rows]))
        args = list(map(_ARGUMENTS, spans))
        category = coded(list(map(_CAT, spans)), self._categories)
        self._kinds += [_KINDS.get(str(c).lower(), Kind.OTHER) for c in list(self._categories)[len(self._kinds) :]]
        kind = np.array([*self._kinds, 0], np.int8)[category]
        name = coded(_called(spans, args), self._names)
        self._issues += [n is not None and n.startswith(_ISSUES) for n in list(self._names)[len(self._issues) :]]
        columns: dict[str, NDArray[Any]] = {key: whole(list(map(get, args))) for key, get in _ARGS.items()}
        bare = np.flatnonzero(_IS_PLACED[kind] & (columns["device"] < 0))
        columns["device"][bare] = [_device(spans[i].pid) for i in bare.tolist()]
        bare = np.flatnonzero(_IS_PLACED[kind] & (columns["stream"] < 0))
        columns["stream"][bare] = whole([as_whole(spans[i].tid) for i in bare.tolist()])
        opens, place = np.zeros(len(spans), bool), np.zeros(len(spans), np.int64)
        if Begin in present:
            opens[:] = [type(e) is Begin for e in spans]
            place[:] = [self._place + i for i, t in enumerate(types) if t in (Span, Begin)]
        columns |= {
            "start": start, "length": length, "usable": usable & known, "category": category, "kind": kind, "name": name,
            "track": coded(list(map(_TRACK, spans)), self._tracks), "shape": self._shape(args),
            "opens": opens, "place": place,
        }  # fmt: skip
        issued = np.array([*self._issues, False], bool)[name]
        collectives = list(map(_COLLECTIVE, args))
        told = [i for i, c in enumerate(collectives) if c is not None] if collectives.count(None) < len(args) else []
        for i in sorted({*told, *np.flatnonzero(issued).tolist()}):
            found = said(spans[i])
            self._collectives[self.count + i] = self._different.setdefault(found, found)
        for key, column in columns.items():
            self._parts.setdefault(key, []).append(column)
        self.count += len(spans)
        self._place += len(events)

    def _shape(self, args: list[Any]) -> Ints:
        """Code of the recorded shapes of each span; -1 for none."""
        code = np.full(len(args), -1, np.int64)
        rows = list(compress(range(len(args)), map(is_not, map(_DIMS, args), repeat(NO_RAW))))
        code[rows] = coded([(bytes(args[i].dims), bytes(args[i].types)) for i in rows], self._shapes)
        return code

    def allocations(self, base_ns: int) -> Allocations | None:
        """What the memory events say, in time that counts from `base_ns`."""
        return self._instants.allocations(base_ns)

    def columns(self) -> tuple[dict[str, Any], list[Health]]:
        """The fields of a `Table` that are made of spans, in order of start, longest first; and what is doubtful about them."""
        found = {key: np.concatenate(parts) for key, parts in self._parts.items()}
        self._parts = {}
        alone, health = self._close(found)
        health += self._strange(found.pop("category"))
        kind, start, length, lost = found["kind"], found["start"], found["length"], ~found.pop("usable")
        stamped = start[~lost & (start != 0)]
        usual = np.median(stamped) if len(stamped) else 0
        blank = np.isin(kind, DEVICE_WORK) & (start == 0) & (usual > _DAY_NS)
        far = ~lost & ~blank & ~alone & ((np.abs(start - usual) > FAR_NS) | (~_IS_PLACED[kind] & (length > FAR_NS)))
        for what, rows, text in (
            ("unusable_time", lost, "spans whose time stamp is missing or not a number are left out"),
            ("blank_time", blank, "device spans with time stamp 0 are left out"),
            ("far_time", far, "spans ten days and more away from the others, or as long, are left out"),
            ("unfinished", (length < 0) & ~lost & ~alone, "spans with a negative duration count as empty"),
        ):
            if rows.any():
                health.append(Health(what=what, count=int(rows.sum()), affects="counts of kernels, compute and idle", text=text))
        end = start + np.maximum(found.pop("length"), 0)
        keep = np.flatnonzero(~lost & ~blank & ~far & ~alone)
        order = keep[np.lexsort((-end[keep], start[keep]))]
        out: dict[str, Any] = {"end": end[order], "place": order}
        for key in list(found):
            out[key] = found.pop(key)[order]
        kind = out["kind"]
        marked, copies = (np.array([test(str(n)) for n in self._names], bool)[out["name"]] for test in (is_mark, is_copy))
        kind = np.where((kind == Kind.OPERATOR) & marked, Kind.MARK, kind)
        out["kind"] = np.where((kind == Kind.KERNEL) & copies, Kind.MEMCPY, kind).astype(np.int8)
        out["shape"] = np.where(out["kind"] == Kind.OPERATOR, out["shape"], -1)
        out["device"] = np.where(_IS_PLACED[kind], out["device"], -1)
        said = {str(c).lower().partition("_")[0] for c in self._categories}
        out["maker"] = next((m for m in _MAKERS if m in said), "cuda")
        out["names"] = tuple(map(str, self._names))
        tracks = Codes()
        out["track"] = coded([(str(pid), str(tid)) for pid, tid in self._tracks], tracks)[out["track"]]
        out["tracks"] = tuple(tracks)
        out["shapes"] = tuple(_shape(*text) for text in self._shapes)
        place = np.full(self.count, -1, np.int64)
        place[order] = np.arange(len(order))
        out["collectives"] = {int(place[i]): c for i, c in self._collectives.items() if place[i] >= 0}
        return out, health

    def _close(self, found: dict[str, Any]) -> tuple[NDArray[np.bool_], list[Health]]:
        """Give the begins among the spans the length up to their ends; which begins have none, and how many events have no partner."""
        opens, place = np.flatnonzero(found.pop("opens")), found.pop("place")
        alone = np.zeros(self.count, bool)
        if not len(opens) and not self._ends:
            return alone, []
        ends = [np.concatenate(column) for column in zip(*self._ends, strict=True)] if self._ends else [np.zeros(0, np.int64)] * 3
        begins = (place[opens], found["track"][opens], found["start"][opens])
        close, count = paired(begins, (ends[0], ends[1], ends[2]))
        found["length"][opens] = close - begins[2]
        alone[opens] = close < 0
        text = "begins without an end, and ends without a begin, are left out"
        return alone, [Health(what="begin_end_events", count=count, affects="spans of the host", text=text)] if count else []

    def _strange(self, category: Ints) -> list[Health]:
        counts = np.bincount(category, minlength=len(self._categories))
        unknown = [k is Kind.OTHER and str(c).lower() not in _DRAWN for c, k in zip(self._categories, self._kinds, strict=True)]
        rows = {str(c): int(n) for c, n, odd in zip(self._categories, counts, unknown, strict=True) if odd}
        text = f"spans of unknown categories are left out: {', '.join(sorted(rows))}"
        return [Health(what="unknown_category", count=sum(rows.values()), text=text)] if rows else []


def _only(events: list[Any], types: list[type], wanted: type) -> list[Any]:
    """The events of one type."""
    return list(compress(events, map(is_, types, repeat(wanted))))


def _called(spans: list[Span], args: list[Any]) -> list[str | None]:
    """The name of each span, with the way of a copy where the arguments say it."""
    names = list(map(_NAME, spans))
    ways = list(map(_DIRECTION, args))
    if ways.count(None) < len(ways):
        names = [f"{n} {way}" if isinstance(way, str) else n for n, way in zip(names, ways, strict=True)]
    return names


def _shape(dims: bytes, types: bytes) -> Shape:
    """A recorded text as a shape; an empty one if it is no list."""
    try:
        shape, kinds = json.loads(dims), json.loads(types)
    except (ValueError, RecursionError):
        return Shape((), ())
    return Shape(tuple(shape), tuple(map(str, kinds))) if isinstance(shape, list) and isinstance(kinds, list) else Shape((), ())


def _device(pid: Any) -> int:
    """A device row without a device argument: its process id is the device's number."""
    number = as_whole(str(pid))
    return number if 0 <= number < 1024 else 0
