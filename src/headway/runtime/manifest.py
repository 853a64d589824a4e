"""Checkpoints as folders: names, the manifest that proves a folder whole, the search for the newest good one. No torch.

checkpoints/s000000012800/              whole: it was renamed from .incomplete after every byte was on disk
    manifest.json                       samples, meta, values, and size and BLAKE2b of each file; a digest of its own
    .metadata, __0_0.distcp, ...        tensors, in the format of torch.distributed.checkpoint
checkpoints/s000000025600.incomplete/   being written, or cut off
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headway.spec import record

SCHEMA: Final = "headway.checkpoint/1"
MANIFEST: Final = "manifest.json"
INCOMPLETE: Final = ".incomplete"
REMOVED: Final = ".removed"
_NAME: Final = re.compile(r"s(\d{12,})")

Notify = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A whole checkpoint: where it is, the samples seen in it, what was noted beside it, and its values that are no tensors."""

    path: Path
    samples: int
    meta: Mapping[str, Any]
    values: Mapping[str, Any]


class Damaged(Exception):
    """A folder is not the whole checkpoint that was written; the message says why."""


def name_of(samples: int) -> str:
    """Folder name of the checkpoint after `samples` samples; names sort as samples do."""
    return f"s{samples:012d}"


def digest(path: Path) -> dict[str, Any]:
    """Size and hash of a file."""
    with path.open("rb") as file:
        return {"num_bytes": os.fstat(file.fileno()).st_size, "blake2b": hashlib.file_digest(file, _blake2b).hexdigest()}


def write(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the manifest of `folder` and force it and the folder to disk. `content`: samples, world, meta, values, files."""
    body = {"schema": SCHEMA, **content}
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        json.dump({**body, "digest": _own_digest(body)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def read(folder: Path) -> Found:
    """The checkpoint in `folder`, every file of it compared with the manifest. Raises Damaged."""
    try:
        body = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        own = body.pop("digest")
        if own != _own_digest(body):
            raise Damaged(f"{MANIFEST} has changed since it was written")
        record.check_schema(body, SCHEMA)
        for name, written in body["files"].items():
            _compare(folder / name, written)
        return Found(path=folder, samples=body["samples"], meta=body["meta"], values=body["values"])
    except OSError as error:
        raise Damaged(f"{MANIFEST} cannot be read ({error.strerror})") from error
    except record.Newer as error:
        raise Damaged(str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{MANIFEST} is not readable as one") from error


def newest(folder: Path, notify: Notify) -> Found | None:
    """The newest whole checkpoint under `folder`. Damaged newer ones are skipped, and `notify` is told which, why, and what is used."""
    skipped: list[str] = []
    found: Found | None = None
    for path in reversed(folders(folder)):
        try:
            found = read(path)
            break
        except Damaged as why:
            skipped.append(f"checkpoint {path.name} is damaged and is skipped: {why}")
    use = f"the last good one, {found.path.name}, is used" if found else "there is no good one left"
    for text in skipped:
        notify("warning", f"{text}; {use}")
    return found


def folders(folder: Path) -> list[Path]:
    """Folders with the name of a finished checkpoint, oldest first."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name) and p.is_dir()), key=samples_of)


def samples_of(path: Path) -> int:
    """The samples in a folder's name."""
    match = _NAME.match(path.name)
    assert match, f"{path} is not the name of a checkpoint"
    return int(match[1])


def commit(incomplete: Path) -> Path:
    """Give a folder that is wholly on disk its final name, at once."""
    final = incomplete.with_name(incomplete.name.removesuffix(INCOMPLETE))
    incomplete.rename(final)
    sync_folder(final.parent)
    return final


def prune(folder: Path, upto: int, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints of those with at most `upto` samples."""
    old = [p for p in folders(folder) if samples_of(p) <= upto]
    remove(old[: max(0, len(old) - keep)])


def remove(paths: Iterable[Path]) -> None:
    """Remove checkpoints: first their names, so that a half-removed one does not look like a whole one."""
    for path in paths:
        shutil.rmtree(path.rename(path.with_name(path.name + REMOVED)))


def discard(path: Path) -> None:
    """Remove what is left of a write that came to nothing, as far as it goes."""
    shutil.rmtree(path, ignore_errors=True)


def leftovers(folder: Path) -> list[Path]:
    """What writes and removals that were cut off have left."""
    return sorted([*folder.glob(f"s*{INCOMPLETE}"), *folder.glob(f"s*{REMOVED}")]) if folder.is_dir() else []


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _compare(path: Path, written: Mapping[str, Any]) -> None:
    try:
        size = path.stat().st_size
        if size != written["num_bytes"]:
            raise Damaged(f"{path.name} has {size} bytes, {written['num_bytes']} were written")
        if digest(path) != written:
            raise Damaged(f"{path.name} has changed since it was written")
    except FileNotFoundError as error:
        raise Damaged(f"{path.name} is missing") from error
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read ({error.strerror})") from error


def _own_digest(body: Mapping[str, Any]) -> str:
    return str(_blake2b(json.dumps(body, sort_keys=True).encode()).hexdigest())


def _blake2b(data: bytes = b"") -> Any:
    return hashlib.blake2b(data, digest_size=16)
