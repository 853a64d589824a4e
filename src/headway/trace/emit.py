"""Events of a run, written as it goes: one file per rank, no torch, no host synchronisation.

    emit = Emitter(folder / events_file(rank), rank=rank, ranges=record_range)
    emit.begin(step)
    with emit.phase("input"): ...
    with emit.phase("forward"): ...
    emit.end(samples=seen)
    emit.event("log", loss=0.3)

Phases nest; a nanosecond belongs to the innermost one, what no phase covers is "other", and the phases of a step sum to its wall time.
A step begins where the one before it ended, so the loop itself is accounted for too. `ranges` is a factory of context managers (a
profiler's range, NVTX) from whoever has one; it gets the names of spec/event.py. Rows are kept in memory and written by `flush`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

from headway.spec.event import PHASE_PREFIX, PHASES, STEP_PREFIX

Ranges = Callable[[str], AbstractContextManager[Any]]
_MOST_ROWS = 4096  # rows kept before they are written even without a flush


class Emitter:
    """Writes the events of one rank. `path=None` keeps nothing. A disk that refuses is told once through `failed`; the run goes on."""

    def __init__(
        self,
        path: Path | None,
        *,
        rank: int = 0,
        ranges: Ranges | None = None,
        on_phase: Callable[[str, int], None] | None = None,
    ) -> None:
        self.rank, self.failed = rank, ""
        self._on_phase = on_phase  # called inside each phase as it opens: (name, step)
        self._ranges: Ranges = ranges or (lambda name: nullcontext())
        self._path = path
        self._rows: list[dict[str, Any]] = []
        self._stack: list[_Phase] = []
        self._phases: dict[str, int] = {}
        self._step, self._start_ns, self._start_perf, self._mark = -1, 0, 0, 0
        self._last_end: tuple[int, int] | None = None  # (wall clock, monotonic clock) at the end of the step before
        self._range: AbstractContextManager[Any] | None = None
        self.spent: dict[str, int] = {}  # ns in each phase, over all steps that have ended
        self.num_spans = 0  # since the start, for the counted cost of observation

    def begin(self, step: int) -> None:
        """Open step number `step`; it begins where the step before it ended."""
        now_perf = time.perf_counter_ns()
        if self._last_end is None:
            self._last_end = (time.time_ns(), now_perf)
        self._start_ns, self._start_perf = self._last_end
        self._step, self._mark, self._phases = step, self._start_perf, {}
        self._range = self._ranges(f"{STEP_PREFIX}{step}")
        self._range.__enter__()
        self.num_spans += 1

    def end(self, **fields: Any) -> dict[str, int]:
        """Close the step and write its row with `fields`. Returns its phases in ns; they sum to its wall time."""
        assert self._step >= 0 and not self._stack, "a step ends after all its phases"
        if self._range is not None:
            self._range.__exit__(None, None, None)
        now = time.perf_counter_ns()
        self._charge("other", now)
        wall = now - self._start_perf
        for name, ns in self._phases.items():
            self.spent[name] = self.spent.get(name, 0) + ns
        phases, self._phases = self._phases, {}  # a phase that opens before the next step (the last checkpoint) is none of this one's
        self._row(
            {
                "kind": "step", "time_ns": self._start_ns + wall, "step": self._step, "start_ns": self._start_ns, "wall_ns": wall,
                "phases": phases, **fields,
            }
        )  # fmt: skip
        self._last_end = (self._start_ns + wall, now)
        self._step = -1
        return phases

    def phase(self, name: str) -> _Phase:
        """A context manager: time inside it belongs to phase `name`, less what inner phases take."""
        return _Phase(self, name)

    def range(self, name: str) -> AbstractContextManager[Any]:
        """A range that profilers see and that is not a phase (a module, a collective)."""
        self.num_spans += 1
        return self._ranges(name)

    def event(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Write one event; returns the row."""
        row = {"kind": kind, "time_ns": time.time_ns(), **fields}
        self._row(row)
        return row

    def flush(self) -> None:
        """Write what is in memory to the end of the file."""
        rows, self._rows = self._rows, []
        if self._path is None or not rows:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(r, separators=(",", ":"), default=str) + "\n" for r in rows))
        except OSError as error:
            self.failed = self.failed or f"events cannot be written to {self._path}: {error.strerror}"

    def _row(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= _MOST_ROWS:
            self.flush()

    def _charge(self, name: str, now: int) -> None:
        """Give the time since the last mark to `name`, and set the mark."""
        self._phases[name] = self._phases.get(name, 0) + now - self._mark
        self._mark = now


class _Phase:
    """One phase while it is open. Written as a class: a generator costs three times as much."""

    __slots__ = ("_emit", "_name", "_range")

    def __init__(self, emit: Emitter, name: str) -> None:
        assert name in PHASES, name
        self._emit, self._name = emit, name

    def __enter__(self) -> None:
        emit = self._emit
        now = time.perf_counter_ns()
        emit._charge(emit._stack[-1]._name if emit._stack else "other", now)
        emit._stack.append(self)
        emit.num_spans += 1
        self._range = emit._ranges(PHASE_PREFIX + self._name)
        self._range.__enter__()
        if emit._on_phase is not None:
            emit._on_phase(self._name, emit._step)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._range.__exit__(kind, value, trace)
        emit = self._emit
        emit._stack.pop()
        emit._charge(self._name, time.perf_counter_ns())
