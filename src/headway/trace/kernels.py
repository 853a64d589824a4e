"""The kernel table of one device: every name with its launches, its time and its floor."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headway.spec.breakdown import COMPUTE_CLASSES
from headway.spec.kernel import KernelUse
from headway.trace.floor.floors import Floors
from headway.trace.host import Host
from headway.trace.launcher import Launchers
from headway.trace.sweep import Ints, classes
from headway.trace.windows import Windows
from headway.trace.work import COMM, D2H, H2D, Work


def kernels(work: Work, windows: Windows, floors: Floors, host: Host, launchers: Launchers) -> tuple[KernelUse, ...]:
    """All kernels that start in a window, by time, longest first."""
    window = windows.of_time(work.start)
    inside = np.flatnonzero(window >= 0)
    if not len(inside):
        return ()
    length = (work.end - work.start)[inside]
    kinds = [*_NAMES, *(f"comm.{name}" for name in _collectives(work))]
    pairs, code = classes(work.name[inside], _kind(work)[inside])
    operator = _of_most(code, launchers.code[inside], length, len(pairs), launchers.names)
    module = _of_most(code, *_modules(work, host, inside, length, len(pairs)))
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
    steps = [part[0].num_steps if part else 0 for part in parts]
    rows: dict[tuple[str, str], list[tuple[int, KernelUse]]] = {}
    for i, part in enumerate(parts):
        for k in part:
            rows.setdefault((k.name, k.kind), []).append((i, k))
    out = [_sum([k for _, k in ks], sum(steps), [n for i, n in enumerate(steps) if i not in {j for j, _ in ks}]) for ks in rows.values()]
    return tuple(sorted(out, key=lambda k: (-k.total_ns, k.name)))


def _sum(ks: Sequence[KernelUse], num_steps: int, absent: Sequence[int]) -> KernelUse:
    """One kernel of several traces; `absent`: windows of those traces in which it never ran."""
    largest = max(ks, key=lambda k: k.total_ns)
    total = sum(k.total_ns for k in ks)
    groups = [(k.num_steps, k.total_ns / max(1, k.num_steps), k.deviation_ns or 0.0) for k in ks] + [(n, 0.0, 0.0) for n in absent]
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


def _modules(work: Work, host: Host, rows: Ints, length: Ints, num: int) -> tuple[Ints, Ints, int, tuple[str, ...]]:
    """Arguments of `_of_most` for module paths with their numbers as *."""
    if not host.modules:
        return np.full(len(rows), -1, np.int64), length, num, ()
    folded = [re.sub(r"\d+", "*", name) for name in host.modules]
    names = tuple(dict.fromkeys(folded))
    place = np.array([*(names.index(n) for n in folded), -1], np.int64)
    return place[host.module(work.track[rows], work.launched[rows])], length, num, names


_NAMES = (*(f"compute.{c}" for c in COMPUTE_CLASSES), "copy.h2d", "copy.d2h")


def _collectives(work: Work) -> list[str]:
    return sorted({c.name for c in work.comm})


def _kind(work: Work) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Code of each row's kind: into _NAMES, then the collectives."""
    code = np.where(work.level == H2D, len(COMPUTE_CLASSES), np.where(work.level == D2H, len(COMPUTE_CLASSES) + 1, work.level))
    names = _collectives(work)
    if names:
        of_comm = np.array([names.index(c.name) for c in work.comm], np.int64)
        code = np.where(work.level == COMM, len(_NAMES) + of_comm[np.maximum(work.comm_of, 0)], code)
    return code
