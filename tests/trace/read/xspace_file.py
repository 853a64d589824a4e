"""XSpaces written by hand: the wire format of protocol buffers, and the messages of a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.trace.drawing import events

Spec = tuple[str, int, int, Mapping[str, Any]]  # name, begin and length in picoseconds, stats


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def put(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def plane(
    name: str, lines: Mapping[str, Sequence[Spec]], *, told: Mapping[str, Mapping[str, Any]] | None = None, base_ns: int = 0
) -> bytes:
    """A plane; `told`: stats of the metadata of an event's name."""
    names: dict[str, int] = {}
    stats: dict[str, int] = {}

    def stat(key: str, value: Any) -> bytes:
        return put(1, stats.setdefault(key, len(stats) + 1)) + put(4 if isinstance(value, int) else 5, value)

    body = b""
    for i, (line, specs) in enumerate(lines.items()):
        made = put(1, i + 1) + put(2, line) + put(3, base_ns)
        for called, begin, length, given in specs:
            event = put(1, names.setdefault(called, len(names) + 1)) + put(2, begin) + put(3, length)
            made += put(4, event + b"".join(put(4, stat(k, v)) for k, v in given.items()))
        body += put(3, made)
    for called, number in names.items():
        meta = put(1, number) + put(2, called) + b"".join(put(5, stat(k, v)) for k, v in (told or {}).get(called, {}).items())
        body += put(4, put(1, number) + put(2, meta))
    for key, number in stats.items():
        body += put(5, put(1, number) + put(2, put(1, number) + put(2, key)))
    return put(1, 7) + put(2, name) + body


def space(*planes: bytes, host: str = "worker-0") -> bytes:
    return b"".join(put(1, p) for p in planes) + put(4, host)


def drawn(drawing: str) -> bytes:
    """The events of a drawing as JAX would profile them on GPUs."""
    host: dict[str, list[Spec]] = {}
    devices: dict[int, dict[str, list[Spec]]] = {}
    for e in events(drawing):
        args = e["args"]
        spec = (e["name"], round(e["ts"] * 10**6), round(e["dur"] * 10**6))
        link = {"correlation_id": args["correlation"]} if "correlation" in args else {}
        if "device" in args:
            devices.setdefault(args["device"], {}).setdefault(f"Stream #{args['stream']}(Compute)", []).append((*spec, link))
        elif e["name"].startswith("ProfilerStep#"):
            host.setdefault(e["tid"], []).append(("train", *spec[1:], {"step_num": int(e["name"].partition("#")[2])}))
        else:
            host.setdefault(e["tid"], []).append((*spec, link))
    return space(plane("/host:CPU", host), *(plane(f"/device:GPU:{d}", lines) for d, lines in devices.items()))
