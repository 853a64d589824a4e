"""Changes of a run's settings that cure a cause: only fields that act on it, each as dotted field -> value; None where there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from headway.spec.codec import at

Patch = Callable[[Mapping[str, Any], float], "dict[str, Any] | None"]  # settings, share of the step that the cause takes
MOST_WORKERS: Final = 8
_LOG_EVERY: Final = 10  # steps; a log line waits for the device


def none(spec: Mapping[str, Any], share: float) -> dict[str, Any] | None:
    """No setting cures it."""
    return None


def workers(spec: Mapping[str, Any], share: float) -> dict[str, Any] | None:
    """Twice as many threads that decode ahead, and at least as many as bring a batch in the time of a step without the wait."""
    now = at(spec, "data.workers")
    if not isinstance(now, int) or now >= MOST_WORKERS:
        return None
    enough = math.ceil(share / max(1 - share, 1 / MOST_WORKERS) - 1e-9)
    return {"data.workers": min(MOST_WORKERS, max(2, 2 * now, enough))}


def checkpoint(spec: Mapping[str, Any], share: float) -> dict[str, Any] | None:
    """Save beside the training; where that is done already, half as often."""
    if at(spec, "checkpoint.blocking") is True:
        return {"checkpoint.blocking": False}
    every = at(spec, "checkpoint.every")
    return {"checkpoint.every": 2 * every} if isinstance(every, int) and every > 0 else None


def log_less(spec: Mapping[str, Any], share: float) -> dict[str, Any] | None:
    """A log line is where the host waits for the device: not in every step."""
    every = at(spec, "observe.log_every")
    return {"observe.log_every": _LOG_EVERY} if isinstance(every, int) and every < _LOG_EVERY else None


def larger(spec: Mapping[str, Any], share: float) -> dict[str, Any] | None:
    """Fewer and larger launches for the same global batch; and no hash of every step's draws."""
    out: dict[str, Any] = {}
    accumulate = at(spec, "accumulate")
    if isinstance(accumulate, int) and accumulate > 1 and accumulate % 2 == 0:
        out["accumulate"] = accumulate // 2
    if at(spec, "guard.trail") is True:
        out["guard.trail"] = False
    return out or None


def keep_gathered(spec: Mapping[str, Any], share: float) -> dict[str, Any] | None:
    """Keep gathered parameters for the backward: one all-gather less, for the memory of the parameters."""
    sharded = at(spec, "mesh.dp_shard")
    return {"mesh.reshard": False} if isinstance(sharded, int) and sharded > 1 and at(spec, "mesh.reshard") is True else None


def less_memory(spec: Mapping[str, Any], share: float) -> dict[str, Any] | None:
    """Micro-batches of half the size; where they cannot be halved, activations recomputed."""
    batch, now = at(spec, "global_batch"), at(spec, "accumulate")
    axes = [at(spec, f"mesh.{axis}") for axis in ("dp_replicate", "dp_shard")]
    if all(isinstance(n, int) and n > 0 for n in (batch, now, *axes)) and batch % (2 * now * axes[0] * axes[1]) == 0:
        return {"accumulate": 2 * now}
    return {"remat.mode": "full"} if at(spec, "remat.mode") == "none" else None
