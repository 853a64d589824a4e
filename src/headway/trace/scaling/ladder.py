"""From measured sizes to a ladder: weak or strong, efficiency, where the loss is, the fit and what it predicts."""

from __future__ import annotations

from collections.abc import Sequence

from headway.spec.scaling import Ladder, Loss, Mode, Point
from headway.trace.scaling import growth

_SAME = 1.02  # batches that differ by less are one


def ladder(name: str, points: Sequence[Point], *, relative: bool = False, notes: Sequence[str] = ()) -> Ladder:
    """The ladder of these sizes of one configuration, in any order."""
    ordered = tuple(sorted(points, key=lambda p: (p.devices, p.global_batch)))
    mode = mode_of(ordered)
    first = ordered[0]
    law = growth.fit(ordered)
    said = list(notes)
    sizes = len({p.devices for p in ordered})
    if sizes < 2:
        said.append("a single size: nothing to compare it with")
    elif law is None:
        said.append(f"{sizes} sizes: efficiency only; a fit and predictions need {growth.LEAST_SIZES}")
    if mode == "mixed":
        said.append("neither the batch nor the samples of a device are constant: efficiencies mix both; predictions keep the latter")
    last = ordered[-1]
    return Ladder(
        name=name,
        mode=mode,
        points=ordered,
        efficiency=tuple((p.rate / p.devices) / (first.rate / first.devices) for p in ordered),
        losses=losses(ordered),
        terms=law.shares(growth.terms(last.devices, last.global_batch)) if law else {},
        noise=law.noise if law else None,
        predictions=growth.doublings(law, ordered, weak=mode != "strong") if law else (),
        held_out=growth.held_out(ordered),
        relative=relative,
        notes=tuple(said),
    )


def mode_of(points: Sequence[Point]) -> Mode:
    """Weak if each device has as many samples at every size, strong if the batch is the same at every size, else mixed."""
    if _alike([p.global_batch / p.devices for p in points]):
        return "weak"
    return "strong" if _alike([p.global_batch for p in points]) else "mixed"


def losses(points: Sequence[Point]) -> tuple[Loss, ...]:
    """Per size and bucket: its time less what it would take if it shrank like the samples of a device, from the smallest size on."""
    first = points[0]
    if not first.buckets:
        return ()
    out = []
    for p in points[1:]:
        ideal = (p.global_batch / p.devices) / (first.global_batch / first.devices)
        names = dict.fromkeys([*first.buckets, *p.buckets]) if p.buckets else {}
        lost = {name: p.buckets.get(name, 0.0) - ideal * first.buckets.get(name, 0.0) for name in names}
        out.append(Loss(devices=p.devices, buckets=dict(sorted(lost.items(), key=lambda kv: -kv[1]))))
    return tuple(out)


def _alike(values: Sequence[float]) -> bool:
    return max(values) <= _SAME * min(values)
