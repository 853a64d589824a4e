"""The bytes of a Kineto trace, decoded: what is read of each event, exact time stamps, and what to do with a broken file.

A sound file is decoded in one typed pass (msgspec skips what is not named here). Anything else goes through `repair`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Union

import msgspec
import numpy as np
from msgspec import Raw, Struct, defstruct, field
from numpy.typing import NDArray

from headway.trace.sweep import Ints

NO_RAW = Raw(b"")


class Args(Struct, frozen=True, gc=False):
    """The arguments of an event that are used; every other one is skipped without being built."""

    stream: Any = -1
    device: Any = -1
    correlation: Any = -1
    sequence: Any = field(default=-1, name="Sequence number")
    forward: Any = field(default=-1, name="Fwd thread id")
    dims: Raw = field(default=NO_RAW, name="Input Dims")
    types: Raw = field(default=NO_RAW, name="Input type")
    collective: Any = field(default=None, name="Collective name")
    sent: Any = field(default=None, name="In msg nelems")
    received: Any = field(default=None, name="Out msg nelems")
    dtype: Any = None
    group: Any = field(default=None, name="Process Group Name")
    text: Any = field(default=None, name="Process Group Description")
    ranks: Any = field(default=None, name="Process Group Ranks")
    size: Any = field(default=None, name="Group size")
    number: Any = field(default=None, name="Seq")
    from_rank: Any = field(default=None, name="Src Rank")
    to_rank: Any = field(default=None, name="Dst Rank")
    direction: Any = None  # of a copy whose name does not say it


class Given(Struct, frozen=True, gc=False):
    """The arguments of an instant that are used: what the event of an allocator says."""

    address: Any = field(default=-1, name="Addr")
    size: Any = field(default=0, name="Bytes")
    allocated: Any = field(default=-1, name="Total Allocated")
    reserved: Any = field(default=-1, name="Total Reserved")
    device_type: Any = field(default=1, name="Device Type")
    device_id: Any = field(default=-1, name="Device Id")


NO_ARGS, NOTHING_GIVEN = Args(), Given()
Id = int | str | float | None


class Span(Struct, gc=False, tag_field="ph", tag="X"):
    """An event with a length. Which kind of event it is, its "ph" says: each kind has a type, and what is not used is not built."""

    cat: str | None = None
    name: str | None = None
    pid: Id = None
    tid: Id = None
    ts: Any = None
    dur: Any = None
    args: Args = NO_ARGS


class Begin(Span, gc=False, tag_field="ph", tag="B"):
    """A span whose end is an event of its own."""


class End(Struct, gc=False, tag_field="ph", tag="E"):
    """The end of the span that began last on its track."""

    pid: Id = None
    tid: Id = None
    ts: Any = None


class Instant(Struct, gc=False, tag_field="ph", tag="i"):
    """A moment."""

    name: str | None = None
    pid: Id = None
    tid: Id = None
    ts: Any = None
    args: Given = NOTHING_GIVEN


_PASSED = tuple(defstruct(f"Passed{ord(ph)}", [], tag_field="ph", tag=ph, gc=False) for ph in "stfbneMCIPNODSTpFVvRca()=")
Event = Span | Begin | End | Instant
_ANY: Any = Union[Event, *_PASSED]


class File(Struct):
    """A trace file; `events` is None when it has no list of events, and so is not a trace."""

    events: list[_ANY] | None = field(default=None, name="traceEvents")
    distributed: Any = field(default=None, name="distributedInfo")
    devices: Any = field(default=None, name="deviceProperties")
    base_ns: Any = field(default=None, name="baseTimeNanoseconds")
    host: Any = field(default=None, name="host_name")


class Loss(Struct):
    """What a broken file cost: events that could not be read, whether the end is missing and how much text follows the last whole event,
    what was mended."""

    events: int = 0
    cut: bool = False
    cut_bytes: int = 0
    mended: tuple[str, ...] = ()


NOT_SOUND = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidOperation)  # what decoding a broken file raises


class Inexact(Exception):
    """Time stamps that a double cannot hold to the nanosecond."""


def decode(data: bytes) -> tuple[File, Loss]:
    """A whole file and what was lost. Raises nothing: a file that is no trace comes back without events."""
    try:
        return decode_sound(data), Loss()
    except NOT_SOUND:
        return repair(data)


_EVENTS = msgspec.json.Decoder(list[_ANY])
_EXACT_EVENTS = msgspec.json.Decoder(list[_ANY], float_hook=Decimal)


def decode_sound(data: bytes) -> File:
    """A file that must be sound. Raises one of NOT_SOUND."""
    return _strict(data, None)


def decode_events(data: bytes, *, exact: bool = False) -> list[Any]:
    """A list of events that must be sound; `exact`: fractions are decimals. Raises one of NOT_SOUND."""
    return (_EXACT_EVENTS if exact else _EVENTS).decode(data)


def decode_exact(data: bytes) -> File:
    """`decode` of a sound file with every fraction kept as a decimal (slower)."""
    try:
        return _strict(data, Decimal)
    except NOT_SOUND:
        return repair(data)[0]


def _strict(data: bytes, fraction: Any) -> File:
    if data.lstrip()[:1] == b"[":  # older exports are the bare list
        return File(events=msgspec.json.Decoder(list[_ANY], float_hook=fraction).decode(data))
    return msgspec.json.Decoder(File, float_hook=fraction).decode(data)


# ---- time ----

_LIMIT_NS = 1 << 61  # start + base + duration stay below 2**63


def nanoseconds(values: Sequence[Any]) -> tuple[Ints, NDArray[np.bool_]]:
    """Microseconds as decoded -> integer nanoseconds, and which values are usable. Raises Inexact.

    A double x < 2**43 lies within 2**-11 us = 0.49 ns of its decimal, and x - floor(x) is exact, so rounding the fraction to whole
    nanoseconds gives back the text. Above that (absolute stamps with fractions, 1.7e15 us) it does not.
    """
    try:
        array = np.array(values) if len(values) else np.zeros(0)
    except (ValueError, OverflowError):
        array = np.zeros(0, object)
    if array.ndim != 1:  # lists of one length
        array = np.zeros(0, object)
    if array.dtype.kind == "i" and (abs(array) < _LIMIT_NS // 1000).all():
        return array.astype(np.int64) * 1000, np.ones(len(array), bool)
    if array.dtype.kind == "f" and not np.isnan(array).any():
        if (abs(array) >= 1 << 43).any():
            raise Inexact
        whole = np.floor(array)
        return whole.astype(np.int64) * 1000 + np.rint((array - whole) * 1000).astype(np.int64), np.ones(len(array), bool)
    exact = [_exact(v) for v in values]
    usable = np.array([v is not None for v in exact], bool)
    return np.array([v or 0 for v in exact], np.int64), usable


def _exact(value: Any) -> int | None:
    if isinstance(value, (bool, type(None), list, dict)):
        return None
    if isinstance(value, float) and abs(value) >= 1 << 43:
        raise Inexact
    try:
        number = Decimal(str(value)) * 1000
        return round(number) if abs(number) < _LIMIT_NS else None
    except (InvalidOperation, ValueError, OverflowError):
        return None


# ---- broken files ----

_BARE = re.compile(rb'("\s*:\s*)(?:[-+]?inf(?:inity)?|[-+]?nan|N/A|None|undefined)(?=\s*[,}\]])', re.IGNORECASE)
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_EVENT = re.compile(r'\{\s*"(?:ph|name|cat|ts|pid|tid|args|dur|s)"\s*:')
_CONTROL = bytes(max(i, 32) for i in range(256))


def repair(data: bytes) -> tuple[File, Loss]:
    """What can be read of a broken file: bare inf, nan and N/A become null, control characters spaces, a lone backslash is escaped,
    bytes that are not UTF-8 are replaced; if that does not make it whole, each event is read by itself."""
    mended = []
    clean = data.translate(_CONTROL)
    if re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", data):
        mended.append("control characters")
    text = clean.decode("utf-8", "replace")
    if "\ufffd" in text and b"\xef\xbf\xbd" not in clean:
        mended.append("bytes that are not UTF-8")
    clean, count = _BARE.subn(rb"\1null", text.encode("utf-8", "replace"))
    if count:
        mended.append("bare inf, nan or N/A")
    if b"\\" in clean:
        fixed = _ESCAPE.sub(lambda m: m[0] if len(m[0]) > 1 else rb"\\", clean)
        if fixed != clean:
            mended.append("lone backslashes")
        clean = fixed
    try:
        return _strict(clean, Decimal), Loss(mended=tuple(mended))
    except NOT_SOUND:
        return _salvage(clean.decode("utf-8", "replace"), tuple(mended))


def _salvage(text: str, mended: tuple[str, ...]) -> tuple[File, Loss]:
    """Events one by one, in a text that is cut or holds events that cannot be read."""
    begin = re.search(r'"traceEvents"\s*:\s*\[', text)
    if begin is None and not text.lstrip().startswith("["):
        return File(), Loss(mended=mended)
    position = begin.end() if begin else text.index("[") + 1
    events: list[Any] = []
    loss = Loss(mended=mended)
    end = position
    for at, found in _objects(text, position):
        if found is None:
            loss.events += 1
            continue
        event = _convert(found, _ANY)
        end = at
        if event is None:
            loss.events += 1
        else:
            events.append(event)
    tail = text[end:].strip(" \t\r\n,")
    if not tail.startswith("]"):
        loss.cut = True
        loss.cut_bytes = len(tail.encode("utf-8", "replace"))
    fields = {name: _field(text, name) for name in ("distributedInfo", "deviceProperties", "baseTimeNanoseconds", "host_name")}
    file = _convert({k: v for k, v in fields.items() if v is not None}, File) or File()
    file.events = events
    return file, loss


def _objects(text: str, position: int) -> Iterator[tuple[int, Any]]:
    """(end, object) of each event from `position`; (start, None) where one cannot be read and the next is looked for."""
    decoder = json.JSONDecoder(strict=False, parse_float=Decimal, parse_constant=lambda _: None)
    while match := _EVENT.search(text, position):
        gap = text[position : match.start()]
        if gap.strip(" \t\r\n,").startswith("]"):
            return
        try:
            found, position = decoder.raw_decode(text, match.start())
            yield position, found
        except (json.JSONDecodeError, InvalidOperation, RecursionError, ValueError):
            position = match.start() + 1
            inner = _EVENT.search(text, position)
            if inner is None:  # nothing whole follows: the tail is cut here
                return
            position = inner.start()
            yield position, None


def _field(text: str, name: str) -> Any:
    match = re.search(rf'"{name}"\s*:\s*', text)
    if match is None:
        return None
    try:
        return json.JSONDecoder(strict=False).raw_decode(text, match.end())[0]
    except (json.JSONDecodeError, RecursionError, ValueError):
        return None


def _convert(value: Any, kind: Any) -> Any:
    """`value` as `kind`, or None."""
    try:
        if kind is _ANY and isinstance(args := value.get("args"), dict):
            raw = {k: Raw(json.dumps(args[k], default=str).encode()) for k in ("Input Dims", "Input type") if k in args}
            value = {**value, "args": {**args, **raw}}
        elif kind is _ANY:
            value = {k: v for k, v in value.items() if k != "args"}
        return msgspec.convert(value, kind)
    except (msgspec.MsgspecError, TypeError, ValueError, AttributeError):
        return None
