"""The manifest: each file of a folder decoded once, with its verdict and a hash of its bytes.

The answer is kept in a cache by (path, size, mtime): a later start decodes only what is new. Only verdicts on content are kept; a file that
could not be opened is tried again.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from headway.data.files import Listing
from headway.data.image import DECODER, decode
from headway.spec import record
from headway.spec.errors import DataError

SCHEMA: Final = "headway.manifest/1"
MOST_BYTES: Final = 1 << 30  # of one file
_CHUNK: Final = 4096  # files handed to the threads at once


@dataclass(frozen=True)
class Entry:
    """One file: what it was when it was decoded, and why it cannot be used ("" if it can)."""

    path: str
    num_bytes: int
    mtime_ns: int
    digest: str  # of its bytes, 32 hex digits; "" if they could not be read
    reason: str


def check(listing: Listing, cache: Path | None) -> tuple[list[Entry], list[str]]:
    """The verdict on each file of `listing`, in its order. `cache`: a folder to remember verdicts in; a note (second) says if it cannot."""
    file = None if cache is None else cache / f"images-{_hash(os.fsencode(os.path.realpath(listing.root)))}.json"
    known = _read(file) if file else {}
    paths = [path for path, _ in listing.files]
    entries: list[Entry] = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1), "headway-check") as pool:
        for first in range(0, len(paths), _CHUNK):
            entries += pool.map(lambda p: _entry(listing.root, p, known.get(p)), paths[first : first + _CHUNK])
    if file and (new := [e for e in entries if e.digest]) != list(known.values()):
        try:
            _write(file, new)
        except OSError as error:
            return entries, [f"the manifest could not be kept in {file}: {error.strerror}; the next start decodes all files again"]
    return entries, []


def read(root: Path, path: str) -> bytes:
    """The bytes of a regular file. Raises DataError if it is gone, not a file, unreadable or too large."""
    full = root / path
    try:
        info = os.stat(full)
        if not stat.S_ISREG(info.st_mode):  # opening a pipe would wait for ever
            raise DataError("it is not a regular file")
        if info.st_size > MOST_BYTES:
            raise DataError(f"it is larger than {MOST_BYTES >> 30} GiB")
        return full.read_bytes()
    except OSError as error:
        raise DataError(f"it cannot be read: {error.strerror}") from error


def _entry(root: Path, path: str, known: Entry | None) -> Entry:
    """The verdict on one file: the known one if the file has not changed."""
    try:
        info = os.stat(root / path)
        if known and (known.num_bytes, known.mtime_ns) == (info.st_size, info.st_mtime_ns):
            return known
        data = read(root, path)
    except OSError as error:
        return Entry(path, 0, 0, "", f"it cannot be read: {error.strerror}")
    except DataError as error:
        return Entry(path, 0, 0, "", error.what)
    try:
        decode(data)
    except DataError as error:
        return Entry(path, info.st_size, info.st_mtime_ns, _hash(data), error.what)
    return Entry(path, info.st_size, info.st_mtime_ns, _hash(data), "")


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _read(file: Path) -> dict[str, Entry]:
    """Known verdicts by path; none if there is no cache, or it is not one that this version and this decoder wrote."""
    try:
        data: Any = record.load(file.read_bytes())
        if (data["schema"], data["decoder"]) != (SCHEMA, DECODER):
            return {}
        return {row[0]: Entry(*row) for row in data["files"]}
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return {}


def _write(file: Path, entries: Sequence[Entry]) -> None:
    """Replaces the cache in one move, so that a reader sees the old one or the new one, also when many ranks write."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.{secrets.token_hex(6)}.part")
    try:
        part.write_text(json.dumps({"schema": SCHEMA, "decoder": DECODER, "files": [astuple(e) for e in entries]}))
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
