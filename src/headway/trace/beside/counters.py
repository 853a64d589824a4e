"""Counters of kernels joined to the kernels of a trace: by name and, within a name, by the order of launches.

The k-th profiled launch of a name is the k-th in the trace, as far as either goes, on every device: all ranks run the same program.
Names differ in how a demangler writes them, so casts, spaces and return types do not count; where the profiler kept the bare function,
it is joined if one kernel of the trace has that name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from headway.spec.counters import KernelCounters
from headway.spec.health import Health
from headway.spec.kernel import KernelUse
from headway.trace.work import Work

_CAST: Final = re.compile(r"\((?:unsigned )?(?:int|bool|char|short|long long|long)\)(?=-?[\w\d])")
_SHARES: Final = ("dram_share", "compute_share", "tensor_share", "occupancy")


def counted(kernels: Sequence[KernelUse], work: Work, counters: Sequence[KernelCounters]) -> tuple[KernelUse, ...]:
    """`kernels` of one device with the shares that its launches reached, weighted by their time in the trace."""
    if not counters:
        return tuple(kernels)
    groups = _matches([k.name for k in kernels], counters)
    out = []
    for kernel in kernels:
        group = groups.get(kernel.name)
        rows = np.flatnonzero(work.name == work.names.index(kernel.name)) if group else np.zeros(0, np.int64)
        if not group or not len(rows):
            out.append(kernel)
            continue
        pairs = list(zip(group, (work.end - work.start)[rows].tolist(), strict=False))
        shares = {field: _mean([(getattr(c, field), ns) for c, ns in pairs]) for field in _SHARES}
        moved = [c.dram_bytes for c, _ in pairs if c.dram_bytes is not None]
        mean = round(sum(moved) / len(moved)) if moved else None
        out.append(replace(kernel, counted=len(pairs), dram_bytes=mean, **shares))  # type: ignore[arg-type]
    return tuple(out)


def health(names: Sequence[str], counters: Sequence[KernelCounters]) -> list[Health]:
    """Counters that belong to no kernel of the traces."""
    joined = _matches(sorted(set(names)), counters)
    lost = {c.name for c in counters} - {c.name for group in joined.values() for c in group}
    if not lost or not names:
        return []
    shown = sorted(lost)[0][:80] + (", ..." if len(lost) > 1 else "")
    text = f"profiled kernels that no trace has, or several have by this name: {shown}"
    return [Health(what="counters_unmatched", count=len(lost), affects="shares of kernels", text=text)]


def plain(name: str) -> str:
    """A name without what demanglers write differently."""
    return re.sub(r"\s+", "", _CAST.sub("", name).removeprefix("void "))


def function(name: str) -> str:
    """The bare function: no return type, namespace, template or arguments."""
    depth, out = 0, []
    for letter in name.replace("(anonymous namespace)", "").removeprefix("void "):
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and letter == "(":
            break
        if depth == 0 and letter != ">":
            out.append(letter)
    return "".join(out).rpartition("::")[2].strip()


def _matches(names: Sequence[str], counters: Sequence[KernelCounters]) -> dict[str, list[KernelCounters]]:
    """Kernel of the trace -> its profiled launches in order."""
    by_plain = {plain(n): n for n in names}
    by_function: dict[str, set[str]] = defaultdict(set)
    for n in names:
        by_function[function(n)].add(n)
    out: dict[str, list[KernelCounters]] = defaultdict(list)
    for c in counters:
        candidates = by_function.get(function(c.name), set()) if "<" not in c.name else set()
        found = by_plain.get(plain(c.name)) or (next(iter(candidates)) if len(candidates) == 1 else None)
        if found is not None:
            out[found].append(c)
    return out


def _mean(pairs: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, ns) for value, ns in pairs if value is not None]
    total = sum(ns for _, ns in known)
    if not known:
        return None
    return sum(value * ns for value, ns in known) / total if total else sum(value for value, _ in known) / len(known)
