"""From a `History` to its `MemoryBreakdown`: the peak, what held it, what grew, and what would make it smaller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headway.spec.breakdown import Health
from headway.spec.memory import Failure, Held, MemoryBreakdown, Pin
from headway.trace.memory import kinds
from headway.trace.memory.growth import leaks
from headway.trace.memory.history import Action, History
from headway.trace.memory.layout import free_parts, layout, pins
from headway.trace.memory.lives import Lives, allocated, lives, reserved, totals
from headway.trace.memory.repeat import repeats
from headway.trace.memory.saving import savings
from headway.trace.memory.steps import step_ends
from headway.trace.sweep import NEVER, Ints, Steps, classes

NUM_HELD = 40
NUM_FAILURES = 5
NUM_POINTS = 240  # of the curve


@dataclass(frozen=True)
class Beside:
    """What a trace or the events of the same rank know: when steps ended, and which module the training thread was in."""

    step_ends: Mapping[int, int] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    module_at: Steps = NEVER  # time in nanoseconds -> code of a module


def account(history: History, rank: int, *, beside: Beside | None = None, spec: Mapping[str, Any] | None = None) -> MemoryBreakdown:
    """The breakdown of one device. `spec` is the plain RunSpec of the run, if it is one of ours."""
    beside = beside or Beside()
    of, n = lives(history), len(history)
    known = allocated(of, n)
    taken = totals(history) if len(history.allocated) else known
    held = reserved(history)
    held, taken, health = _consistent(held, taken, known, history)
    moment = peak(held, taken)
    label, labels = _labels(history, of, beside)
    rows, waiting = of.at(moment), of.awaiting(moment)
    parts = _sums(of, rows, label, labels)
    rest = int(taken[moment]) - sum(parts.values())
    if rest:  # a profiler's own total counts blocks from before it began
        parts["unknown.before"] = parts.get("unknown.before", 0) + rest
    free = int(held[moment] - taken[moment])
    num_segments: int | None = None
    pinned: tuple[Pin, ...] = ()
    if history.layout:
        plan = layout(history, of, moment, rows, waiting)
        num_segments, pinned = len(plan.start), pins(plan, of, rows, labels, label[rows])
        why = free_parts(plan, int(of.size[waiting].sum()), free)
        health += _strays(plan.strays)
    else:
        why = {"unseen": free}
    parts |= {f"fragmentation.{name}": num for name, num in why.items() if num}
    ends = step_ends(history, [kinds.part_of(s) for s in history.sites], beside.step_ends)
    found = MemoryBreakdown(
        rank=rank,
        device=history.device,
        source=history.source,
        measured="snapshot" if history.layout else "profiler",
        reserved_bytes=int(held[moment]),
        allocated_bytes=int(taken[moment]),
        parts=dict(sorted(parts.items(), key=lambda kv: (-kv[1], kv[0]))),
        time_ns=int(history.time[moment - 1]) if moment and history.time[moment - 1] >= 0 else None,
        step=ends.of(moment),
        event=moment,
        num_events=n,
        num_segments=num_segments,
        held=_held(of, rows, label, labels),
        pins=pinned,
        growth=leaks(of, ends.moment, label, labels),
        num_steps=len(ends.moment),
        steps_from=ends.told,
        failures=_failures(history, of, held, taken),
        curve=_curve(history, held, taken),
        health=(*history.health, *health, *_doubts(history, of, rows)),
    )
    found.check()
    expandable = bool(history.segments.expandable.any())
    recomputes = any("torch/utils/checkpoint" in f.file for s in history.sites for f in s.frames)
    trains = any(kinds.part_of(s) == "gradients" for s in history.sites)  # without a backward nothing is kept for one
    repeated = repeats(history.sites, of, rows) if trains and not recomputes else ()
    told = savings(found, spec, repeated=repeated, expandable=expandable)
    return replace(found, savings=told, held=found.held[:NUM_HELD])


def peak(held: Ints, taken: Ints) -> int:
    """The moment at which most is reserved; among these, most is allocated: what is free then no packing of this peak needs."""
    most = np.flatnonzero(held == held.max())
    return int(most[taken[most].argmax()])


def _consistent(held: Ints, taken: Ints, known: Ints, history: History) -> tuple[Ints, Ints, tuple[Health, ...]]:
    """Curves in which allocated is at least what is known to live and at most what is reserved, and how often that was not so."""
    taken = np.maximum(taken, known)
    if not history.layout and not held.any():  # a device without a caching allocator, as a CPU
        return taken, taken, ()
    wrong = int((taken > held).sum())
    text = "moments at which more is in use than is reserved: events are missing or broken; what is in use counts as reserved"
    return np.maximum(held, taken), taken, (Health(what="inconsistent", count=wrong, affects="memory", text=text),) if wrong else ()


def _labels(history: History, of: Lives, beside: Beside) -> tuple[Ints, list[tuple[str, str]]]:
    """For each life a code, and (where, part) of each code."""
    site_parts = [kinds.part_of(s) or "unknown.frames" for s in history.sites] + ["unknown.before"]
    names = list(dict.fromkeys(site_parts))
    code = {name: i for i, name in enumerate(names)}
    part = np.array([code[p] for p in site_parts], np.int64)[of.site]  # -1, no site, is the last
    part = np.where((of.site < 0) & ~of.before, code.setdefault("unknown.frames", len(code)), part)  # asked for without a stack
    part = _marked(history, of, beside, part, code)
    for named, row in _named(history, of):
        part[row] = code.setdefault(named, len(code))
    names = list(code)
    pairs, label = classes(of.site, part)
    places = [kinds.where(s) for s in history.sites] + ["(before the recording)"]
    return label, [(places[s] if s >= 0 or names[p] != "unknown.frames" else "(no stack)", names[p]) for s, p in pairs.tolist()]


def _marked(history: History, of: Lives, beside: Beside, part: Ints, code: dict[str, int]) -> Ints:
    """Activations by the module that was marked on the training thread when they were asked for; a stack knows files, not instances."""
    is_activation = np.array([n.startswith("activations") and n != "activations.(input)" for n in code], bool)
    rows = np.flatnonzero(is_activation[part] & (of.born > 0)) if len(of) else part
    modules, at = (history.modules, history.module_at) if history.modules else (beside.modules, beside.module_at)
    if not modules or not len(rows):
        return part
    module = at.at(history.time[of.born[rows] - 1])
    out = part.copy()
    for i in np.unique(module[module >= 0]).tolist():
        out[rows[module == i]] = code.setdefault(f"activations.{modules[i] or '(no module)'}", len(code))
    return out


def _named(history: History, of: Lives) -> list[tuple[str, int]]:
    """(part, life) of each block that holds tensors which the program named when it took the snapshot; most bytes win."""
    last = of.at(len(history))
    if not history.named or not len(last):
        return []
    last = last[np.argsort(of.address[last])]
    address = np.array([t.address for t in history.named], np.int64)
    row = last[np.maximum(np.searchsorted(of.address[last], address, side="right") - 1, 0)]
    bytes_of: dict[int, dict[str, int]] = {}
    for tensor, life in zip(history.named, row.tolist(), strict=True):
        if of.address[life] <= tensor.address < of.address[life] + of.size[life]:
            sums = bytes_of.setdefault(life, {})
            sums[tensor.part] = sums.get(tensor.part, 0) + tensor.size
    return [(max(sorted(sums), key=lambda p: sums[p]), life) for life, sums in bytes_of.items()]


def _sums(of: Lives, rows: Ints, label: Ints, labels: list[tuple[str, str]]) -> dict[str, int]:
    sums = np.zeros(len(labels), np.int64)
    np.add.at(sums, label[rows], of.size[rows])
    parts: dict[str, int] = {}
    for (_, part), num in zip(labels, sums.tolist(), strict=True):
        if num:
            parts[part] = parts.get(part, 0) + num
    return parts


def _held(of: Lives, rows: Ints, label: Ints, labels: list[tuple[str, str]]) -> tuple[Held, ...]:
    sums, count = np.zeros(len(labels), np.int64), np.bincount(label[rows], minlength=len(labels))
    np.add.at(sums, label[rows], of.size[rows])
    order = np.argsort(-sums, kind="stable")
    return tuple(
        Held(where=labels[i][0], part=labels[i][1], num_blocks=int(count[i]), num_bytes=int(sums[i])) for i in order.tolist() if sums[i]
    )


def _curve(history: History, held: Ints, taken: Ints) -> tuple[tuple[int, int, int], ...]:
    """The largest of each stretch of moments, of equal time where times are known."""
    if not len(history):
        return ((0, int(held[0]), int(taken[0])),)
    timed = bool((history.time >= 0).all())
    at = history.time if timed else np.arange(1, len(history) + 1)
    at = np.concatenate((at[:1], at))
    span = max(1, int(at[-1] - at[0]) + 1)
    first = np.unique(np.minimum((at - at[0]) // -(-span // NUM_POINTS), NUM_POINTS - 1), return_index=True)[1]
    return tuple(
        zip(at[first].tolist(), np.maximum.reduceat(held, first).tolist(), np.maximum.reduceat(taken, first).tolist(), strict=True)
    )


def _failures(history: History, of: Lives, held: Ints, taken: Ints) -> tuple[Failure, ...]:
    """The last requests that failed, with what was free then and what of it was in one piece."""
    out = []
    for event in history.rows(Action.OOM)[-NUM_FAILURES:].tolist():
        plan = layout(history, of, event, of.at(event), of.awaiting(event)) if history.layout else None
        left = int(history.address[event])
        out.append(
            Failure(
                requested_bytes=int(history.size[event]),
                reserved_bytes=int(held[event]),
                allocated_bytes=int(taken[event]),
                largest_free_bytes=int(plan.largest.max(initial=0)) if plan is not None else None,
                device_free_bytes=left if left >= 0 else None,
            )
        )
    return tuple(out)


def _strays(count: int) -> tuple[Health, ...]:
    text = "blocks that lie in no reserved segment: events are missing"
    return (Health(what="stray_blocks", count=count, affects="blocks that pin segments", text=text),) if count else ()


def _doubts(history: History, of: Lives, rows: Ints) -> list[Health]:
    out = []
    if of.num_lost:
        text = "blocks whose free was not recorded; each counts until its address is given out again"
        out.append(Health(what="lost_frees", count=of.num_lost, affects="memory", text=text))
    before = rows[of.before[rows] & (of.site[rows] < 0)]
    if len(before) and len(history):
        text = "blocks alive at the peak are older than the recording: start it before the model is built to know what they are"
        out.append(Health(what="recorded_late", count=len(before), affects="parts of memory", text=text))
    empty = [i for i, s in enumerate(history.sites) if not s.frames and not s.phase and not s.operator]
    bare = int(np.isin(of.site[rows], empty).sum()) if empty else 0
    if bare:
        text = "blocks from threads without Python frames are taken for autograd's; record with stacks='all' to be sure"
        out.append(Health(what="python_stacks", count=bare, affects="gradients", text=text))
    return out
