"""Hooks of the loop: checkpoints, profile windows, stages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch

from headway.runtime import build, folder
from headway.runtime.checkpoint import Checkpoints
from headway.runtime.folder import Run
from headway.spec.event import memory_file, trace_file
from headway.spec.field import changes
from headway.spec.run import RunSpec, profile_window
from headway.train.guard import Guard
from headway.train.loop import Hook, Running
from headway.train.signals import Signals
from headway.train.snapshot import MemoryRecording, start_memory
from headway.train.step import StepOut


class Save(Hook):
    """A checkpoint every `checkpoint.every` samples and at the end; never of a state that is not finite. `about` is noted in each."""

    def __init__(
        self, spec: RunSpec, checkpoints: Checkpoints, guard: Guard, *, about: Mapping[str, Any] | None = None, last: int = -1
    ) -> None:
        self._about = about or {}
        self._every, self._checkpoints, self._guard = spec.checkpoint.every, checkpoints, guard
        self._last = last  # samples of the newest checkpoint

    def after(self, run: Running, out: StepOut) -> None:
        """Save if the step crossed a multiple of the period."""
        self._checkpoints.poll()
        now, batch = run.state.samples, run.state.spec.global_batch
        if self._every and now // self._every > (now - batch) // self._every and not run.done:
            self._save(run)

    def close(self, run: Running) -> None:
        """Save the end, and wait until it is on disk."""
        if run.state.samples != self._last:
            self._save(run)
        self._checkpoints.wait()

    def _save(self, run: Running) -> None:
        phase = run.emit.phase("checkpoint")
        with phase:
            self._guard.judge(run)
            if self._guard.tainted:
                return
            self._guard.require_finite_weights(run)
            self._checkpoints.save(build.saved(run.state), samples=run.state.samples, meta={"step": run.state.step, **self._about})
            self._last = run.state.samples


class Profile(Hook):
    """A Kineto trace of every rank over a window of steps: `observe.profile_steps`, and whenever a live run is asked for one.

    On CUDA the step after a window leaves a memory snapshot, unless another window follows at once.
    """

    def __init__(self, spec: RunSpec, signals: Signals) -> None:
        self._planned, self._signals = profile_window(spec), signals
        self._profiler: Any = None
        self._memory: MemoryRecording | None = None  # of the step after a window
        self._first, self._last = 0, -1  # the window that is open, inclusive

    def before(self, run: Running) -> None:
        """End a window that is over; start one where it starts. A request comes first; what it leaves of a planned window follows."""
        step = run.state.step
        if self._memory is not None:
            self._write_memory(run)
        ended = self._profiler is not None and step > self._last
        if ended:
            self._stop(run)
        if self._profiler is not None:
            return
        if self._signals.profile:
            self._last, self._signals.profile = step + self._signals.profile - 1, 0
        elif self._planned is not None and self._planned[0] <= step <= self._planned[1]:
            self._last = self._planned[1]
        else:
            self._memory = start_memory(run.state) if ended else None
            run.tracing = self._memory is not None
            return
        self._first = step
        self._profiler = start_profiler(run.state.device)
        run.tracing = True

    def close(self, run: Running) -> None:
        """End a window that the run has cut."""
        if self._profiler is not None:
            self._stop(run)
        if self._memory is not None:
            self._write_memory(run)

    def abandon(self, run: Running) -> None:
        """Let go of an open window, whose last step has no end: a profiler that is open when the process ends takes it down."""
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            with suppress(Exception):  # what ended the run is what there is to hear of
                profiler.stop()

    def _write_memory(self, run: Running) -> None:
        recording, self._memory = self._memory, None
        run.tracing = False
        step = run.state.step - 1
        file = run.path / "traces" / memory_file(run.place.rank, step)
        try:
            assert recording is not None, "called with an open recording"
            recording.write(file, run.place.rank, step)
        except OSError as error:
            run.tell("warning", f"the memory snapshot {file} cannot be written: {error.strerror}")

    def _stop(self, run: Running) -> None:
        first, last = self._first, run.state.step - 1
        profiler, self._profiler = self._profiler, None
        run.tracing = False
        profiler.stop()
        file = run.path / "traces" / trace_file(run.place.rank, first, last)
        temporary = file.with_name(f".{file.name.removesuffix('.gz')}.{os.getpid()}.gz")
        try:
            file.parent.mkdir(exist_ok=True)
            profiler.export_chrome_trace(str(temporary))
            os.replace(temporary, file)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            run.tell("warning", f"the trace {file} cannot be written: {error.strerror}")
            return
        run.emit.event("profile", first=first, last=last, file=file.name)
        if run.first:
            run.tell("profile", f"traced steps {first} to {last}: headway explain {run.path}")


def start_profiler(device: torch.device) -> Any:
    """A started torch profiler for CPU and the device; shapes are recorded."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    profiler = torch.profiler.profile(activities=kinds, record_shapes=True)
    profiler.start()
    return profiler


class Home(Hook):
    """Puts the run's own record back where somebody has removed its folder while it runs: it is saved on, so it must be found."""

    def __init__(self, run: Run) -> None:
        self._run, self._every = run, run.spec.observe.log_every

    def after(self, run: Running, out: StepOut) -> None:
        """Look at the end of a log period."""
        if not run.first or run.state.step % self._every or (self._run.path / "run.json").is_file():
            return
        try:
            folder.write_run(self._run)
        except OSError as error:
            run.tell("warning", f"the run folder {self._run.path} is gone and cannot be made anew: {error.strerror}")
            return
        run.tell(
            "warning",
            f"the run folder {self._run.path} was removed or moved away while it runs; what comes from here on is kept in a new one",
        )


class Stages(Hook):
    """Says which settings change when a stage of the run begins; the step reads them by itself."""

    def __init__(self) -> None:
        self._now: RunSpec | None = None

    def before(self, run: Running) -> None:
        """Tell what is new since the last step."""
        before, self._now = self._now, run.state.current()
        if before is None or before is self._now:
            return
        for name, _, old, new in changes(before, self._now):
            run.tell("stage", f"a stage begins at {run.state.samples:,} samples: {name} {old!r} -> {new!r}")
