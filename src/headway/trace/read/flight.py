"""Reads the flight recorder of torch.distributed (versions 2.x): a pickle of plain data, or the same as JSON.

Its entries become no timeline: their times are when the call was made and when a watchdog looked, not when the device worked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Final

from headway.spec.errors import TraceError
from headway.spec.flight import FlightEntry, FlightGroup, FlightLog, FlightStatus
from headway.spec.info import MOST_RANKS
from headway.trace.read.columns import as_whole
from headway.trace.read.file import Reading
from headway.trace.read.pickles import plain
from headway.trace.read.source import load

FIX: Final = "Dump it anew: TORCH_NCCL_DUMP_ON_TIMEOUT=1, or torch._C._distributed_c10d._dump_nccl_trace()."
_RANK: Final = re.compile(r"(?:rank|dump|trace)[-_.]?(\d+)(?:\.\w+)*$", re.IGNORECASE)


def read(path: Path) -> Reading:
    """The recorder in `path`. Raises TraceError if it is broken, is none, or asks for anything but plain data."""
    data, whole = load(path)
    if not whole:
        raise TraceError("the end of the file is missing", where=str(path), fix=FIX)
    found = plain(data, path, FIX) if data[:1] == b"\x80" else _json(data, path)
    if not isinstance(found, Mapping) or not isinstance(found.get("entries", []), list) or not ({"entries", "pg_config"} & set(found)):
        raise TraceError("not a flight recorder: it has no list of entries", where=str(path), fix=FIX)
    groups = _groups(found.get("pg_config"))
    rows = found.get("entries", [])
    entries = tuple(e for e in map(_entry, rows) if e is not None)
    world = next((len(g.ranks) for g in groups if g.text == "default_pg" and g.ranks), None)
    library = found.get("nccl_version", found.get("comm_lib_version", ""))
    log = FlightLog(
        source=str(path),
        rank=_rank(path, groups),
        world=world or max((len(g.ranks) for g in groups), default=0) or None,
        version=str(found.get("version", ""))[:32],
        library=str(library)[:64],
        groups=groups,
        status=_status(found.get("pg_status")),
        entries=entries,
        unreadable=len(rows) - len(entries),
    )
    return Reading(source=str(path), flight=(log,))


def _json(data: bytes, path: Path) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"the JSON is broken or cut ({type(error).__name__})", where=str(path), fix=FIX) from None


def _rank(path: Path, groups: tuple[FlightGroup, ...]) -> int | None:
    """The number at the end of the file's name; else the one rank that is in all groups, since a process lists its own."""
    named = _RANK.search(path.name)
    if named and int(named[1]) < MOST_RANKS:
        return int(named[1])
    common = reduce(set.__and__, (set(g.ranks) for g in groups if g.ranks)) if any(g.ranks for g in groups) else set()
    return common.pop() if len(common) == 1 else None


def _groups(said: Any) -> tuple[FlightGroup, ...]:
    rows = said.items() if isinstance(said, Mapping) else ()
    return tuple(
        FlightGroup(name=str(row.get("name", key)), text=str(row.get("desc", "")), ranks=_ranks(row.get("ranks")))
        for key, row in rows
        if isinstance(row, Mapping)
    )


def _ranks(said: Any) -> tuple[int, ...]:
    """'[0, 1]' or a list -> (0, 1); () if any of it is no rank."""
    try:
        ranks = json.loads(said) if isinstance(said, str) else said
    except (ValueError, RecursionError):
        return ()
    sound = isinstance(ranks, (list, tuple)) and all(_whole(r) is not None and 0 <= r < MOST_RANKS for r in ranks)
    return tuple(ranks) if sound else ()


def _status(said: Any) -> tuple[FlightStatus, ...]:
    def number(row: Mapping[str, Any], key: str) -> int | None:
        value = row.get(f"last_{key}_collective")
        value = as_whole(value, -1)  # JSON has it as text
        return value if value >= 0 else None

    rows = said.items() if isinstance(said, Mapping) else ()
    return tuple(
        FlightStatus(group=str(key), enqueued=number(row, "enqueued"), started=number(row, "started"), completed=number(row, "completed"))
        for key, row in rows
        if isinstance(row, Mapping)
    )


def _entry(row: Any) -> FlightEntry | None:
    """One entry; None if it is none. A field of a wrong type counts as not recorded."""
    if not isinstance(row, Mapping) or not isinstance(row.get("profiling_name"), str):
        return None
    backend, colon, name = row["profiling_name"].partition(":")
    group = row.get("process_group")
    named = group if isinstance(group, (tuple, list)) and len(group) == 2 else (row.get("pg_name", row.get("pg_id", "")), "")
    duration, state, retired = row.get("duration_ms"), row.get("state"), row.get("retired")
    timed = isinstance(duration, (int, float)) and 0 <= duration < 1e12
    return FlightEntry(
        group=str(named[0]),
        text=str(named[1]),
        local=str(row.get("pg_id", "")),
        name=name if colon else backend,
        backend=backend if colon else "",
        number=_whole(row.get("collective_seq_id", row.get("seq_id"))),
        p2p=_whole(row.get("p2p_seq_id")),
        operation=_whole(row.get("op_id")),
        is_p2p=row.get("is_p2p") is True,
        state=state if isinstance(state, str) else "",
        retired=retired if isinstance(retired, bool) else None,
        inputs=_listed(row.get("input_sizes"), _dims),
        outputs=_listed(row.get("output_sizes"), _dims),
        input_types=_listed(row.get("input_dtypes"), str),
        output_types=_listed(row.get("output_dtypes"), str),
        created_ns=_whole(row.get("time_created_ns")),
        started_ns=_whole(row.get("time_discovered_started_ns")) or None,  # JSON has 0 for never
        completed_ns=_whole(row.get("time_discovered_completed_ns")) or None,
        duration_ns=round(duration * 1e6) if timed else None,  # type: ignore[operator]
        timeout_ms=_whole(row.get("timeout_ms")),
        frames=_listed(row.get("frames"), _frame),
    )


def _listed(said: Any, one: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple(map(one, said)) if isinstance(said, (list, tuple)) else ()


def _dims(said: Any) -> tuple[int, ...]:
    return tuple(d for d in said if _whole(d) is not None) if isinstance(said, (list, tuple)) else ()


def _frame(said: Any) -> str:
    if not isinstance(said, Mapping):
        return str(said)[:300]
    return f"{said.get('filename', '?')}:{said.get('line', '?')} {said.get('name', '')}"[:300]


def _whole(value: Any) -> int | None:
    return value if value.__class__ is int and abs(value) < 1 << 62 else None
