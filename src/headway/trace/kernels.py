"""The kernel table of one device: every name with its launches, its time and its floor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headway.spec.breakdown import COMPUTE_CLASSES
from headway.spec.kernel import KernelUse
from headway.trace.floor.floors import Floors
from headway.trace.sweep import classes
from headway.trace.windows import Windows
from headway.trace.work import COMM, D2H, H2D, Work


def kernels(work: Work, windows: Windows, floors: Floors) -> tuple[KernelUse, ...]:
    """All kernels that start in a window, by time, longest first."""
    inside = np.flatnonzero(windows.of_time(work.start) >= 0)
    if not len(inside):
        return ()
    length = (work.end - work.start)[inside]
    pairs, code = classes(work.name[inside], _kind(work)[inside])
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
                kind=_NAMES[kind] if kind < len(_NAMES) else f"comm.{_collectives(work)[kind - len(_NAMES)]}",
                count=len(ns),
                total_ns=int(ns.sum()),
                median_ns=int(ns[len(ns) // 2]),
                floor_ns=round(float((ns[known] * part[known]).sum())) if known.any() else None,
                known_ns=int(ns[known].sum()),
            )
        )
    return tuple(sorted(out, key=lambda k: (-k.total_ns, k.name)))


def merged(parts: Sequence[Sequence[KernelUse]]) -> tuple[KernelUse, ...]:
    """The tables of several windows of one device added up; a median becomes the mean of medians, by launches."""
    rows: dict[tuple[str, str], list[KernelUse]] = {}
    for part in parts:
        for k in part:
            rows.setdefault((k.name, k.kind), []).append(k)
    out = [
        KernelUse(
            name=name,
            kind=kind,
            count=sum(k.count for k in ks),
            total_ns=sum(k.total_ns for k in ks),
            median_ns=round(sum(k.median_ns * k.count for k in ks) / sum(k.count for k in ks)),
            floor_ns=sum(k.floor_ns or 0 for k in ks) if any(k.floor_ns is not None for k in ks) else None,
            known_ns=sum(k.known_ns for k in ks),
        )
        for (name, kind), ks in rows.items()
    ]
    return tuple(sorted(out, key=lambda k: (-k.total_ns, k.name)))


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
