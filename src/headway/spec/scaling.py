"""`Scaling`: how configurations scale: ladders of sizes, where the time goes at each, a law, the next doublings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

SCHEMA: Final = "headway.scaling/1"
Kind = Literal["weak", "strong"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One size as it was measured. `time` is of one step: seconds, or for `relative` points in a unit that nobody tells.

    `rate`: samples a second (of all devices) where the batch is known; `error`: relative standard error of `time`.
    """

    source: str
    family: str  # what is measured: model, run; the title of its ladder
    configuration: Mapping[str, str]  # what must be equal on a ladder
    size: int  # devices
    batch: float | None
    time: float
    relative: bool = False
    error: float | None = None
    num_steps: int | None = None
    mfu: float | None = None
    buckets: Mapping[str, int] = field(default_factory=dict)  # ns of a step, mean over devices
    micro_batch: str = ""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One size of a ladder. `time` is of a step of `batch`; [low, high] its 95 % interval, None where its noise is not known.

    `efficiency`: throughput of a device against that of the smallest size. `lost`: bucket -> ns of a step beyond what ideal scaling from
    the smallest size leaves of it; they add up to the time of a step beyond the ideal, exactly.
    """

    size: int
    batch: float | None
    time: float
    low: float | None
    high: float | None
    throughput: float | None  # samples a second
    efficiency: float
    fitted: float | None = None
    mfu: float | None = None
    buckets: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A size that nobody has run: [low, high] holds its measurement with 95 %."""

    size: int
    batch: float | None
    time: float
    low: float
    high: float
    throughput: float | None
    efficiency: float
    efficiency_low: float
    efficiency_high: float


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The law through a ladder: `parts` (term -> share of the step) at the largest size, `support` (term -> weight of models with it)."""

    parts: Mapping[str, float]
    lost: Mapping[str, float]  # term -> share of the step at the largest size that ideal scaling would not have
    support: Mapping[str, float]
    residual: float  # relative
    noise: float  # relative
    held_out: float | None = None  # relative error of the largest size, predicted from the others; None: fewer than four sizes


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """One configuration at several sizes, smallest first. No `predictions` where the law bears none; `notes` say why."""

    name: str
    kind: Kind
    why: str
    unit: str  # of times: s, or "of the smallest"
    rungs: tuple[Rung, ...]
    configuration: Mapping[str, str] = field(default_factory=dict)
    law: Fitted | None = None
    predictions: tuple[Prediction, ...] = ()
    limits: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The answer of `headway scale`. `apart`: what is on no ladder, and why."""

    ladders: tuple[Ladder, ...]
    apart: tuple[str, ...] = ()


def to_json(scaling: Scaling) -> dict[str, Any]:
    """`scaling` as plain data under the schema headway.scaling/1."""
    from headway.spec.codec import encode

    data: dict[str, Any] = encode(scaling)
    return {"schema": SCHEMA, **data}
