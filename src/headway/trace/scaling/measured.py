"""Points from runs and traces: one breakdown is one size of one configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headway.spec.breakdown import Breakdown
from headway.spec.errors import TraceError
from headway.spec.scaling import Point
from headway.stats.difference import apportion
from headway.trace.diff.steps import Steps, traced, untraced, wall
from headway.trace.diff.told import batch, models, world
from headway.trace.explain import explain
from headway.trace.fleet.engine import Engine, Watch, unwatched
from headway.trace.gather import Input, gather

# Parts of a run's settings that are its size or say nothing of what a step does.
_NOT_CONFIGURATION: Final = frozenset(("name", "seed", "global_batch", "samples", "stages", "mesh", "checkpoint", "observe", "guard"))
_LAYOUT: Final = ("cp_ring", "cp_ulysses", "pp", "tp", "ep")  # axes that stay; data-parallel axes are the size


def measure(path: Path, *, engine: Engine = "local", workers: int = 1, watch: Watch = unwatched) -> Point:
    """The point of a run folder, of a trace, or of a folder with the traces of all ranks.

    Steps without a trace are taken where there are three or more of them, as no profiler slows them; buckets come from traced ones.
    Raises TraceError if it has no steps.
    """
    given = gather([path])
    found = explain([path], engine=engine, workers=workers, watch=watch)
    with_buckets, plain = traced(found), untraced(found, given.events.first)
    steps = plain if len(plain.rows) >= 3 else with_buckets
    if not steps.rows:
        steps = plain
    if not steps.rows:
        raise TraceError("has no steps", where=str(path), fix="Trace some steps (headway profile RUN), or leave it out.")
    size = world(found, given) or len({r.rank for r in found.ranks})
    spread = steps.moments(wall, "step")
    mean = steps.sums(wall)["step"] / steps.num
    return Point(
        source=str(path),
        family=_family(path, given),
        configuration=_configuration(path, found, given),
        size=size,
        batch=float(batch(given) or 0) or None,
        time=mean / 1e9,
        error=spread.deviation / (spread.n**0.5 * mean) if spread.n > 1 and mean > 0 else None,
        num_steps=len(steps.rows),
        mfu=_scalar(found.summary.get("mfu")),
        buckets=_buckets(with_buckets),
    )


def _buckets(steps: Steps) -> dict[str, int]:
    """Mean ns of a traced step; they add up to its mean."""
    sums = steps.sums(lambda s: s.buckets)
    names = sorted(sums)
    return dict(zip(names, apportion([sums[n] for n in names], steps.num), strict=True)) if names else {}


def _family(path: Path, given: Input) -> str:
    """A run by its network and data; traces that say nothing of themselves by the folder that holds the sizes."""
    if given.spec is None:
        return _above(path).name or path.name
    model, data = (part if isinstance(part := given.spec.get(name), Mapping) else {} for name in ("model", "data"))
    shape = [f"{model[k]} {word}" for k, word in (("depth", "deep"), ("width", "wide")) if model.get(k)]
    return ", ".join([f"{model.get('name', 'network')} on {data.get('name', 'data')}", *shape])


def _configuration(path: Path, found: Breakdown, given: Input) -> dict[str, str]:
    """What must be equal on a ladder."""
    device = ", ".join(models(found, given))
    if given.spec is None:
        return {"folder": str(_above(path)), "device": device}
    mesh = part if isinstance(part := given.spec.get("mesh"), Mapping) else {}
    kept = {k: v for k, v in given.spec.items() if k not in _NOT_CONFIGURATION}
    layout = {f"mesh.{axis}": str(mesh[axis]) for axis in _LAYOUT if axis in mesh}
    return {"device": device, **layout, **{k: json.dumps(v, sort_keys=True, default=str) for k, v in sorted(kept.items())}}


def _above(path: Path) -> Path:
    """The folder that holds what `path` leads to."""
    return Path(os.path.realpath(path)).parent


def _scalar(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
