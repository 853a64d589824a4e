"""What a worker made of a file, put on disk and mapped by the caller: columns of many files together may be larger than memory.

A pickle (protocol 5) with its arrays beside it in one file. The caller maps the arrays as they lie there, read-only, and the file is taken
away at once: its blocks are given back with the last array, and before that whenever the system is short of memory.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_ALIGN: Final = 64  # bytes; arrays begin at multiples of a cache line


@dataclass(frozen=True)
class Spooled:
    """A value on disk: its pickle, the file of its arrays and where each lies in it (offset, bytes)."""

    pickled: bytes
    file: Path
    places: tuple[tuple[int, int], ...]


def store(value: Any, folder: Path) -> Spooled | None:
    """`value` in a file of `folder`; None if it cannot be written there (then it travels as it is)."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    places, at = [], 0
    try:
        descriptor, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            for buffer in buffers:
                raw = buffer.raw()
                at += file.write(bytes(-at % _ALIGN))
                places.append((at, raw.nbytes))
                at += file.write(raw)
    except OSError:
        return None
    return Spooled(pickled, Path(name), tuple(places))


def load(spooled: Spooled) -> Any:
    """The value, its arrays mapped; the file is gone from the folder afterwards."""
    if not any(size for _, size in spooled.places):
        spooled.file.unlink()
        return pickle.loads(spooled.pickled, buffers=[b""] * len(spooled.places))
    with spooled.file.open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    spooled.file.unlink()
    return pickle.loads(spooled.pickled, buffers=[mapped[at : at + size] for at, size in spooled.places])
