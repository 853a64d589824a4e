"""Kernels of two sides put together: by name, then by the place that launched them, so that one product is one row on any GPU.

What has no partner of its own name is grouped by where it came from, in this order:

    module, operator and kind     the matrix products of blocks.*.attn on an H100 and on an MI300X
    module and kind               where operators differ
    operator and kind             where modules are not known
    fused                         all compute of a module, where one side fused some of it (compiled against eager)

Groups of a level that both sides have become one row; the rest goes on to the next, and what is left ran on one side only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from headway.spec.breakdown import Breakdown
from headway.spec.diff import Change, KernelChange, Verdict, What
from headway.spec.kernel import KernelUse
from headway.stats.difference import Moments, apportion, mean_difference
from headway.trace.diff.steps import CONFIDENCE, change

Key = tuple[str, ...]
_FUSED: Final = re.compile(r"triton_|^fused_|jit_fusion|^Fused", re.IGNORECASE)
_COUNTS: Final = 0.005  # relative difference of launches or of their length that is given a name


@dataclass(frozen=True)
class Uses:
    """The kernels of one side, added over its devices. `rows`: traced steps of all devices; `sums`: their whole nanoseconds."""

    kernels: tuple[KernelUse, ...]
    rows: int
    busy_ns: int

    @property
    def total_ns(self) -> int:
        """All spans added up."""
        return sum(k.total_ns for k in self.kernels)


def uses(b: Breakdown) -> Uses:
    """The kernels of `b` over all traced steps, and how long its devices were busy in them."""
    tables: dict[tuple[str, str], list[KernelUse]] = {}
    for rank in b.ranks:
        for k in rank.kernels:
            tables.setdefault((k.name, k.kind), []).append(k)
    steps = [s for r in b.ranks for s in r.steps if s.buckets]
    busy = sum(ns for s in steps for name, ns in s.buckets.items() if not name.startswith("idle."))
    devices = sum(1 for r in b.ranks if any(s.buckets for s in r.steps))
    return Uses(tuple(_added(ks, devices) for ks in tables.values()), len(steps), busy)


def _added(ks: Sequence[KernelUse], devices: int) -> KernelUse:
    """One kernel of several devices. Its deviation is that of the mean over devices if all of them vary together."""
    known = [k.deviation_ns for k in ks if k.deviation_ns is not None]
    return replace(
        max(ks, key=lambda k: k.total_ns),
        count=sum(k.count for k in ks),
        total_ns=sum(k.total_ns for k in ks),
        deviation_ns=sum(known) / max(devices, 1) if len(known) == len(ks) else None,
        num_steps=min(k.num_steps for k in ks),
    )


@dataclass(frozen=True)
class _Pair:
    a: tuple[KernelUse, ...]
    b: tuple[KernelUse, ...]
    matched: str


def aligned(a: Iterable[KernelUse], b: Iterable[KernelUse]) -> list[_Pair]:
    """Every kernel of both sides in exactly one pair."""
    rest_a, rest_b = list(a), list(b)
    pairs: list[_Pair] = []
    for matched, key in _LEVELS:
        if matched == "operator":
            pairs, loose = _loosened(pairs, {key(k) for k in (*rest_a, *rest_b)} - {()}, key)
            rest_a += [k for p in loose for k in p.a]
            rest_b += [k for p in loose for k in p.b]
        groups_a, groups_b = _grouped(rest_a, key), _grouped(rest_b, key)
        found = [_Pair(tuple(groups_a[p]), tuple(groups_b[p]), matched) for p in groups_a if p and p in groups_b]
        found = [p for p in found if matched != "fused" or any(_FUSED.search(k.name) for k in (*p.a, *p.b))]
        pairs += found
        both = {key(p.a[0]) for p in found}
        rest_a = [k for k in rest_a if key(k) not in both]
        rest_b = [k for k in rest_b if key(k) not in both]
    return [*pairs, *(_Pair((k,), (), "") for k in rest_a), *(_Pair((), (k,), "") for k in rest_b)]


def _loosened(pairs: Sequence[_Pair], wanted: set[Key], key: Callable[[KernelUse], Key]) -> tuple[list[_Pair], list[_Pair]]:
    """(pairs that stay, pairs to be put together anew by operator): a kernel that one side runs in several modules is counted under
    the first of them, so the other side's kernels of the rest have no partner but this one."""
    loose = [p for p in pairs if p.matched != "name" and any(key(k) in wanted for k in (*p.a, *p.b))]
    return [p for p in pairs if p not in loose], loose


def _grouped(kernels: Iterable[KernelUse], key: Callable[[KernelUse], Key]) -> dict[Key, list[KernelUse]]:
    groups: dict[Key, list[KernelUse]] = {}
    for k in kernels:
        groups.setdefault(key(k), []).append(k)
    return groups


def _place(k: KernelUse, *, module: bool, operator: bool, kind: bool = True) -> Key:
    """What puts kernels together; () where it is not known."""
    if (module and not k.module) or (operator and not k.operator) or not (kind or k.kind.startswith("compute.")):
        return ()
    return (k.module if module else "", _operator(k.operator) if operator else "", k.kind if kind else "compute")


def _operator(name: str) -> str:
    """An operator by what it computes: the vendor's name for it taken away."""
    return re.sub(r"(cudnn|miopen)_", "", re.sub(r"\d+", "*", name)).removesuffix("_")


_LEVELS: Final[tuple[tuple[str, Callable[[KernelUse], Key]], ...]] = (
    ("name", lambda k: (k.name, k.kind)),
    ("module and operator", partial(_place, module=True, operator=True)),
    ("module", partial(_place, module=True, operator=False)),
    ("operator", partial(_place, module=False, operator=True)),
    ("fused", partial(_place, module=True, operator=False, kind=False)),
)


def compare(a: Uses, b: Uses) -> tuple[tuple[KernelChange, ...], Change, Change, Change]:
    """(rows, largest difference first; kernel time; overlap; busy time): rows add up to kernel time, which less overlap is busy time."""
    pairs = aligned(a.kernels, b.kernels)
    mean_a = apportion([sum(k.total_ns for k in p.a) for p in pairs], a.rows)
    mean_b = apportion([sum(k.total_ns for k in p.b) for p in pairs], b.rows)
    rows = [_row(p, x, y, a.rows, b.rows) for p, x, y in zip(pairs, mean_a, mean_b, strict=True)]
    once_a, once_b = apportion([a.busy_ns], a.rows)[0], apportion([b.busy_ns], b.rows)[0]
    one = Moments(mean=0.0, deviation=0.0, n=1)
    time, busy = change("kernels", sum(mean_a), sum(mean_b), one, one), change("busy", once_a, once_b, one, one)
    overlap = change("overlap", sum(mean_a) - once_a, sum(mean_b) - once_b, one, one)
    return tuple(sorted(rows, key=lambda k: (-abs(k.delta_ns), -k.a_ns, k.name_a, k.name_b))), time, overlap, busy


def _row(pair: _Pair, a_ns: int, b_ns: int, rows_a: int, rows_b: int) -> KernelChange:
    """count_ns = (n_B - n_A)(t_A + t_B) / 2, duration_ns = (t_B - t_A)(n_A + n_B) / 2 of n launches of t ns; one side only: all count."""
    count_a, count_b = sum(k.count for k in pair.a) / rows_a, sum(k.count for k in pair.b) / rows_b
    delta = b_ns - a_ns
    each_a, each_b = (ns / n if n else None for ns, n in ((a_ns, count_a), (b_ns, count_b)))
    by_count = delta if each_a is None or each_b is None else round((count_b - count_a) * (each_a + each_b) / 2)
    largest = max((*pair.a, *pair.b), key=lambda k: k.total_ns)
    kinds = {k.kind for k in (*pair.a, *pair.b)}
    return KernelChange(
        what=_what(count_a, count_b, by_count, delta - by_count, max(a_ns, b_ns)),
        name_a=_named(pair.a),
        name_b=_named(pair.b),
        kind=largest.kind if len(kinds) == 1 else "compute",
        count_a=count_a,
        count_b=count_b,
        a_ns=a_ns,
        b_ns=b_ns,
        delta_ns=delta,
        count_ns=by_count,
        duration_ns=delta - by_count,
        matched=pair.matched,
        operator=largest.operator,
        module=largest.module,
        verdict=_verdict(pair, delta),
    )


def _named(kernels: Sequence[KernelUse]) -> str:
    """The longest of them by time, and how many more there are."""
    if not kernels:
        return ""
    more = f" and {len(kernels) - 1} more" if len(kernels) > 1 else ""
    return max(kernels, key=lambda k: k.total_ns).name + more


def _what(count_a: float, count_b: float, by_count: int, by_length: int, largest: int) -> What:
    """The word for what happened: the larger of the two effects names it."""
    if not count_a or not count_b:
        return "appeared" if count_b else "vanished"
    if max(abs(by_count), abs(by_length)) <= _COUNTS * largest:
        return "same"
    if abs(by_count) > abs(by_length):
        return "more calls" if by_count > 0 else "fewer calls"
    return "slower" if by_length > 0 else "faster"


def _verdict(pair: _Pair, delta: int) -> Verdict:
    """By the spread of each kernel between steps; a side that never runs it has none."""
    if delta == 0:
        return "same"
    a, b = _spread(pair.a), _spread(pair.b)
    never = Moments(mean=0.0, deviation=0.0, n=max(s.n for s in (a, b) if s is not None))
    interval = mean_difference(a or never, b or never, confidence=CONFIDENCE)
    return "unknown" if interval is None else "real" if abs(delta) > interval.half_width else "noise"


def _spread(kernels: Sequence[KernelUse]) -> Moments | None:
    """Of kernels added up as if they vary together (an upper bound); of one sample where no spread is known; None without kernels."""
    if not kernels:
        return None
    known = [k.deviation_ns for k in kernels if k.deviation_ns is not None]
    if len(known) < len(kernels):
        return Moments(mean=0.0, deviation=0.0, n=1.0)
    return Moments(mean=0.0, deviation=float(sum(known)), n=float(min(k.num_steps for k in kernels)))
