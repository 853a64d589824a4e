"""What two runs say of themselves, compared: settings, surroundings, counts of events, losses, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headway.spec.breakdown import Breakdown
from headway.spec.diff import Change, Setting
from headway.spec.field import walk
from headway.spec.memory import MemoryBreakdown
from headway.spec.run import RunSpec
from headway.trace.gather import Input

_SAID: Final = ("world", "device", "git", "versions", "num_parameters", "flops_per_sample")  # of a run's surroundings
_MISSING: Final = None
_KINDS: Final = ("cuda", "xpu", "mtia", "cpu", "hpu", "npu", "mps")  # of devices, as torch calls them


def settings(a: Input, b: Input) -> tuple[Setting, ...]:
    """Fields of run.json that differ: what makes the run itself first, then layout, stages, and what is around it."""
    kinds = {name: kind for name, (_, kind, _) in walk(RunSpec()).items()}
    out = [Setting(name=n, kind=_kind(n, kinds), a=x, b=y) for n, x, y in _differing(a.spec or {}, b.spec or {}) if n != "name"]
    out += [Setting(name=n, kind="", a=x, b=y) for n, x, y in _differing(_around(a), _around(b))]
    order = {"identity": 0, "layout": 1, "stage": 2, "": 3}
    return tuple(sorted(out, key=lambda s: order.get(s.kind, 3)))


def _around(given: Input) -> dict[str, Any]:
    return {k: given.info[k] for k in _SAID if k in given.info}


def _kind(name: str, kinds: Mapping[str, str]) -> str:
    """The kind of a field, or of the part of the settings that holds it."""
    while name:
        if name in kinds:
            return kinds[name]
        below = {kind for known, kind in kinds.items() if known.startswith(f"{name}.")}
        if len(below) == 1:
            return below.pop()
        name = name.rpartition(".")[0]
    return ""


def _differing(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any, Any]]:
    """(dotted name, value in a, value in b) of leaves that differ; None where one side has none."""
    out: list[tuple[str, Any, Any]] = []
    for key in dict.fromkeys((*a, *b)):
        x, y = a.get(key, _MISSING), b.get(key, _MISSING)
        if isinstance(x, Mapping) and isinstance(y, Mapping):
            out += _differing(x, y, f"{prefix}{key}.")
        elif x != y:
            out.append((f"{prefix}{key}", x, y))
    return out


def events(a: Input, b: Input, found_a: Breakdown, found_b: Breakdown) -> tuple[Change, ...]:
    """Counts of what happened on each side, where one of them has any: cliffs by cause, and what step lines say of themselves."""
    ours, theirs = _counts(a, found_a), _counts(b, found_b)
    rows = [Change(name=n, a=ours[n], b=theirs[n], delta=theirs[n] - ours[n]) for n in sorted({*ours, *theirs})]
    return tuple(sorted(rows, key=lambda c: -abs(c.delta)))


def _counts(given: Input, found: Breakdown) -> Counter[str]:
    counts = Counter(f"cliffs: {c.cause}" for c in found.cliffs)
    for notes in given.events.notes.values():
        for note in notes.values():
            for key in ("compiles", "retries"):
                if isinstance(note.get(key), int) and note[key] > 0:
                    counts[key] += note[key]
            counts["steps with garbage collection"] += bool(note.get("gc_ns"))
    return +counts


def loss(a: Input, b: Input) -> dict[str, float] | None:
    """The loss of both at the last number of samples that both logged; None if there is none."""
    tables = []
    for given in (a, b):
        rows = [(row.get("samples"), row.get("loss")) for row in given.events.logs]
        tables.append({s: float(v) for s, v in rows if isinstance(s, int) and isinstance(v, (int, float))})
    both = tables[0].keys() & tables[1].keys()
    last = max(both, default=None)
    return None if last is None else {"samples": float(last), "a": tables[0][last], "b": tables[1][last]}


def memory(a: Breakdown, b: Breakdown) -> tuple[tuple[Change, ...], Change | None, tuple[str, str], list[str]]:
    """(parts, total, device of each side, warnings) of the device of each side that reserves most: the one that runs out first."""
    if not a.memory or not b.memory:
        one = "A" if a.memory else "B" if b.memory else ""
        return (), None, ("", ""), [f"only {one} recorded its memory: it is not compared"] if one else []
    x, y = (max(side.memory, key=lambda m: m.reserved_bytes) for side in (a, b))
    names = sorted({*x.parts, *y.parts})
    rows = [_bytes(n, x.parts.get(n, 0), y.parts.get(n, 0)) for n in names]
    rows = [c for c in rows if c.a or c.b]
    said = (
        []
        if x.measured == y.measured
        else [f"memory of A is from {_how(x)}, of B from {_how(y)}: its parts are told apart by different means"]
    )
    total = _bytes("reserved", x.reserved_bytes, y.reserved_bytes)
    return tuple(sorted(rows, key=lambda c: (-abs(c.delta), -c.a, c.name))), total, (_device(x), _device(y)), said


def _bytes(name: str, a: int, b: int) -> Change:
    """A peak is one number: it has no spread."""
    return Change(name=name, a=a, b=b, delta=b - a, verdict="same" if a == b else "unknown")


def _device(m: MemoryBreakdown) -> str:
    return f"rank {m.rank} {m.device}"


def _how(m: MemoryBreakdown) -> str:
    return {"snapshot": "a snapshot", "profiler": "the profiler", "counters": "counters"}.get(m.measured, m.measured)


def models(b: Breakdown, given: Input) -> tuple[str, ...]:
    """Names of the devices, as far as trace or run tells them; else their kinds."""
    named = [m for m in (b.summary.get("ceilings") or {}) if m]
    kinds = dict.fromkeys(r.device.partition(":")[0] for r in b.ranks)
    device = given.info.get("device")
    return tuple(named or ([str(device)] if device else []) or kinds)


def comparable(a: Sequence[str], b: Sequence[str]) -> tuple[str, str]:
    """Both as text; "" twice where one is a model and of the other only the kind is known, which tells nothing."""
    unnamed = [all(d in _KINDS for d in side) for side in (a, b)]
    return ("", "") if unnamed[0] != unnamed[1] else (", ".join(a), ", ".join(b))


def world(b: Breakdown, given: Input) -> int | None:
    """Number of ranks of the run."""
    said = b.summary.get("world")
    return int(said) if isinstance(said, int) else int(given.info["world"]) if isinstance(given.info.get("world"), int) else None


def batch(given: Input) -> int | None:
    """Samples of a step over all ranks."""
    size = (given.spec or {}).get("global_batch")
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def sentence_of(names: Sequence[str], most: int = 3) -> str:
    """A few of many names."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
