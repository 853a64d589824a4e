"""Reads one Kineto trace (.json, .json.gz) into a `Table`. Tolerant: what is whole is used, what is lost is said.

From here on times are integer nanoseconds; no time stamp passes through a float that cannot hold it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.spec.breakdown import Health
from headway.spec.errors import TraceError
from headway.spec.info import MOST_RANKS
from headway.trace.read.chunks import Lists, Uncut
from headway.trace.read.collector import resting
from headway.trace.read.file import Reading
from headway.trace.read.kineto_json import NOT_SOUND, File, Inexact, Loss, decode, decode_events, decode_exact, decode_sound
from headway.trace.read.processes import split
from headway.trace.read.rows import Rows
from headway.trace.read.source import FIX, Broken, blocks, load
from headway.trace.table import Group, Table


def reading(path: Path) -> Reading:
    """The processes in `path`. Raises as `read` does."""
    return Reading(source=str(path), tables=split(read(path)))


def read(path: Path) -> Table:
    """The trace in `path`. Raises TraceError if it is missing, is not a trace or holds no spans."""
    with resting():
        rows, file, health = _in_lists(path) or _as_a_whole(path)
    if not rows.count:
        raise TraceError("the trace holds no spans", where=str(path), fix="Profile at least one step, and let the export finish.")
    return _table(path, rows, file, health)


def _in_lists(path: Path) -> tuple[Rows, File, list[Health]] | None:
    """A sound file, decoded list by list; None for any other."""
    rows, lists = Rows(), Lists(blocks(path))
    try:
        for text in lists:
            try:
                rows.add(decode_events(text))
            except Inexact:
                rows.add(decode_events(text, exact=True))
        file = decode_sound(lists.shell)
    except (*NOT_SOUND, Uncut, Broken):
        return None
    return (rows, file, []) if file.events == [] else None


def _as_a_whole(path: Path) -> tuple[Rows, File, list[Health]]:
    """Any file: what can be read of it."""
    data, whole = load(path)
    file, loss = decode(data) if data.lstrip()[:1] in (b"{", b"[") else (File(), Loss())
    if file.events is None:
        shown = data[:24].decode("utf-8", "replace")
        raise TraceError(f"not a trace: no list of events in it (it starts with {shown!r})", where=str(path), fix=FIX)
    rows = Rows()
    try:
        rows.add(file.events)
    except Inexact:
        file = decode_exact(data)
        rows = Rows()
        rows.add(file.events or [])
    return rows, file, _losses(loss, whole)


def _table(path: Path, rows: Rows, file: File, health: list[Health]) -> Table:
    columns, doubts = rows.columns()
    base = file.base_ns if isinstance(file.base_ns, int) and abs(file.base_ns) < 1 << 61 else 0
    columns["start"], columns["end"] = columns["start"] + base, columns["end"] + base
    rank, world, backend, groups = _distributed(file.distributed)
    return Table(
        **columns,
        source=str(path),
        rank=rank,
        world=world,
        backend=backend,
        groups=groups,
        devices=_devices(file.devices),
        host=file.host if isinstance(file.host, str) else "",
        health=(*health, *doubts),
        allocations=rows.allocations(base),
    )


# ---- what the file says about itself ----


def _distributed(info: Any) -> tuple[int | None, int | None, str, tuple[Group, ...]]:
    if not isinstance(info, dict):
        return None, None, "", ()
    groups = []
    said = info.get("pg_config")
    for row in said if isinstance(said, list) else ():
        if isinstance(row, dict):
            ranks = row.get("ranks")
            members = tuple(r for r in ranks if isinstance(r, int) and 0 <= r < MOST_RANKS) if isinstance(ranks, list) else ()
            complete = len(members) == row.get("pg_size", len(members))
            groups.append(Group(str(row.get("pg_name")), str(row.get("pg_desc", "")), members if complete else ()))
    rank, world = info.get("rank"), info.get("world_size")
    return (
        rank if isinstance(rank, int) and 0 <= rank < MOST_RANKS else None,
        world if isinstance(world, int) and 0 < world <= MOST_RANKS else None,
        str(info.get("backend", "")),
        tuple(groups),
    )


def _devices(properties: Any) -> tuple[str, ...]:
    rows = properties if isinstance(properties, list) else []
    return tuple(str(r.get("name", "")) for r in rows if isinstance(r, dict))


# ---- health ----


def _losses(loss: Loss, whole: bool) -> list[Health]:
    out = []
    if not whole or loss.cut:
        text = "the end of the file is missing; every whole event before it is used"
        out.append(
            Health(what="truncated", count=max(1, loss.cut_bytes), affects="what the rest would have told", text=text, withholds=("idle",))
        )
    if loss.events:
        out.append(Health(what="unreadable_events", count=loss.events, text="events that cannot be read are left out"))
    if loss.mended:
        out.append(Health(what="mended", count=len(loss.mended), text=f"mended while reading: {', '.join(loss.mended)}"))
    return out
