"""`diff(a, b)`: how run B differs from run A, in time, memory, kernels and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from headway.spec.breakdown import Breakdown, Health, StepBreakdown
from headway.spec.diff import Change, Diff, KernelChange, Side
from headway.spec.errors import TraceError
from headway.spec.health import withheld
from headway.stats.difference import apportion, samples_needed
from headway.trace.diff import told
from headway.trace.diff.kernels import compare, uses
from headway.trace.diff.quality import quality
from headway.trace.diff.steps import CONFIDENCE, Steps, change, mean_interval, table, traced, untraced, wall
from headway.trace.explain import explain
from headway.trace.fleet.engine import Engine, Watch, unwatched
from headway.trace.gather import Input, gather
from headway.trace.read.remote import path_of, place_of

_WORTH = 0.005  # of a step: the least change of a part that is worth a word
_UNTRACED = " (steps that were not traced)"
_SERIOUS = 4  # doubts of one side that are repeated; the rest is in headway explain


def diff(a: str | Path, b: str | Path, *, engine: Engine = "local", workers: int = 1, watch: Watch = unwatched) -> Diff:
    """What changed from `a` to `b`; each is a run folder, a trace, or a folder of the traces of all ranks.

    Raises TraceError if both are the same, one cannot be read, or one has no steps.
    """
    one, other = path_of(a), path_of(b)
    if place_of(one) == place_of(other):
        raise TraceError("A and B are the same", where=str(a), fix="Name two runs, traces or folders of traces.")
    sides = [gather([p]) for p in (one, other)]
    found = [explain([p], engine=engine, workers=workers, watch=watch) for p in (one, other)]
    return between(found[0], found[1], sides[0], sides[1], paths=(str(a), str(b)))


def between(a: Breakdown, b: Breakdown, given_a: Input, given_b: Input, *, paths: tuple[str, str]) -> Diff:
    """The difference of two breakdowns, `given_a` and `given_b` being what was read beside them.

    Traced steps are compared if both sides have any; then the difference is split by bucket. Else all steps are, split by phase.
    """
    steps_a, steps_b = traced(a), traced(b)
    split = bool(steps_a.rows and steps_b.rows)
    plain_a, plain_b = untraced(a, given_a.events.first), untraced(b, given_b.events.first)
    warnings: list[str] = []
    if not split:
        if (steps_a.rows or steps_b.rows) and plain_a.rows and plain_b.rows:
            warnings.append("only one side has traced steps: steps without a trace are compared, and not split by bucket")
        steps_a, steps_b = plain_a, plain_b
    for steps, path, found in ((steps_a, paths[0], a), (steps_b, paths[1], b)):
        if not steps.rows:
            one_sided = any(r.steps for r in found.ranks)
            what = "has no steps that can be compared with those of the other" if one_sided else "has no steps"
            raise TraceError(what, where=path, fix="Trace some steps of both (headway profile RUN), or compare what both have.")
    step = _total("step", steps_a, steps_b)
    both = bool(split and plain_a.rows and plain_b.rows)
    run = _total("run", plain_a, plain_b) if both else None
    parts, total, devices, said = told.memory(a, b)
    judged, ways = quality(path_of(paths[0]), path_of(paths[1]))
    rows, time, overlap, busy = compare(uses(a), uses(b)) if split else ((), None, None, None)
    side_a, side_b = _side(a, given_a, steps_a, paths[0]), _side(b, given_b, steps_b, paths[1])
    needed = None
    if step.verdict == "noise":
        needed = samples_needed(steps_a.moments(wall, "step"), steps_b.moments(wall, "step"), confidence=CONFIDENCE)
    buckets = table(steps_a, steps_b, _buckets, partial(_forbidden, (*a.health, *b.health))) if split else ()
    phases = table(steps_a, steps_b, _phases) if _cover(steps_a, "phases") and _cover(steps_b, "phases") else ()
    main = _sharper(step, run)
    if main.verdict == "same":
        text = _same(main is step, (*buckets, *phases), rows, parts)
    else:
        text = _verdict(main, step, needed, min(side_a.num_steps, side_b.num_steps)) + _parts(step, buckets or phases)
    result = Diff(
        a=side_a,
        b=side_b,
        step=step,
        confidence=CONFIDENCE,
        text=text,
        steps_needed=needed,
        run=run,
        buckets=buckets,
        phases=phases,
        kernels=rows,
        kernel_time=time,
        overlap=overlap,
        busy=busy,
        memory=parts,
        memory_total=total,
        memory_of=devices,
        settings=told.settings(given_a, given_b),
        events=told.events(given_a, given_b, a, b),
        loss=told.loss(given_a, given_b),
        quality=judged,
        warnings=(*warnings, *_doubts(side_a, side_b), *said, *ways, *_health("A", a.health), *_health("B", b.health)),
    )
    result.check()
    return result


def _buckets(step: StepBreakdown) -> Mapping[str, int]:
    return step.buckets


def _phases(step: StepBreakdown) -> Mapping[str, int]:
    return step.phases


def _cover(steps: Steps, name: str) -> bool:
    return all(getattr(s, name) for row in steps.rows for s in row)


def _forbidden(health: Sequence[Health], name: str) -> bool:
    return withheld(health, name) is not None


def _total(name: str, a: Steps, b: Steps) -> Change:
    means = [apportion([s.sums(wall).get("step", 0)], s.num)[0] for s in (a, b)]
    return change(name, means[0], means[1], a.moments(wall, "step"), b.moments(wall, "step"))


def _side(b: Breakdown, given: Input, steps: Steps, path: str) -> Side:
    mean, low, high = mean_interval(steps)
    batch = told.batch(given)
    numbers = [row[0].step for row in steps.rows]
    return Side(
        paths=(path,),
        devices=told.models(b, given),
        ranks=tuple(sorted({r.rank for r in b.ranks if r.steps})),
        world=told.world(b, given),
        num_steps=len(steps.rows),
        first_step=min(numbers),
        last_step=max(numbers),
        left_out=steps.left_out,
        step_ns=mean,
        low_ns=low,
        high_ns=high,
        batch=batch,
        sample_ns=round(mean / batch) if batch else None,
    )


def _sharper(step: Change, run: Change | None) -> Change:
    """What to judge by: the one whose interval is narrower."""
    if run is None or run.low is None or run.high is None:
        return step
    return run if step.low is None or step.high is None or run.high - run.low < step.high - step.low else step


def _parts(step: Change, parts: Sequence[Change]) -> str:
    """Where the total is noise: what is not, all the same."""
    real = [c for c in parts if c.verdict == "real" and abs(c.delta) >= _WORTH * step.a]
    if step.verdict != "noise" or not real:
        return ""
    names = told.sentence_of([f"{c.name} {c.delta / 1e6:+.3f} ms" for c in real])
    return f" Parts of it changed by more than noise: {names}."


def _same(traced: bool, parts: Sequence[Change], kernels: Sequence[KernelChange], memory: Sequence[Change]) -> str:
    """Where steps take the same time on both sides: whether anything they are made of shifted, the largest first."""
    of = "" if traced else _UNTRACED
    shifted = sorted((c for c in parts if c.delta and c.verdict != "withheld"), key=lambda c: -abs(c.delta))
    if shifted:
        names = told.sentence_of([f"{c.name} {c.delta / 1e6:+.3f} ms" for c in shifted])
        return f"A step takes the same time in both{of}, its parts do not: {names}."
    if other := [k for k in kernels if k.delta_ns or k.count_a != k.count_b or k.name_a != k.name_b]:
        names = told.sentence_of([f"{(k.name_b or k.name_a)[:60]} {k.delta_ns / 1e6:+.3f} ms" for k in other])
        return f"A step and its parts take the same time in both{of}, kernels do not: {names}."
    if bytes_ := [c for c in memory if c.delta]:
        names = told.sentence_of([f"{c.name} {c.delta:+,} bytes" for c in bytes_])
        return f"No difference in time{of}; memory differs: {names}."
    return f"No difference{of}."


def _verdict(main: Change, step: Change, needed: int | None, have: int) -> str:
    """One sentence. `main` is what is judged by: all steps of a run where there are any, else the traced ones."""
    share = abs(main.delta) / main.a if main.a else 0.0
    of = "" if main is step else _UNTRACED
    if main.verdict == "unknown":
        return "One step on each side: nothing tells a difference from noise. Trace five steps or more of each."
    if main.verdict == "real":
        side = "slower" if main.delta > 0 else "faster"
        return f"B is {side} by {share:.1%} of a step{of}: more than the noise between steps."
    more = ""
    if needed and main is step:
        more = f" It would take about {needed:,} steps of each to tell {share:.2%} from noise; there are {have}."
    return f"Noise{of}: the interval of the difference holds 0.{more}"


def _doubts(a: Side, b: Side) -> list[str]:
    """What makes the two hard to compare."""
    out = []
    for what, x, y in (
        ("devices", *told.comparable(a.devices, b.devices)),
        ("ranks in the input", _ranks(a), _ranks(b)),
        ("world sizes", a.world, b.world),
        ("batches", a.batch, b.batch),
    ):
        if x != y and x and y:
            out.append(f"different {what}: {x} and {y}")
    if (a.first_step, a.last_step) != (b.first_step, b.last_step):
        out.append(f"different steps were captured: {_span(a)} and {_span(b)}")
    for name, side in (("A", a), ("B", b)):
        if side.left_out:
            out.append(f"{name}: step{'s' * (len(side.left_out) != 1)} {told.sentence_of([*map(str, side.left_out)], 6)} left out")
    return out


def _ranks(side: Side) -> str:
    return told.sentence_of([*map(str, side.ranks)], 8)


def _span(side: Side) -> str:
    return str(side.first_step) if side.first_step == side.last_step else f"{side.first_step} to {side.last_step}"


def _health(name: str, health: Sequence[Health]) -> list[str]:
    """The doubts about one side that touch numbers, each kind once."""
    kinds = {h.what: h for h in sorted(health, key=lambda h: h.count)}
    said = [f"{name}: {(h.text or h.what.replace('_', ' ')).rstrip('.')} ({h.count:,})" for h in kinds.values() if h.affects or h.withholds]
    rest = [f"{name}: {len(said) - _SERIOUS} more doubts, see headway explain"] if len(said) > _SERIOUS else []
    return said[:_SERIOUS] + rest
