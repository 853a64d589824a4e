"""`explain(paths)`: where the time of every step went, for a run folder, Kineto traces, or folders of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from headway.spec.breakdown import Breakdown, Health, RankBreakdown, StepBreakdown
from headway.spec.cliff import Cliff
from headway.spec.errors import TraceError
from headway.spec.hardware import Ceilings
from headway.spec.memory import MemoryBreakdown
from headway.trace import health as doubts
from headway.trace.attribute import attribute
from headway.trace.beside.counters import counted
from headway.trace.beside.found import beside
from headway.trace.events import Events
from headway.trace.findings import findings
from headway.trace.fleet.engine import Engine, Watch, reduced, unwatched
from headway.trace.floor.ceiling import told
from headway.trace.floor.floors import Floors, with_floors
from headway.trace.floor.run import run_floors
from headway.trace.floor.run import summary as of_ceilings
from headway.trace.gather import Input, gather, rank_in_name
from headway.trace.kernels import kernels, merged
from headway.trace.part import FileParts, Part
from headway.trace.pieces import cut
from headway.trace.ranks.axes import Mesh
from headway.trace.ranks.bandwidth import collectives
from headway.trace.ranks.complete import conflicts, missing
from headway.trace.ranks.groups import on_mesh
from headway.trace.ranks.late import late
from headway.trace.ranks.match import Seat
from headway.trace.ranks.straggler import stragglers
from headway.trace.ranks.wait import Arrivals, clock_fields, meet
from headway.trace.read.file import FIX
from headway.trace.read.remote import paths_of
from headway.trace.replay.path import critical_path
from headway.trace.replay.run import replay
from headway.trace.summary import summarise
from headway.trace.timeline import Timeline, timeline
from headway.trace.withhold import supported, trusted


@dataclass(frozen=True)
class Account:
    """The breakdown, and the timelines of the devices that were traced, made when they are asked for."""

    breakdown: Breakdown
    timelines: Callable[[], tuple[Timeline, ...]]


def explain(
    paths: Sequence[str | Path],
    *,
    engine: Engine = "local",
    workers: int = 1,
    watch: Watch = unwatched,
    ceilings: Ceilings | None = None,
    mesh: Mesh | None = None,
) -> Breakdown:
    """The breakdown of `account`."""
    return account(paths, engine=engine, workers=workers, watch=watch, ceilings=ceilings, mesh=mesh).breakdown


def account(
    paths: Sequence[str | Path],
    *,
    engine: Engine = "local",
    workers: int = 1,
    watch: Watch = unwatched,
    ceilings: Ceilings | None = None,
    mesh: Mesh | None = None,
) -> Account:
    """The breakdown of all traces that `paths` lead to, and their timelines; they are taken as ranks of one run.

    `engine` and `workers` say where files are read (`trace.fleet`); the answer does not depend on them. `watch` hears of each file.
    `ceilings` of the device are what floors are counted against, in place of those that the run measured.
    `mesh` names the axes of process groups that the traces do not name.

    Raises TraceError if a path is missing, is not a trace, or holds nothing to explain, or if the mesh has another number of ranks.
    """
    given = gather([path for given in paths for path in paths_of(given)])
    files, notes = _read(given, engine, workers, watch)
    ranked, renamed = _ranks([f for f in files if not f.beside])
    notes += [replace(h, rank=rank) for rank, file in ranked for h in file.health] + renamed
    world = _world(files, given)
    if mesh is not None:
        mesh.check(world, [rank for rank, _ in ranked])
        ranked = [(rank, replace(file, parts=tuple(_on(part, rank, mesh) for part in file.parts))) for rank, file in ranked]
    placed = [(rank, file, part) for rank, file in ranked for part in file.parts]
    seats = [Seat(rank, part.work, part.windows, file.host) for rank, file, part in placed]
    meeting = meet(seats)
    least = run_floors([(rank, part) for rank, _, part in placed], ceilings or told(given.info.get("ceilings")))
    others = beside(files)
    measured = [
        RankBreakdown(
            rank=rank,
            device=p.work.device,
            steps=_steps(p, arrival, floor),
            source=file.source,
            kernels=counted(kernels(p.work, p.windows, floor, p.host, p.launchers), p.work, others.counters),
            **clock_fields(meeting, i),
        )
        for i, ((rank, file, p), arrival, floor) in enumerate(zip(placed, meeting.arrivals, least.parts, strict=True))
    ]
    lateness = late(seats, [p.host for _, _, p in placed], meeting)
    run = replay(seats, [part.script for _, _, part in placed], meeting, least.parts)
    slower = stragglers(seats, measured, meeting)
    rows = _with_flops(_merge(measured, given), given)
    memory = _memory(ranked, [f for f in files if f.memory and not f.parts], given)
    if not rows and not memory and not others:
        raise TraceError("nothing to explain: no spans on any thread or device", where=str(paths[0]), fix=FIX)
    notes += [*given.events.health, *meeting.health, *least.health, *missing(rows, world), *conflicts(ranked)]
    summary = summarise(rows, world)
    notes += [*doubts.of_steps(summary), *others.health(rows)]
    breakdown = Breakdown(
        ranks=tuple(rows),
        health=tuple(notes),
        summary={
            **trusted(summary, notes),
            "samples_s": _rate(summary, given),
            "ceilings": of_ceilings(least),
            "lateness": lateness,
            "collectives": collectives(seats, meeting),
            "critical_path": critical_path(run) if run else None,
        },
        findings=supported(
            findings(
                rows,
                {row["rank"]: row["wait_ns"] for row in lateness},
                run,
                given.spec,
                [(rank, f.retries) for rank, f in ranked],
                slow=None if slower is None else {s.rank for s in slower if s.kind == "compute"},
            ),
            notes,
        ),
        cliffs=_cliffs(given.events),
        stragglers=slower or (),
        memory=memory,
        **others.fields(),
    )

    def timelines() -> tuple[Timeline, ...]:
        return tuple(timeline(rank, p.work, p.windows, p.host, a) for (rank, _, p), a in zip(placed, meeting.arrivals, strict=True))

    return Account(breakdown, timelines)


def _read(given: Input, engine: Engine, workers: int, watch: Watch) -> tuple[list[FileParts], list[Health]]:
    """All files, each reduced by itself. In a folder, files that are no traces are passed over and counted, unless none is left."""
    found: list[FileParts] = []
    passed = []
    for path, outcome in reduced(given.files, engine=engine, workers=workers, watch=watch):
        if not isinstance(outcome, TraceError):
            found += outcome
        elif path in given.certain:
            raise outcome
        else:
            passed.append((path, outcome))
    if passed and not found and not given.events.steps:
        raise passed[0][1]
    text = f"files of the folder that are no traces: {', '.join(p.name for p, _ in passed[:4])}"
    return found, [Health(what="not_a_trace", count=len(passed), text=text)] if passed else []


def _ranks(files: Sequence[FileParts]) -> tuple[list[tuple[int, FileParts]], list[Health]]:
    """A rank for each: what it says, else a number in its file's name, else the first that is free."""
    taken = {f.rank for f in files if f.rank is not None}
    processes = Counter(f.source for f in files)
    out, guessed = [], 0
    for file in files:
        rank = file.rank
        if rank is None:
            rank = rank_in_name(file.source) if processes[file.source] == 1 else None
            rank = next(r for r in range(len(files) + len(taken) + 1) if r not in taken) if rank is None else rank
            guessed += 1
        taken.add(rank)
        out.append((rank, file))
    text = "traces that do not say their rank: it is taken from the file's name, or is the first free number"
    return out, [Health(what="rank_unknown", count=guessed, affects="ranks", text=text)] if guessed and len(files) > 1 else []


def _steps(part: Part, arrivals: Arrivals, floors: Floors) -> tuple[StepBreakdown, ...]:
    """The steps of one device with their floors. Its pieces are many and are not kept."""
    pieces = cut(part.work, part.windows, part.host, arrivals)
    return with_floors(attribute(part.work, part.windows, part.host, pieces), part.work, pieces, floors)


def _on(part: Part, rank: int, mesh: Mesh) -> Part:
    return replace(part, work=replace(part.work, comm=on_mesh(part.work.comm, rank, mesh)))


# ---- put together ----


def _merge(measured: Iterable[RankBreakdown], given: Input) -> list[RankBreakdown]:
    """Windows of one (rank, device) of a run as one row, completed by the steps that were not profiled.

    Traces that are no run folder stay apart where they are no windows of one run: the same rank twice may be two runs.
    """
    groups: dict[tuple[int, str], list[RankBreakdown]] = defaultdict(list)
    for row in measured:
        groups[row.rank, row.device].append(row)
    for rank in given.events.steps:
        if not any(r == rank for r, _ in groups):
            groups[rank, str(given.info.get("device", "cpu"))] = []
    out: list[RankBreakdown] = []
    for (rank, device), parts in sorted(groups.items()):
        if not given.run and (len(parts) == 1 or not _follow(parts)):
            out += parts
            continue
        told = () if any(r.rank == rank for r in out) else given.events.steps.get(rank, ())  # the first device of a rank has them
        steps = {s.step: s for s in told} | {s.step: s for p in parts for s in p.steps}
        if steps:
            source = ", ".join(p.source for p in parts)
            table = merged([p.kernels for p in parts])
            base = parts[0] if parts else RankBreakdown(rank=rank, device=device, steps=())
            out.append(replace(base, steps=tuple(steps[k] for k in sorted(steps)), source=source, kernels=table))
    return out


def _follow(parts: Sequence[RankBreakdown]) -> bool:
    """Whether traces of one rank can be windows of one run: files of their own, one after another, in time as in the numbers of steps."""
    steps = sorted(((p.steps[0], p.steps[-1]) for p in parts if p.steps), key=lambda ends: ends[0].start_ns)
    apart = all(a.start_ns + a.wall_ns <= b.start_ns and a.step < b.step for (_, a), (b, _) in pairwise(steps))
    return apart and len({p.source for p in parts}) == len(parts)


# Most inputs are traces without a run and without memory: the rooms of those two are imported where they are needed.


def _memory(ranked: Sequence[tuple[int, FileParts]], snapshots: Sequence[FileParts], given: Input) -> tuple[MemoryBreakdown, ...]:
    """Memory of every device whose allocator is recorded, or counted in the events."""
    if not snapshots and not given.events.logs and not any(file.memory for _, file in ranked):
        return ()
    from headway.trace.memory.collect import breakdowns

    return breakdowns(ranked, snapshots, given)


def _cliffs(events: Events) -> tuple[Cliff, ...]:
    """Where the steps of a run became slower."""
    if not events.steps:
        return ()
    from headway.trace.cliff.find import cliffs

    return cliffs(events)


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


def _world(files: Sequence[FileParts], given: Input) -> int | None:
    said = [w for w in (given.info.get("world"), *(f.world for f in files)) if isinstance(w, int)]
    return max(said) if said else None


def _rate(summary: dict[str, Any], given: Input) -> float | None:
    """Samples of all ranks per second at the median step."""
    batch, step = (given.spec or {}).get("global_batch"), summary["step_ns"]
    return batch / (step["median"] / 1e9) if isinstance(batch, int) and step and step["median"] else None
