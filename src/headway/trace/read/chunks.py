"""Cuts the text of a Kineto trace into lists of whole events while it is read: a file of any size is decoded a few megabytes at a time.

A border is a place that reads `}, {"ph"` (or another key that an event begins with). In a sound file a string, or a list inside the
arguments of an event, could read so too: then the lists beside it cannot be decoded, and the caller takes the file as a whole. Lists that
decode are what the whole would have given.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

_BEGIN: Final = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_BORDER: Final = re.compile(rb'\}\s*(,)\s*\{\s*"(?:ph|name|cat|pid|tid|ts)"')
_CLOSE: Final = re.compile(rb"\}\s*(\])")
_REACH: Final = 1 << 20  # the list of events begins within this much
_NEAR: Final = 1 << 16  # of the end of a block, where its last border is looked for first


class Uncut(Exception):
    """No list of events, or not where it ends, can be seen in the text."""


class Lists:
    """The lists of events in `blocks` of text, one after another; then `shell` is the text around them, an empty list in their place."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self.shell = b""

    def __iter__(self) -> Iterator[bytes]:
        """Raises Uncut, and what the blocks raise."""
        text = b""
        while (begin := _BEGIN.search(text)) is None:
            block = next(self._blocks, None)
            if block is None or len(text) > _REACH:
                raise Uncut
            text += block
        head, rest = text[: begin.end()], text[begin.end() :]
        for block in self._blocks:
            border = _last_border(block)
            if border < 0:
                rest += block
                continue
            yield b"".join((b"[", rest, block[:border], b"]"))
            rest = block[border + 1 :]
        end = _end(rest)
        if end is None:
            raise Uncut
        yield b"[" + rest[:end] + b"]"
        self.shell = head + rest[end:]


def _last_border(text: bytes) -> int:
    """Where the comma of the last border is; -1 if there is none."""
    for reach in (_NEAR, len(text)):
        at = max((found.start(1) for found in _BORDER.finditer(text, max(0, len(text) - reach))), default=-1)
        if at > 0:
            return at
    return -1


def _end(text: bytes) -> int | None:
    """Where the list ends: at the first bracket up to which what follows the border before it is a list of whole events."""
    borders = [0, *(found.end(1) for found in _BORDER.finditer(text))]
    for found in _CLOSE.finditer(text):
        end = found.start(1)
        begin = borders[bisect_right(borders, end) - 1]
        try:
            msgspec.json.decode(b"[" + text[begin:end] + b"]", type=list[msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        return end
    return None
