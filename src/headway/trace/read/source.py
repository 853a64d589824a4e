"""The bytes of a file: block by block, or whole; as far as they can be unpacked."""

from __future__ import annotations

import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from headway.spec.errors import TraceError
from headway.trace.read.remote import is_remote

FIX = (
    "Give a PyTorch profiler trace (.json or .json.gz), an Nsight Systems export (.sqlite), an XSpace (.xplane.pb), a memory snapshot or "
    "a flight recorder (pickle), an Nsight Compute export (.csv), an NCCL log, a folder of them, or a run folder."
)
GZIP = b"\x1f\x8b"
BLOCK_BYTES = 2 << 20
HEAD_BYTES = 4096  # in which a format is recognised
_READ_BYTES = 1 << 20


class Broken(Exception):
    """A gzip file that ends early or is damaged."""


def head(path: Path, size: int = HEAD_BYTES, *, packed: bool = False) -> bytes:
    """The first bytes of a file, unpacked if it is gzip (or as they are: `packed`).

    Raises TraceError if it is missing, cannot be read or is empty.
    """
    with _opened(path) as file:
        data = file.read(max(1 << 16, size))
    if not data:
        raise TraceError("the file is empty", where=str(path), fix="Profile again, and let the export finish.")
    if data[:2] != GZIP or packed:
        return data[:size]
    try:
        return zlib.decompressobj(31).decompress(data, size)
    except zlib.error:
        return b""


def blocks(path: Path, size: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The content of a file in blocks of at most `size` bytes, unpacked if it is gzip; no more of it is ever held.

    Raises TraceError if it cannot be opened, Broken where a gzip file breaks.
    """
    with _opened(path) as file:
        data = file.read(2)
        if data != GZIP:
            while data:
                data += file.read(size - len(data))
                yield data
                data = file.read(2)
            return
        while data[:2] == GZIP:  # a member
            unpacker = zlib.decompressobj(31)
            while not unpacker.eof:
                try:
                    out = unpacker.decompress(data, size)
                except zlib.error as error:
                    raise Broken from error
                data = unpacker.unconsumed_tail
                if out:
                    yield out
                elif not data and not unpacker.eof:
                    data = file.read(_READ_BYTES)
                    if not data:
                        raise Broken
            data = unpacker.unused_data or file.read(_READ_BYTES)


@contextmanager
def on_disk(path: Path) -> Iterator[Path]:
    """A file that is plain and local: `path` itself, or a copy in a temporary folder that is gone afterwards.

    Raises TraceError if it cannot be read. Of a gzip file that breaks, the copy holds what comes before.
    """
    if not is_remote(path) and head(path, 2, packed=True) != GZIP:
        yield path
        return
    with TemporaryDirectory(prefix="headway-") as folder:
        copy = Path(folder) / "copy"
        with copy.open("wb") as file, suppress(Broken):
            file.writelines(blocks(path))
        yield copy


def load(path: Path) -> tuple[bytes, bool]:
    """The content of a file, unpacked if it is gzip, and whether all of it could be unpacked. Raises TraceError."""
    with _opened(path) as file:
        data = file.read()
    if not data:
        raise TraceError("the file is empty", where=str(path), fix="Profile again, and let the export finish.")
    return _unzip(data) if data[:2] == GZIP else (data, True)


def _opened(path: Path) -> BinaryIO:
    try:
        if not is_remote(path) and not stat.S_ISREG(path.stat().st_mode):
            what = "is a folder" if path.is_dir() else "is a pipe or a device: it can be read once, and a trace is read twice"
            raise TraceError(what, where=str(path), fix="Give a file; what a program prints, write to a file first.")
        return path.open("rb")
    except FileNotFoundError:
        raise TraceError("no such trace", where=str(path), fix=FIX) from None
    except OSError as error:
        raise TraceError(f"cannot be read ({error.strerror})", where=str(path), fix=FIX) from None


def _unzip(data: bytes) -> tuple[bytes, bool]:
    """All members of a gzip file, up to where it breaks."""
    parts = []
    while data[:2] == GZIP:
        unpacker = zlib.decompressobj(31)
        try:
            parts.append(unpacker.decompress(data))
        except zlib.error:
            parts.append(_unzip_slowly(data))
            return b"".join(parts), False
        if not unpacker.eof:
            return b"".join(parts), False
        data = unpacker.unused_data
    return b"".join(parts), True


def _unzip_slowly(data: bytes, step: int = 1 << 12) -> bytes:
    """What comes out before the error: fed in small pieces, since a failed call gives nothing."""
    unpacker = zlib.decompressobj(31)
    parts = []
    try:
        for at in range(0, len(data), step):
            parts.append(unpacker.decompress(data[at : at + step]))
    except zlib.error:
        pass
    return b"".join(parts)
