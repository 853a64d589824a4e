"""The kernel table of one device: every name with its launches, its time and its floor."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from headway.spec.kernel import KernelUse
from headway.trace.floor.floors import Floors
from headway.trace.host import Host
from headway.trace.launcher import Launchers
from headway.trace.sweep import Ints, classes
from headway.trace.windows import Windows
from headway.trace.work import BUCKETS, COMM, Work


def kernels(work: Work, windows: Windows, floors: Floors, host: Host, launchers: Launchers) -> tuple[KernelUse, ...]:
    """All kernels that start in a window, by time, longest first."""
    window = windows.of_time(work.start)
    inside = np.flatnonzero(window >= 0)
    if not len(inside):
        return ()
    length = (work.end - work.start)[inside]
    kinds = [*BUCKETS, *sorted({f"comm.{c.name}" for c in work.comm})]
    pairs, code = classes(work.name[inside], _kind(work, kinds)[inside])
    operator = _of_most(code, launchers.code[inside], length, len(pairs), launchers.names)
    of_module, modules = _modules(work, host, inside)
    module = _of_most(code, of_module, length, len(pairs), modules)
    num = len(windows.steps)
    by_window = np.bincount(code * num + window[inside], weights=length, minlength=len(pairs) * num).reshape(len(pairs), num)
    deviation = by_window.std(axis=1, ddof=1).tolist() if num > 1 else [None] * len(pairs)
    order = np.lexsort((length, code))
    bounds = np.searchsorted(code[order], np.arange(len(pairs) + 1))
    share = floors.share[inside][order]
    length = length[order]
    out = []
    for i, (name, kind) in enumerate(pairs.tolist()):
        mine = slice(bounds[i], bounds[i + 1])
        ns, part = length[mine], share[mine]
        known = ~np.isnan(part)
        out.append(
            KernelUse(
                name=work.names[name],
                kind=kinds[kind],
                count=len(ns),
                total_ns=int(ns.sum()),
                median_ns=int(ns[len(ns) // 2]),
                floor_ns=round(float((ns[known] * part[known]).sum())) if known.any() else None,
                known_ns=int(ns[known].sum()),
                num_steps=num,
                deviation_ns=deviation[i],
                operator=operator[i],
                module=module[i],
            )
        )
    return tuple(sorted(out, key=lambda k: (-k.total_ns, k.name)))


def merged(parts: Sequence[Sequence[KernelUse]]) -> tuple[KernelUse, ...]:
    """The tables of several traces of one device added up; a median becomes the mean of medians, by launches."""
    num_steps = sum(part[0].num_steps for part in parts if part)
    rows: dict[tuple[str, str], list[KernelUse]] = {}
    for k in chain.from_iterable(parts):
        rows.setdefault((k.name, k.kind), []).append(k)
    return tuple(sorted((_sum(ks, num_steps) for ks in rows.values()), key=lambda k: (-k.total_ns, k.name)))


def _sum(ks: Sequence[KernelUse], num_steps: int) -> KernelUse:
    """One kernel of several traces of `num_steps` windows; it is in no window of those that do not list it."""
    largest = max(ks, key=lambda k: k.total_ns)
    total = sum(k.total_ns for k in ks)
    absent = num_steps - sum(k.num_steps for k in ks)
    groups = [*((k.num_steps, k.total_ns / max(1, k.num_steps), k.deviation_ns or 0.0) for k in ks), (absent, 0.0, 0.0)]
    squares = sum((n - 1) * s * s + n * (m - total / max(1, num_steps)) ** 2 for n, m, s in groups if n)
    return replace(
        largest,
        count=sum(k.count for k in ks),
        total_ns=total,
        median_ns=round(sum(k.median_ns * k.count for k in ks) / sum(k.count for k in ks)),
        floor_ns=sum(k.floor_ns or 0 for k in ks) if any(k.floor_ns is not None for k in ks) else None,
        known_ns=sum(k.known_ns for k in ks),
        num_steps=num_steps,
        deviation_ns=math.sqrt(squares / (num_steps - 1)) if num_steps > 1 else None,
    )


def _of_most(group: Ints, code: Ints, length: Ints, num: int, names: Sequence[str]) -> list[str]:
    """For each of `num` groups the name under which most of its time is; "" for unknown (code -1)."""
    found = np.zeros(num, np.int64) - 1
    if len(names):
        total = np.bincount(group * (len(names) + 1) + code + 1, weights=length, minlength=num * (len(names) + 1))
        found = total.reshape(num, -1).argmax(axis=1) - 1
    return [names[i] if i >= 0 else "" for i in found.tolist()]


def _modules(work: Work, host: Host, rows: Ints) -> tuple[Ints, tuple[str, ...]]:
    """(code of the module of each row or -1, paths of modules with their numbers as *)."""
    if not host.modules:
        return np.full(len(rows), -1, np.int64), ()
    folded = [re.sub(r"\d+", "*", name) for name in host.modules]
    names = tuple(dict.fromkeys(folded))
    place = np.array([*(names.index(n) for n in folded), -1], np.int64)
    return place[host.module(work.track[rows], work.launched[rows])], names


def _kind(work: Work, kinds: Sequence[str]) -> Ints:
    """Code into `kinds` of each row: its bucket, or its collective."""
    of_comm = np.array([*(kinds.index(f"comm.{c.name}") for c in work.comm), COMM], np.int64)
    return np.where(work.level == COMM, of_comm[work.comm_of], work.level)
