"""The log hook: all scalars of a log period in one flush, where alone a step waits for the device; requests and progress live on it."""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headway.report.progress import Progress
from headway.runtime import folder
from headway.runtime.launch import Place
from headway.spec.run import RunSpec
from headway.train.guard import Guard
from headway.train.loop import Hook, Running
from headway.train.pace import CAPTURED, Pace
from headway.train.signals import Signals
from headway.train.step import StepOut
from headway.train.trackers import Tracker

_HEARD_S = 10.0  # longest log period, in seconds, of runs whose steps are shorter: a signal or a request waits no longer


class Observe(Hook):
    """Every `observe.log_every` steps, sooner if they are long: loss (by timestep too), rate, MFU, memory -> event, progress, status."""

    def __init__(
        self,
        spec: RunSpec,
        place: Place,
        *,
        progress: Progress | None,
        trackers: Sequence[Tracker],
        signals: Signals,
        guard: Guard,
        flops: float,
        hardware_flops: float,
        peak: float,
    ) -> None:
        self.every, self.bins = spec.observe.log_every, spec.observe.timestep_bins
        self._progress, self._trackers, self._signals, self._guard = progress, trackers, signals, guard
        self._peak, self._world = peak, place.world  # peak FLOP/s of a device
        self._flops, self._hardware_flops = flops, hardware_flops  # of a sample
        self._kept: list[StepOut] = []
        self._since = (time.perf_counter_ns(), -1)
        self._next = 0  # the step after which to flush, the same on every rank
        self._pace, self._apart, self._traced = Pace(), 0, False
        self._capture = spec.observe.capture

    def before(self, run: Running) -> None:
        """Begin to count where the run begins."""
        self._traced |= run.tracing
        if self._since[1] < 0:
            self._since = (time.perf_counter_ns(), run.state.samples)

    def after(self, run: Running, out: StepOut) -> None:
        """Keep what the step left; at the period's end, flush."""
        self._traced |= run.tracing
        self._kept.append(out)
        if run.state.step >= self._next or run.done:
            self.flush(run)

    def close(self, run: Running) -> None:
        """Flush the rest."""
        if self._kept:
            self.flush(run)

    def flush(self, run: Running) -> None:
        """One reduction for everything that people hear of; here the host waits for the device."""
        kept, self._kept = self._kept, []
        self._guard.judge(run)
        table = binned(kept, self.bins)  # [2, bins] of this rank: loss sums and counts by timestep
        names, extra = metrics(kept)  # sums of this rank; an objective names the same ones on every rank
        slower = self._slower(run, len(kept))
        wall = (time.perf_counter_ns() - self._since[0]) / 1e9
        asks = torch.tensor([wall, self._signals.number, slower, *(_asked(run) if run.first else (0, 0))], dtype=torch.float64)
        local = torch.cat([table.flatten(), asks.to(table.device), extra])
        host = run.state.mesh.all_sum(local).tolist()
        per_step = torch.stack([torch.stack([*o.total, o.grad_norm.double(), o.ok.double()]) for o in kept]).tolist()
        n = self.bins
        sums, counts, asked, extras = host[:n], host[n : 2 * n], host[2 * n : 2 * n + len(asks)], host[2 * n + len(asks) :]
        walls, signal, slow, stop, profile = asked
        self._next = next_flush(run.state.step, self.every, walls / self._world / len(kept))
        if signal or stop:
            run.reason = self._signals.name or ("request" if stop else "a signal on another rank")
        self._signals.profile = int(profile) or self._signals.profile  # one may wait for the end of an open window
        if slow and not self._signals.profile and not run.tracing:
            self._signals.profile = CAPTURED
            run.tell("cliff", f"steps have become slower at {run.state.samples:,} samples: tracing {CAPTURED} of them")
        good = [(total / count, norm) for total, count, norm, ok in per_step if ok] or [(math.nan, math.nan)]
        elements = sum(row[1] for row in per_step)
        shown = {name: value / elements for name, value in zip(names, extras, strict=True)}
        self._log(run, kept, good, [s / c if c else None for s, c in zip(sums, counts, strict=True)], shown)

    def _slower(self, run: Running, steps: int) -> float:
        """1 if steps of this rank have become slower and stay so; checkpoints, evaluation and traced steps do not count."""
        apart = sum(run.emit.spent.get(phase, 0) for phase in ("checkpoint", "evaluate"))
        ns = time.perf_counter_ns() - self._since[0] - (apart - self._apart)
        traced, self._apart, self._traced = self._traced, apart, run.tracing
        return float(self._capture and not traced and self._pace.slower(ns / steps, steps))

    def _log(
        self, run: Running, kept: Sequence[StepOut], good: list[tuple[float, float]], by_t: list[float | None], shown: dict[str, float]
    ) -> None:
        state, now = run.state, time.perf_counter_ns()
        seconds = max(1e-9, (now - self._since[0]) / 1e9)
        rate = (state.samples - self._since[1]) / seconds
        self._since = (now, state.samples)
        flops_s = rate * self._flops / self._world  # of one device
        run.scalars = {
            "loss": sum(g[0] for g in good) / len(good),
            "grad_norm": good[-1][1],
            "lr": kept[-1].lr,
            "samples_s": rate,
            "memory_bytes": memory_bytes(state.device),
            **clock(state.device),
            **shown,
        }
        if self._flops and self._peak:
            run.scalars |= {"flops_s": flops_s, "mfu": flops_s / self._peak}
            run.scalars["hfu"] = run.scalars["mfu"] * self._hardware_flops / self._flops
        run.emit.event("log", step=state.step, samples=state.samples, **run.scalars, loss_by_t=by_t)
        run.emit.flush()
        if not run.first:
            return
        if self._progress is not None:
            self._progress.update(samples=state.samples, loss=run.scalars["loss"], samples_s=rate, mfu=run.scalars.get("mfu"))
        for tracker in self._trackers:
            tracker.log(run.scalars | {f"loss_t{i}": v for i, v in enumerate(by_t) if v is not None}, state.step)
        left = (state.spec.last_sample - state.samples) / rate if rate > 0 else None
        write_status(run.path, "running", run, left_s=left, period_s=seconds)


def next_flush(step: int, every: int, step_s: float) -> int:
    """The step after which to flush again: the next multiple of `every`, or before it what takes _HEARD_S at `step_s` seconds a step."""
    return min((step // every + 1) * every, step + max(1, int(_HEARD_S / max(step_s, 1e-9))))


def binned(outs: Sequence[StepOut], bins: int) -> torch.Tensor:
    """[2, bins] float64: sum of per-sample losses and number of samples by timestep bin; samples that are not finite count in neither."""
    losses = [o for out in outs for o in out.losses]
    per_sample = torch.cat([o.per_sample for o in losses]).double()
    where = (torch.cat([o.t for o in losses]) * bins).long().clamp_(0, bins - 1)
    table = per_sample.new_zeros(2, bins)
    table[0].scatter_add_(0, where, per_sample.nan_to_num(0.0, 0.0, 0.0))
    table[1].scatter_add_(0, where, per_sample.isfinite().double())
    return table


def metrics(outs: Sequence[StepOut]) -> tuple[list[str], torch.Tensor]:
    """Names of the objective's own figures and their sums over these steps, float64; each is divided by the number of elements."""
    names = sorted(outs[0].losses[0].metrics)
    sums = [torch.stack([o.metrics[n].double() for out in outs for o in out.losses]).sum() for n in names]
    return names, torch.stack(sums) if sums else outs[0].total.new_zeros(0)


def memory_bytes(device: torch.device) -> int:
    """Peak reserved bytes of a CUDA device, else the peak resident size of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if os.uname().sysname == "Darwin" else 1024)


def clock(device: torch.device) -> dict[str, float]:
    """{"clock_mhz": SM clock} of a CUDA device whose driver can be asked, else nothing."""
    if device.type != "cuda":
        return {}
    try:
        return {"clock_mhz": float(torch.cuda.clock_rate(device))}
    except (ImportError, ModuleNotFoundError, RuntimeError):  # no nvidia-ml-py, or no right to ask
        return {}


def write_status(path: Path, what: str, run: Running | None = None, **fields: Any) -> None:
    """Write status.json (rank 0); a full disk does not stop a run."""
    data: dict[str, Any] = {"schema": "headway.status/1", "state": what, "time_ns": time.time_ns(), **folder.identity(), **fields}
    if run is not None:
        data |= {"step": run.state.step, "samples": run.state.samples, "total_samples": run.state.spec.last_sample, **run.scalars}
    try:
        folder.write_json(path / "status.json", data)
    except OSError as error:
        if run is not None:
            run.tell("warning", f"status.json cannot be written: {error.strerror}")


def _asked(run: Running) -> tuple[int, int]:
    """Whether rank 0 finds a request to stop, and for how many steps one to profile."""
    stop = folder.asked(run.path, "stop")
    if stop:
        folder.answered(run.path, "stop")
    profile = folder.asked(run.path, "profile")
    if profile:
        folder.answered(run.path, "profile")
    return (1 if stop else 0), int(profile.get("steps", 3)) if profile else 0
