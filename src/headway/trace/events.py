"""The steps of a run as its events tell them: phases of every step, profiled or not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from headway.spec import record
from headway.spec.breakdown import Health, StepBreakdown
from headway.spec.event import PHASES

_OF_EVERY_STEP = frozenset(("kind", "time_ns", "step", "samples", "start_ns", "wall_ns", "phases"))
_FILE = re.compile(r"events(?:\.rank(\d{1,9}))?\.jsonl$")
_LONG = re.compile(rb"[1-9]\d{19}|9[2-9]\d{17}")  # may be an integer of more than 64 bits
_MOST = 1 << 62  # of nanoseconds and steps, so that sums of two fit into 64 bits


@dataclass(frozen=True)
class Events:
    """Steps by rank (in order, each once), what their lines say beside their phases, log lines of rank 0, and what is doubtful."""

    steps: Mapping[int, tuple[StepBreakdown, ...]] = field(default_factory=dict)
    notes: Mapping[int, Mapping[int, Mapping[str, Any]]] = field(default_factory=dict)  # rank -> step -> its other fields, if it has any
    first: frozenset[int] = frozenset()  # steps with which a process began
    logs: tuple[Mapping[str, Any], ...] = ()
    health: tuple[Health, ...] = ()


def read_events(folder: Path) -> Events:
    """Every events file of a run folder. A last line that was cut is left out; a step that was run twice counts as it was run last."""
    steps: dict[int, tuple[StepBreakdown, ...]] = {}
    notes: dict[int, dict[int, Mapping[str, Any]]] = {}
    first: set[int] = set()
    logs: list[Mapping[str, Any]] = []
    health: list[Health] = []
    for path in sorted(folder.glob("events*.jsonl")):
        name = _FILE.match(path.name)
        if name is None:
            continue
        rank = int(name[1] or 0)
        rows, torn = _lines(path)
        found: dict[int, StepBreakdown] = {}
        said: dict[int, Mapping[str, Any]] = {}
        begins = True
        for row in rows:
            begins |= row.get("kind") == "run"
            if row.get("kind") != "step" or (step := _step(row)) is None:
                continue
            found[step.step] = step
            said[step.step] = {k: v for k, v in row.items() if k not in _OF_EVERY_STEP}
            if begins:
                first.add(step.step)
                begins = False
        steps[rank] = tuple(found[k] for k in sorted(found))
        notes[rank] = {k: v for k, v in said.items() if v}
        if rank == 0:
            logs = [r for r in rows if r.get("kind") == "log"]
        if torn:
            health.append(Health(what="torn_lines", count=torn, rank=rank, text=f"{path.name}: lines that cannot be read are left out"))
    return Events(steps, notes, frozenset(first), tuple(logs), tuple(health))


def _lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    decoder = msgspec.json.Decoder()
    rows, torn = [], 0
    for line in path.read_bytes().splitlines():
        if not line.strip():
            continue
        try:
            row = decoder.decode(line) if _LONG.search(line) is None else record.load(line)
        except (ValueError, RecursionError):
            try:
                row = record.load(line)  # a loss that is not finite is written as NaN, which msgspec refuses
            except ValueError:
                torn += 1
                continue
        if isinstance(row, dict):
            rows.append(row)
    return rows, torn


def _step(row: Mapping[str, Any]) -> StepBreakdown | None:
    """One step line; its phases are made to sum to its wall time (what they leave is `other`). None if it is not one."""
    step, start, wall = (_whole(row.get(k)) for k in ("step", "start_ns", "wall_ns"))
    phases = row.get("phases")
    if step is None or start is None or wall is None or wall < 0 or not isinstance(phases, dict):
        return None
    known = {k: v for k, v in phases.items() if k in PHASES and isinstance(v, int) and v >= 0}
    rest = wall - sum(known.values())
    if rest < 0:
        return None
    known["other"] = known.get("other", 0) + rest
    return StepBreakdown(step=step, start_ns=start, wall_ns=wall, buckets={}, phases={k: v for k, v in known.items() if v or k == "other"})


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST else None
