"""`Diff`: what changed from run A to run B, in parts that add up.

Every `Change` of one table has the same unit and one total: the sum of their `delta` is the delta of the total, exactly. Times are whole
nanoseconds a step, bytes where a field says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

SCHEMA: Final = "headway.diff/1"
Verdict = Literal["real", "noise", "same", "unknown", "withheld"]
What = Literal["appeared", "vanished", "slower", "faster", "more calls", "fewer calls", "same"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One quantity on both sides. [low, high] holds the true difference; None where there is no spread to judge by.

    verdict: real (0 is not in the interval), noise (it is), same (nothing changed at all), unknown (one step each),
    withheld (a doubt about a trace forbids to show it).
    """

    name: str
    a: int
    b: int
    delta: int
    low: int | None = None
    high: int | None = None
    verdict: Verdict = "unknown"


@dataclass(frozen=True, kw_only=True)
class KernelChange:
    """A kernel (or the kernels of one place, where names differ) on both sides: launches and nanoseconds a step.

    `count_ns + duration_ns = delta_ns`: what more or fewer launches cost, and what longer or shorter ones do. `matched`: by what the two
    sides were put together: name, module and operator, module, operator; "" for what only one side has.
    """

    what: What
    name_a: str  # "" where it does not run
    name_b: str
    kind: str
    count_a: float
    count_b: float
    a_ns: int
    b_ns: int
    delta_ns: int
    count_ns: int
    duration_ns: int
    matched: str = "name"
    operator: str = ""
    module: str = ""
    verdict: Verdict = "unknown"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A field that differs. kind: identity, layout or stage of a run's settings; "" for what a run says of its surroundings."""

    name: str
    kind: str
    a: Any
    b: Any


@dataclass(frozen=True, kw_only=True)
class Quality:
    """A judgement of the samples of both runs. real: their intervals do not meet; noise: they do; unknown: there are none."""

    name: str
    a: float
    b: float
    verdict: Verdict = "unknown"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two: what was read and which of its steps are compared."""

    paths: tuple[str, ...]
    devices: tuple[str, ...]  # models: NVIDIA H100 80GB HBM3; else the kind of device
    ranks: tuple[int, ...]  # that were read
    world: int | None
    num_steps: int
    first_step: int | None
    last_step: int | None
    left_out: tuple[int, ...]  # warm-up, or not on every rank
    step_ns: int  # mean
    low_ns: int | None  # interval of the mean
    high_ns: int | None
    batch: int | None = None  # global
    sample_ns: int | None = None  # step_ns / batch


@dataclass(frozen=True, kw_only=True)
class Diff:
    """The answer of `headway diff`."""

    a: Side
    b: Side
    step: Change
    confidence: float
    text: str  # the verdict in a sentence
    steps_needed: int | None = None  # of each side, to tell this difference from noise
    run: Change | None = None  # steps that no profiler slowed, where runs tell them
    buckets: tuple[Change, ...] = ()
    phases: tuple[Change, ...] = ()
    kernels: tuple[KernelChange, ...] = ()
    kernel_time: Change | None = None  # spans added up, over all traced steps: the total of `kernels`
    overlap: Change | None = None  # spans that ran at once, to be taken off: kernel_time - overlap = busy
    busy: Change | None = None
    memory: tuple[Change, ...] = ()  # bytes
    memory_total: Change | None = None
    memory_of: tuple[str, str] = ("", "")
    settings: tuple[Setting, ...] = ()
    events: tuple[Change, ...] = ()  # counts
    loss: Mapping[str, float] | None = None  # samples, a, b: the last log line that both have
    quality: tuple[Quality, ...] = ()  # of headway evaluate, where both runs were judged
    warnings: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises ValueError unless every table adds up to its total."""
        for name, parts, total in (
            ("buckets", self.buckets, self.step.delta),
            ("phases", self.phases, self.step.delta),
            ("memory", self.memory, self.memory_total.delta if self.memory_total else 0),
        ):
            if parts and sum(c.delta for c in parts) != total:
                raise ValueError(f"{name} add up to {sum(c.delta for c in parts)}, not to {total}")
        if self.kernels and self.kernel_time and sum(k.delta_ns for k in self.kernels) != self.kernel_time.delta:
            raise ValueError("kernels do not add up to their time")
        if self.kernel_time and self.overlap and self.busy and self.kernel_time.delta - self.overlap.delta != self.busy.delta:
            raise ValueError("kernel time less overlap is not busy time")
        for k in self.kernels:
            if k.count_ns + k.duration_ns != k.delta_ns:
                raise ValueError(f"effects of {k.name_a or k.name_b} do not add up")


def to_json(diff: Diff) -> dict[str, Any]:
    """`diff` as plain data under the schema headway.diff/1."""
    from headway.spec.codec import encode

    data: dict[str, Any] = encode(diff)
    return {"schema": SCHEMA, **data}
