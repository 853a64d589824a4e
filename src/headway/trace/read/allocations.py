"""Memory events of a Kineto trace: instants named [memory] that a profiler writes with profile_memory=True.

They are few among many, so they are cut out of the text by their name and decoded by themselves; a file without them costs one search.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct, field

from headway.trace.memory.history import Allocations
from headway.trace.read.kineto_json import Inexact, nanoseconds
from headway.trace.sweep import Ints

_NAME: Final = b'"[memory]"'
_REACH: Final = 4096  # bytes before the name within which its event begins
_LIMIT: Final = 1 << 62
_DEVICES: Final = {0: "cpu", 1: "cuda", 6: "cuda", 12: "xpu", 17: "mtia"}  # c10::DeviceType, with HIP as torch calls it; else its number


class _Args(Struct, gc=False):
    address: Any = field(default=None, name="Addr")
    size: Any = field(default=None, name="Bytes")
    allocated: Any = field(default=None, name="Total Allocated")
    reserved: Any = field(default=None, name="Total Reserved")
    kind: Any = field(default=None, name="Device Type")
    index: Any = field(default=None, name="Device Id")


class _Event(Struct, gc=False):
    args: _Args
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None


def allocations(data: bytes, base_ns: Any = 0) -> Allocations | None:
    """The memory events in the text of a trace whose stamps count from `base_ns`; None where there are none. Broken ones are left out."""
    pieces = list(_pieces(data))
    events = _events(pieces, None)
    try:
        time, usable = nanoseconds([e.ts for e in events])
    except Inexact:
        events = _events(pieces, Decimal)
        time, usable = nanoseconds([e.ts for e in events])
    base = base_ns if isinstance(base_ns, int) and abs(base_ns) < 1 << 61 else 0
    order = np.flatnonzero(usable)
    order = order[np.argsort(time[order], kind="stable")]
    events = [events[i] for i in order.tolist()]
    if not events:
        return None
    devices: dict[str, int] = {}
    tracks: dict[tuple[str, str], int] = {}
    return Allocations(
        time=time[order] + base,
        device=np.array([devices.setdefault(_device(e.args), len(devices)) for e in events], np.int64),
        track=np.array([tracks.setdefault((str(e.pid), str(e.tid)), len(tracks)) for e in events], np.int64),
        address=_column([e.args.address for e in events]),
        size=np.array([_whole(e.args.size) for e in events], np.int64),
        allocated=_column([e.args.allocated for e in events]),
        reserved=_column([e.args.reserved for e in events]),
        devices=tuple(devices),
        tracks=tuple(tracks),
    )


def _events(pieces: list[bytes], fraction: Any) -> list[_Event]:
    """The events in `pieces` that give or take bytes; fractions are floats, or what `fraction` makes of them."""
    decoder = msgspec.json.Decoder(list[_Event], float_hook=fraction)
    try:
        found = decoder.decode(b"[" + b",".join(pieces) + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, ArithmeticError):
        found = [e for piece in pieces for e in _one(decoder, piece)]
    return [e for e in found if e.name == "[memory]" and _whole(e.args.size)]


def _one(decoder: msgspec.json.Decoder[list[_Event]], piece: bytes) -> list[_Event]:
    try:
        return decoder.decode(b"[" + piece + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, ArithmeticError):
        return []


def _pieces(data: bytes) -> Iterator[bytes]:
    """The object around each name: from the brace before it to the one that closes it; only its arguments nest, before or after."""
    at = data.find(_NAME)
    while at >= 0:
        begin = data.rfind(b"{", max(0, at - _REACH), at)
        if data.rfind(b"}", begin, at) > begin >= 0:  # the arguments came first: theirs is the nearer brace
            begin = data.rfind(b"{", max(0, begin - _REACH), begin)
            end = data.find(b"}", at)
        else:
            end = data.find(b"}", data.find(b"}", at) + 1)
        if begin >= 0 and end > at and end - begin < 2 * _REACH:
            yield data[begin : end + 1]
        at = data.find(_NAME, at + len(_NAME))


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LIMIT else None


def _column(values: list[Any]) -> Ints:
    return np.array([v if v.__class__ is int and 0 <= v < _LIMIT else -1 for v in values], np.int64)


def _device(args: _Args) -> str:
    kind, index = _whole(args.kind), _whole(args.index)
    name = _DEVICES.get(-1 if kind is None else kind, f"device{kind}")
    return name if name == "cpu" or index is None or index < 0 else f"{name}:{index}"
