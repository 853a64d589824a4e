"""`explain(paths)`: where the time of every step went, for a run folder, Kineto traces, or folders of them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headway.spec.breakdown import Breakdown, Health, RankBreakdown, StepBreakdown
from headway.spec.errors import TraceError
from headway.trace import health as doubts
from headway.trace.attribute import attribute
from headway.trace.cliff.find import cliffs
from headway.trace.events import Events, read_events
from headway.trace.findings import findings
from headway.trace.host import Host, hosts
from headway.trace.ranks.wait import Seat, arrivals, lateness
from headway.trace.read.file import FIX, read
from headway.trace.summary import summarise
from headway.trace.table import Table
from headway.trace.windows import windows
from headway.trace.work import works

_RANK = re.compile(r"(?:rank|worker)[-_.]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Input:
    """What the paths lead to: trace files, and what a run folder says beside them."""

    files: tuple[Path, ...]
    certain: frozenset[Path] = frozenset()  # files named by the user: one that is no trace is an error
    spec: dict[str, Any] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    events: Events = field(default_factory=Events)


def explain(paths: Sequence[str | Path], *, on_file: Callable[[Path], None] | None = None) -> Breakdown:
    """The breakdown of all traces that `paths` lead to; they are taken as ranks of one run. `on_file` is called before each is read.

    Raises TraceError if a path is missing, is not a trace, or holds nothing to explain.
    """
    given = _gather([Path(p) for p in paths])
    tables, notes = _read(given, on_file)
    ranked, renamed = _ranks(tables)
    seats: list[Seat] = []
    host_of: list[Host] = []
    sources: list[str] = []
    notes += renamed
    for rank, table in ranked:
        host = hosts(table)
        notes += doubts.of_table(table, rank)
        for work in works(table, host):
            seats.append(Seat(rank, work, windows(table, work), table.host))
            host_of.append(host)
            sources.append(table.source)
            notes += doubts.of_work(work, rank)
    last, matched = arrivals(seats)
    measured = [
        RankBreakdown(rank=s.rank, device=s.work.device, steps=attribute(s.work, s.windows, h, a), source=source)
        for s, h, a, source in zip(seats, host_of, last, sources, strict=True)
    ]
    rows = _with_flops(_merge(measured, given), given)
    if not rows:
        raise TraceError("nothing to explain: no spans on any thread or device", where=str(paths[0]), fix=FIX)
    world = _world([t for _, t in ranked], given)
    notes += [*given.events.health, *matched, *_missing(rows, world)]
    summary = summarise(rows, world)
    return Breakdown(
        ranks=tuple(rows),
        health=(*notes, *doubts.of_steps(summary)),
        summary={**summary, "samples_s": _rate(summary, given)},
        findings=findings(rows, lateness(seats, last), given.spec),
        cliffs=cliffs(given.events),
    )


# ---- what the paths lead to ----


def _gather(paths: Sequence[Path]) -> Input:
    if not paths:
        raise TraceError("no path given", fix=FIX)
    found = [_one(p) for p in paths]
    runs = [i for i in found if i.spec is not None]
    if len(runs) > 1:
        raise TraceError("two run folders at once", where=str(paths[0]), fix="Explain one run at a time.")
    base = runs[0] if runs else Input(())
    files = dict.fromkeys(f for i in found for f in i.files)
    return replace(base, files=tuple(files), certain=frozenset(f for i in found for f in i.certain))


def _one(path: Path) -> Input:
    if not path.exists():
        raise TraceError("no such trace", where=str(path), fix=FIX)
    if not path.is_dir():
        return Input((path,), frozenset((path,)))
    if (path / "run.json").is_file():
        return _run(path)
    files = _traces(path)
    if not files:
        raise TraceError("no trace in this folder (.json, .json.gz)", where=str(path), fix=FIX)
    return Input(files)


def _run(path: Path) -> Input:
    """A run folder: its settings, its events, its traces."""
    try:
        data = json.loads((path / "run.json").read_bytes())
        spec, info = data["spec"], data.get("info") or {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceError(f"run.json cannot be read ({error})", where=str(path), fix="Give its trace files by themselves.") from None
    files, events = _traces(path / "traces"), read_events(path)
    if not files and not any(events.steps.values()):
        fix = "Train a step, or profile some: --observe.profile-steps 20-24, or headway profile RUN."
        raise TraceError("the run has no traces and no steps yet", where=str(path), fix=fix)
    return Input(files, spec=spec, info=info, events=events)


def _traces(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(p for p in folder.glob("*") if p.name.endswith((".json", ".json.gz")) and p.is_file()))


def _read(given: Input, on_file: Callable[[Path], None] | None) -> tuple[list[Table], list[Health]]:
    """All traces. In a folder, files that are no traces are passed over and counted, unless none is left."""
    tables, passed = [], []
    for path in given.files:
        if on_file is not None:
            on_file(path)
        try:
            tables += [doubts.refuse_impossible(t) for t in read(path).tables]
        except TraceError as error:
            if path in given.certain:
                raise
            passed.append((path, error))
    if passed and not tables and not given.events.steps:
        raise passed[0][1]
    text = f"files of the folder that are no traces: {', '.join(p.name for p, _ in passed[:4])}"
    return tables, [Health(what="not_a_trace", count=len(passed), text=text)] if passed else []


def _ranks(tables: Sequence[Table]) -> tuple[list[tuple[int, Table]], list[Health]]:
    """A rank for each trace: what it says, else a number in its file's name, else the first that is free."""
    said = {t.source: t.rank for t in tables}
    named = {s: int(m[-1]) for s in said if (m := _RANK.findall(Path(s).name))}
    taken = {r for r in said.values() if r is not None}
    out, guessed = [], 0
    for table in tables:
        rank = table.rank if table.rank is not None else named.get(table.source)
        if rank is None:
            rank = next(r for r in range(len(tables) + len(taken) + 1) if r not in taken)
        taken.add(rank)
        guessed += table.rank is None
        out.append((rank, table))
    text = "traces that do not say their rank: it is taken from the file's name, or is the first free number"
    return out, [Health(what="rank_unknown", count=guessed, affects="ranks", text=text)] if guessed and len(tables) > 1 else []


# ---- put together ----


def _merge(measured: Iterable[RankBreakdown], given: Input) -> list[RankBreakdown]:
    """Windows of one (rank, device) of a run as one row, completed by the steps that were not profiled.

    Traces that are no run folder stay apart: the same rank twice may be two runs.
    """
    if given.spec is None:
        return sorted(measured, key=lambda r: (r.rank, r.device))
    groups: dict[tuple[int, str], list[RankBreakdown]] = defaultdict(list)
    for row in measured:
        groups[row.rank, row.device].append(row)
    for rank in given.events.steps:
        if not any(r == rank for r, _ in groups):
            groups[rank, str(given.info.get("device", "cpu"))] = []
    out: list[RankBreakdown] = []
    for (rank, device), parts in sorted(groups.items()):
        told = () if any(r.rank == rank for r in out) else given.events.steps.get(rank, ())  # the first device of a rank has them
        steps = {s.step: s for s in told} | {s.step: s for p in parts for s in p.steps}
        if steps:
            source = ", ".join(p.source for p in parts)
            out.append(RankBreakdown(rank=rank, device=device, steps=tuple(steps[k] for k in sorted(steps)), source=source))
    return out


def _with_flops(rows: list[RankBreakdown], given: Input) -> list[RankBreakdown]:
    """FLOPs of a step on one device, flops_per_sample x global_batch / world, and their share of its peak (MFU; HFU with recomputation)."""
    per_sample, world, peak = (given.info.get(k) for k in ("flops_per_sample", "world", "peak_flops"))
    hardware = given.info.get("hardware_flops_per_sample")
    batch = (given.spec or {}).get("global_batch")
    if not all(isinstance(v, (int, float)) and v > 0 for v in (per_sample, world, batch)):
        return rows
    flops = per_sample * batch / world  # type: ignore[operator]

    def counted(step: StepBreakdown) -> StepBreakdown:
        known = isinstance(peak, (int, float)) and peak > 0 and step.wall_ns > 0
        mfu = flops / (step.wall_ns / 1e9 * peak) if known else None  # type: ignore[operator]
        hfu = mfu * hardware / per_sample if mfu is not None and isinstance(hardware, (int, float)) else None
        return replace(step, flops=round(flops), mfu=mfu, hfu=hfu)

    return [replace(r, steps=tuple(map(counted, r.steps))) for r in rows]


def _world(tables: Sequence[Table], given: Input) -> int | None:
    said = [w for w in (given.info.get("world"), *(t.world for t in tables)) if isinstance(w, int)]
    return max(said) if said else None


def _missing(rows: Sequence[RankBreakdown], world: int | None) -> list[Health]:
    missing = sorted(set(range(world or 0)) - {r.rank for r in rows if any(s.buckets for s in r.steps)})
    if not missing or not any(name.startswith("comm.") for r in rows for s in r.steps for name in s.buckets):
        return []
    shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    text = f"no trace of {len(missing)} of {world} ranks ({shown}): their collectives cannot be split into wait and transfer"
    return [Health(what="missing_ranks", count=len(missing), affects="comm wait and transfer", text=text)]


def _rate(summary: dict[str, Any], given: Input) -> float | None:
    """Samples of all ranks per second at the median step."""
    batch, step = (given.spec or {}).get("global_batch"), summary["step_ns"]
    return batch / (step["median"] / 1e9) if isinstance(batch, int) and step and step["median"] else None
