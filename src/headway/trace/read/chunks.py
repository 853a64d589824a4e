"""Cuts the text of a Kineto trace into pieces of whole events, so that a file of any size is decoded a few megabytes at a time.

A border is a place that reads `}, {"ph"`. In a sound file only a name could contain it by chance, and then the pieces beside it cannot be
decoded: the caller takes the file as a whole. Pieces that decode are what the whole would have given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec

CHUNK_BYTES: Final = 16 << 20
_BEGIN: Final = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_BORDER: Final = re.compile(rb'\}\s*(,)\s*\{\s*"ph"')
_CLOSE: Final = re.compile(rb"\}\s*(\])")
_REACH: Final = 1 << 20  # a border is looked for within this much


@dataclass(frozen=True)
class Cut:
    """The text around the list of events, with an empty list in its place, and where each piece of the list begins and ends."""

    shell: bytes
    pieces: tuple[tuple[int, int], ...]


def cut(data: bytes, size: int = CHUNK_BYTES) -> Cut | None:
    """The pieces of `data`, each of about `size` bytes; None if it is small, or no list of events with borders can be seen."""
    begin = _BEGIN.search(data, 0, _REACH)
    if begin is None or len(data) < 2 * size:
        return None
    edges = [begin.end()]
    while (found := _BORDER.search(data, edges[-1] + size, edges[-1] + size + _REACH)) is not None:
        edges.append(found.end(1))
    end = _end(data, edges[-1])
    if end is None or len(edges) < 2:
        return None
    starts, ends = edges, [*(e - 1 for e in edges[1:]), end]  # a comma stands between two pieces
    return Cut(data[: begin.end()] + data[end:], tuple(zip(starts, ends, strict=True)))


def _end(data: bytes, last: int) -> int | None:
    """Where the list ends: at the first bracket up to which what follows the last border is a list of whole events."""
    border = max((found.end(1) for found in _BORDER.finditer(data, last)), default=last)
    for found in _CLOSE.finditer(data, border):
        try:
            msgspec.json.decode(b"[" + data[border : found.start(1)] + b"]", type=list[msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        return found.start(1)
    return None
