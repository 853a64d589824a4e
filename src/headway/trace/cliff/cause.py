"""Why some steps took longer than others of the same rank: the one thing that accounts for most of the difference.

Phases and the collector say nanoseconds. A compilation, an allocator retry, a new shape, a slower clock or a busy machine are counted, not
timed: what no timed cause claims is theirs, if they happened in these steps and not in the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.trace.cliff.columns import Columns

ENOUGH: Final = 0.5  # of the excess; what explains less is no cause
_TIMED = ("input", "encode", "checkpoint", "evaluate")
_TEXTS: Final[Mapping[str, str]] = {
    "input": "they wait for input",
    "encode": "they wait for encoders",
    "checkpoint": "a checkpoint is written",
    "evaluate": "the model is evaluated",
    "gc": "Python collects garbage",
    "recompile": "torch.compile compiles",
    "allocator": "the allocator frees its cache and tries again",
    "shape": "batches have another shape",
    "profiler": "a profiler is open",
    "clocks": "the device's clock is lower",
    "machine": "other processes take the cores",
    "unknown": "nothing in the events says why",
}
ACTIONS: Final[Mapping[str, str]] = {
    "input": "Decode further ahead: more loader workers, a longer prefetch; look at the slow files.",
    "encode": "Encode once and train from a cache.",
    "checkpoint": "Save beside the training, less often, or to a faster disk.",
    "evaluate": "Evaluate less often or in another job.",
    "gc": "Freeze the objects of the start (gc.freeze) and collect every so many steps on all ranks together.",
    "recompile": "Find what changes: a shape or a Python value; mark the dim dynamic or pad to a few sizes.",
    "allocator": "Leave memory free, keep shapes constant, try expandable segments.",
    "shape": "Expected if the shapes differ in work; else pad or bucket so that a step's work stays the same.",
    "profiler": "Nothing: steps are slower while they are traced.",
    "clocks": "Look at power and temperature of the device.",
    "machine": "Give the run its cores: fewer workers and threads, no neighbours.",
    "unknown": "Trace such steps: of a live run with headway profile RUN, of the next one with --observe.profile-steps.",
}


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A name of spec.cliff.CAUSES, the share of the excess that it accounts for, and what was seen."""

    name: str
    share: float
    text: str
    evidence: str


def explain(c: Columns, slow: NDArray[np.int64], usual: NDArray[np.int64]) -> Cause:
    """What accounts for most of mean(wall of rows `slow`) - mean(wall of rows `usual`); unknown if nothing accounts for half of it."""
    excess = _excess(c.wall, slow, usual)
    if excess <= 0:
        return _unknown(c, slow, usual, 0.0)
    timed = {name: _excess(c.phases[name], slow, usual) for name in _TIMED} | {"gc": _excess(c.counters["gc_ns"], slow, usual)}
    seen = {name: f"{name} {ns / 1e6:+.1f} of {excess / 1e6:+.1f} ms" for name, ns in timed.items()}
    rest = excess - sum(ns for ns in timed.values() if ns > 0)
    if (traced := c.traced[slow].mean() - c.traced[usual].mean()) > 0.5:
        timed["profiler"], seen["profiler"] = excess * float(traced), "a profiler was open"
    elif rest > 0:
        name, evidence, claimed = _counted(c, slow, usual, rest, excess)
        if name:
            timed[name], seen[name] = claimed, evidence
    best = max(timed, key=lambda name: timed[name])
    share = min(1.0, timed[best] / excess)
    return Cause(name=best, share=share, text=_TEXTS[best], evidence=seen[best]) if share >= ENOUGH else _unknown(c, slow, usual, share)


def _counted(c: Columns, slow: NDArray[np.int64], usual: NDArray[np.int64], rest: float, excess: float) -> tuple[str, str, float]:
    """(name, evidence, nanoseconds) of the first counted cause that happened in the slow steps and hardly in the others."""
    for name, counter, unit in (("recompile", "compiles", "compilations"), ("allocator", "retries", "allocator retries")):
        here, there = float(c.counters[counter][slow].mean()), float(c.counters[counter][usual].mean())
        if here > 0 and here > 5 * there:
            return name, f"{here:.3g} {unit} a step against {there:.2g}", rest
    shape, count = np.unique(c.shape[slow], return_counts=True)
    common = int(shape[count.argmax()])
    if (c.shape[slow] == common).mean() > 0.5 and (c.shape[usual] == common).mean() < 0.1:
        others, counts = np.unique(c.shape[usual], return_counts=True)
        return "shape", f"{c.shapes[common]} instead of {c.shapes[int(others[counts.argmax()])]}", rest
    clock, before = (float(np.median(c.clock[rows])) for rows in (slow, usual))
    if clock < 0.97 * before:  # nan compares false
        busy = float(c.wall[usual].mean())
        return "clocks", f"{clock:.0f} MHz instead of {before:.0f}", min(rest, (before / clock - 1) * busy + 0.2 * excess)
    here, there = float(c.counters["switches"][slow].mean()), float(c.counters["switches"][usual].mean())
    if here > 10 and here > 3 * there:
        return "machine", f"{here:.0f} involuntary switches a step instead of {there:.1f}", 0.6 * rest  # likely, not certain
    return "", "", 0.0


def _excess(values: NDArray[np.int64], slow: NDArray[np.int64], usual: NDArray[np.int64]) -> float:
    return float(values[slow].mean() - values[usual].mean())


def _unknown(c: Columns, slow: NDArray[np.int64], usual: NDArray[np.int64], share: float) -> Cause:
    parts = {name: _excess(values, slow, usual) for name, values in c.phases.items()}
    most = max(parts, key=lambda name: parts[name])
    text = f"{_TEXTS['unknown']}; the time is spent in {most}"
    return Cause(name="unknown", share=share, text=text, evidence=f"{most} {parts[most] / 1e6:+.1f} ms")
