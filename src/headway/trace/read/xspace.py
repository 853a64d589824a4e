"""The messages of an XSpace (*.xplane.pb, what the profilers of JAX, TensorFlow and PyTorch/XLA write), decoded.

    XSpace: planes=1, hostnames=4     XPlane: id=1 name=2 lines=3 event_metadata=4 stat_metadata=5 stats=6
    XLine: id=1 name=2 timestamp_ns=3 events=4 display_id=10 display_name=11
    XEvent: metadata_id=1 offset_ps=2 duration_ps=3 stats=4 num_occurrences=5
    XStat: metadata_id=1 double=2 uint64=3 int64=4 str=5 bytes=6 ref=7     metadata: id=1 name=2 display_name=4 stats=5

Times: begin = timestamp_ns + offset_ps // 1000, end = timestamp_ns + (offset_ps + duration_ps) // 1000, both rounded down from
picoseconds, so spans that touch or nest still do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headway.trace.read.protobuf import Fields, Loss, fields, signed

WANTED: Final = frozenset(
    ("correlation_id", "run_id", "device_ordinal", "step_num", "step_name", "group_id", "hlo_op", "hlo_category", "tf_op", "hlo_module")
)  # stats that are used; the others are not decoded

_MOST_NS: Final = 1 << 62


@dataclass(frozen=True)
class Named:
    """What an event's metadata says."""

    name: str
    display: str
    stats: Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    """One event of a line; times are integer nanoseconds."""

    start: int
    end: int
    named: Named
    stats: Mapping[str, Any]


@dataclass
class Line:
    """A line of a plane: a stream, a thread, or a view made from others. `lost`: events without a time that can be, or cut."""

    identity: int
    name: str
    events: list[Event] = field(default_factory=list)
    lost: int = 0


@dataclass(frozen=True)
class Plane:
    """A device, a host, or what the profiler says about itself."""

    name: str
    lines: tuple[Line, ...]


def planes(data: bytes, loss: Loss) -> Iterator[tuple[Plane, str]]:
    """(each plane, the name of the machine or ''). Planes without a name are none."""
    space = fields(data, loss)
    host = next((_text(value) for number, value in space if number == 4), "")
    for number, value in space:
        if number == 1 and isinstance(value, bytes) and (plane := _plane(value, loss)).name:
            yield plane, host


def _plane(data: bytes, loss: Loss) -> Plane:
    rows = fields(data, loss)
    stat_names = {key: _text(_one(meta, 2)) for key, meta in _map(rows, 5, loss)}
    wanted = {key for key, name in stat_names.items() if name in WANTED}
    told = {
        key: Named(_text(_one(meta, 2)), _text(_one(meta, 4)), _stats(meta, 5, wanted, stat_names, loss))
        for key, meta in _map(rows, 4, loss)
    }
    lines = tuple(_line(value, told, wanted, stat_names, loss) for number, value in rows if number == 3 and isinstance(value, bytes))
    return Plane(_text(_one(rows, 2)), lines)


def _map(rows: Fields, number: int, loss: Loss) -> Iterator[tuple[int, Fields]]:
    """The entries of a map from ids to messages."""
    for found, value in rows:
        if found == number and isinstance(value, bytes):
            entry = fields(value, loss)
            key, message = _one(entry, 1), _one(entry, 2)
            yield (key if isinstance(key, int) else 0), fields(message, loss) if isinstance(message, bytes) else []


def _line(data: bytes, told: Mapping[int, Named], wanted: set[int], stat_names: Mapping[int, str], loss: Loss) -> Line:
    rows = fields(data, loss)
    base = _one(rows, 3)
    base = signed(base) if isinstance(base, int) else 0
    identity = _one(rows, 1)
    line = Line(identity if isinstance(identity, int) else 0, _text(_one(rows, 2)) or _text(_one(rows, 11)))
    unnamed = Named("", "", {})
    for number, value in rows:
        if number != 4 or not isinstance(value, bytes):
            continue
        before = loss.count
        event = fields(value, loss)
        key = offset = length = 0
        aggregated, with_stats = False, False
        for part, given in event:
            if part == 1 and isinstance(given, int):
                key = given
            elif part == 2 and isinstance(given, int):
                offset = signed(given)
            elif part == 3 and isinstance(given, int):
                length = signed(given)
            elif part == 4:
                with_stats = True
            elif part == 5:
                aggregated = True  # a sum of many, without a place in time
        stats = _stats(event, 4, wanted, stat_names, loss) if with_stats else {}
        if loss.count > before or aggregated:
            line.lost += 1
            continue
        start, end = base + offset // 1000, base + (offset + length) // 1000
        if max(abs(start), abs(end)) >= _MOST_NS:
            line.lost += 1
            continue
        line.events.append(Event(start, end, told.get(key, unnamed), stats))
    return line


def _stats(rows: Fields, number: int, wanted: set[int], stat_names: Mapping[int, str], loss: Loss) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for found, value in rows:
        if found != number or not isinstance(value, bytes):
            continue
        key = 0
        kind, given = 0, None
        for part, content in fields(value, loss):
            if part == 1 and isinstance(content, int):
                key = content
            else:
                kind, given = part, content
        if key not in wanted:
            continue
        if isinstance(given, int):
            out[stat_names[key]] = stat_names.get(given, "") if kind == 7 else signed(given) if kind == 4 else given
        elif kind in (5, 6):
            out[stat_names[key]] = _text(given)
    return out


def _one(rows: Fields, number: int) -> int | bytes | None:
    """The last value of a field that occurs once, as the format wants it."""
    found = None
    for key, value in rows:
        if key == number:
            found = value
    return found


def _text(value: int | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
