"""`Scaling`: the same training at several sizes: step time, efficiency, where the loss is, and what the next doublings would give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

SCHEMA: Final = "headway.scaling/1"
Mode = Literal["weak", "strong", "mixed"]
TERMS: Final[Mapping[str, str]] = {  # what a step may be made of, n devices and b samples on each
    "work": "work that shrinks with the samples of a device (b)",
    "fixed": "what takes the same at any size",
    "log": "trees of collectives (log2 n)",
    "ring": "rings of collectives (n)",
    "skew": "waiting for the slowest of n (sqrt(2 ln n))",
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One size. `step` is nanoseconds, or without a unit where the source gives only a rate of work (`Ladder.relative`)."""

    devices: int
    global_batch: float  # samples of a step over all devices; devices where it is not known and taken as constant a device
    step: float
    interval: tuple[float, float] | None = None  # 95 % of the step time, from steps
    num_steps: int = 0
    mfu: float | None = None
    buckets: Mapping[str, float] = field(default_factory=dict)  # mean over profiled steps and devices; sums to `profiled`
    profiled: float | None = None
    source: str = ""

    @property
    def rate(self) -> float:
        """Samples in a unit of time, over all devices."""
        return self.global_batch / self.step


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What of a step at one size is lost against the smallest size, by bucket; sums to the loss of profiled steps."""

    devices: int
    buckets: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A size that was not measured, with an interval that holds a measurement there in 95 % of cases."""

    devices: int
    global_batch: float
    step: float
    interval: tuple[float, float]
    efficiency: float


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """The largest size predicted from the smaller ones alone; `error` is predicted over measured, less 1."""

    devices: int
    global_batch: float
    step: float
    predicted: float
    interval: tuple[float, float]
    error: float


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Sizes of one configuration, the smallest first. `efficiency` is samples a second and device over that of the smallest size."""

    name: str
    mode: Mode
    points: tuple[Point, ...]
    efficiency: tuple[float, ...]
    losses: tuple[Loss, ...] = ()
    terms: Mapping[str, float] = field(default_factory=dict)  # of the step at the largest size, by the fit; sums to the fitted step
    noise: float | None = None  # relative scatter around the fit
    predictions: tuple[Prediction, ...] = ()
    held_out: tuple[HeldOut, ...] = ()
    relative: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The answer of `headway scale`."""

    ladders: tuple[Ladder, ...]


def to_json(scaling: Scaling) -> dict[str, Any]:
    """`scaling` as plain data under the schema headway.scaling/1."""
    from headway.spec.codec import encode

    data: dict[str, Any] = encode(scaling)
    return {"schema": SCHEMA, **data}
