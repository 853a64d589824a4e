"""Files reduced on a Ray cluster: the one at RAY_ADDRESS, else one that is started on this machine and ended afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headway.spec.errors import TraceError


def outcomes(paths: Sequence[Path], attempt: Callable[[Path], Any]) -> Iterator[Any]:
    """`attempt(path)` of every path, in order; at most two tasks a core of the cluster are on their way.

    Every node must see the files under the same paths. Raises TraceError if Ray is not installed or its cluster cannot be reached.
    """
    try:
        import ray
    except ImportError:
        raise TraceError("--engine ray needs Ray, which is not installed", fix="pip install 'headway[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
        _start(ray)
    try:
        task = ray.remote(attempt)
        ahead = max(2, 2 * int(ray.cluster_resources().get("CPU", 1)))
        pending = [task.remote(p.resolve()) for p in paths[:ahead]]
        for i in range(len(paths)):
            result = ray.get(pending[i])
            pending[i] = None
            if len(pending) < len(paths):
                pending.append(task.remote(paths[len(pending)].resolve()))
            yield result
    finally:
        if ours:
            ray.shutdown()


def _start(ray: Any) -> None:
    address = os.environ.get("RAY_ADDRESS")
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error", include_dashboard=False if address is None else None)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"RAY_ADDRESS={address}" if address else "a cluster of this machine"
        raise TraceError(
            f"Ray cannot be reached: {error}", where=where, fix="Start it (ray start --head), or leave --engine out."
        ) from error
