"""Spans from any source as columns: added part by part, sorted into the fields of a `Table` at the end."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headway.spec.health import Health
from headway.trace.read.columns import Codes, as_whole, coded
from headway.trace.sweep import Ints
from headway.trace.table import ON_DEVICE, Kind

NO_TIME: Final = -(1 << 62)  # in a column of moments: missing, or no number
FAR_NS: Final = 10 * 86_400 * 10**9  # ten days from the others, or as long: no trace is
_COLUMNS: Final = ("device", "stream", "correlation", "sequence", "forward")


class Spans:
    """Columns so far. What is equal (names, tracks) is kept once, under a code."""

    def __init__(self) -> None:
        self.names, self.tracks = Codes(), Codes()
        self._parts: list[dict[str, NDArray[Any]]] = []

    def __len__(self) -> int:
        return sum(len(part["start"]) for part in self._parts)

    def add(self, kind: Kind | Ints, start: Ints, end: Ints, name: Ints, track: Ints, owner: Ints | int = 0, **columns: Ints | int) -> None:
        """Take rows. `kind` of all, or one a row; `owner` is the process; columns that are not given are -1 (none)."""
        num = len(start)
        given = {"kind": kind, "owner": owner, **{key: columns.get(key, -1) for key in _COLUMNS}}
        part = {key: np.broadcast_to(np.asarray(value, np.int64), num) for key, value in given.items()}
        self._parts.append({"start": start, "end": end, "name": name, "track": track, **part})

    def code(self, names: Sequence[str]) -> Ints:
        """Codes of `names`."""
        return coded(names, self.names)

    def columns(self) -> tuple[dict[str, Any], Ints, list[Health]]:
        """(the fields of a `Table` that are made of spans, in order of start, longest first; the owner of each row; what is doubtful)."""
        found = {key: np.concatenate([part[key] for part in self._parts]) for key in (self._parts or [{}])[0]}
        self._parts = []
        start, end, kind = found["start"], found["end"], found["kind"]
        lost = start == NO_TIME
        usual = np.median(start[~lost]) if not lost.all() else 0
        long = ~np.isin(kind, ON_DEVICE) & (end - start > FAR_NS)
        far = ~lost & ((np.abs(start - usual) > FAR_NS) | long)
        open_ended = ~lost & ~far & (end < start)
        unended = open_ended & (end == NO_TIME) & ~np.isin(kind, ON_DEVICE)
        health = [
            Health(what=what, count=int(rows.sum()), affects="counts of kernels, compute and idle", text=text)
            for what, rows, text in (
                ("unusable_time", lost, "spans whose begin is missing or not a number are left out"),
                ("far_time", far, "spans ten days and more away from the others, or as long, are left out"),
                ("unclosed_ranges", unended, "ranges of the host that never end are left out"),
                ("unfinished", open_ended & ~unended, "spans that end before they begin, or nowhere, count as empty"),
            )
            if rows.any()
        ]
        found["end"] = end = np.where(open_ended, start, end)
        keep = np.flatnonzero(~lost & ~far & ~unended)
        order = keep[np.lexsort((-end[keep], start[keep]))]
        out: dict[str, Any] = {key: column[order] for key, column in found.items()}
        owner: Ints = out.pop("owner")
        out["kind"] = out["kind"].astype(np.int8)
        return {**out, "names": tuple(self.names), "tracks": tuple(self.tracks)}, owner, health


def moments(values: Sequence[Any]) -> Ints:
    """Time stamps as integers; NO_TIME for what is none: missing, text, fractions, over 62 bits."""
    try:
        out = np.frombuffer(array("q", values), np.int64) if values else np.zeros(0, np.int64)
    except (TypeError, OverflowError):
        out = np.array([as_whole(v, NO_TIME) for v in values], np.int64)
    return np.where(np.abs(out) >= 1 << 62, NO_TIME, out)
