"""The training loop. Everything periodic is a hook that owns its period.

for each step: hooks.before -> input -> step -> hooks.after
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headway.runtime.build import TrainState
from headway.runtime.launch import Place
from headway.trace.emit import Emitter
from headway.train import trail
from headway.train.counters import Counters
from headway.train.step import Batch, StepOut, step


@dataclass(kw_only=True)
class Running:
    """A run while it runs: what hooks may look at. A hook ends the run by setting `reason`."""

    state: TrainState
    batches: Iterator[Sequence[Batch]]
    emit: Emitter
    path: Path
    place: Place
    tell: Callable[[str, str], None]  # (kind, text): a line for people and an event; prints on rank 0
    reason: str = ""
    tracing: bool = False  # a profiler is open: steps are slower than they are
    scalars: dict[str, float] = field(default_factory=dict)  # of the last log line

    @property
    def first(self) -> bool:
        """Whether this is rank 0."""
        return self.place.rank == 0

    @property
    def done(self) -> bool:
        """Whether the run has seen all its samples."""
        return self.state.samples >= self.state.spec.samples


class Hook:
    """Something that happens beside the steps; one that says nothing of a moment does nothing then."""

    def before(self, run: Running) -> None:
        """Called before each step; its time is `other` in the phases of that step."""

    def after(self, run: Running, out: StepOut) -> None:
        """Called at the end of each step; its time is `other`, but for phases that it opens."""

    def close(self, run: Running) -> None:
        """Called once when the loop has ended normally."""

    def abandon(self, run: Running) -> None:
        """Called once when the loop has ended by an error: let go of what would outlive it."""


def loop(run: Running, hooks: Sequence[Hook]) -> None:
    """Train until all samples are seen or a hook gives a reason to stop."""
    try:
        with settled(), closing(Counters(run.state.device)) as counters:
            while not run.done and not run.reason:
                one(run, hooks, counters)
        for hook in hooks:
            hook.close(run)
    except BaseException:
        for hook in hooks:
            hook.abandon(run)
        raise


@contextmanager
def settled() -> Iterator[None]:
    """Keeps what there is out of garbage collections: a full one walks all of torch, in a step of one rank, and the others wait."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def one(run: Running, hooks: Sequence[Hook], counters: Counters) -> None:
    """One step, with everything that belongs to it."""
    traced = run.tracing  # a window that ends now costs this step its export
    for hook in hooks:
        hook.before(run)
    traced |= run.tracing
    run.emit.begin(run.state.step)
    with run.emit.phase("input"):
        batches = next(run.batches)
    if run.state.spec.guard.trail:
        run.emit.event("draws", step=run.state.step, hash=trail.hash_of(run.state, batches))
    out = step(run.state, batches, run.emit)
    for hook in hooks:
        hook.after(run, out)
    run.emit.end(samples=run.state.samples, **counters.read(batches), **({"traced": True} if traced else {}))
