"""A few steps of a long trace: the ones that are most like the whole, so that a replay stays quick however long a trace is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headway.trace.ranks.match import Seat
from headway.trace.replay.script import Script
from headway.trace.windows import Windows
from headway.trace.work import Work

MOST_ROWS: Final = 60_000  # of work, over all devices


def span(seats: Sequence[Seat]) -> tuple[int, int] | None:
    """(first, last) step to replay, None for all: of all short enough runs of steps, the one whose mean step is nearest to the mean."""
    rows = sum(len(s.work) for s in seats)
    longest = max(seats, key=lambda s: len(s.windows.steps))
    num = len(longest.windows.steps)
    if rows <= MOST_ROWS or num < 2:
        return None
    take = max(1, int(num * MOST_ROWS / rows))
    edges = longest.windows.edges
    mean = (edges[take:] - edges[:-take]) / take
    first = int(np.abs(mean - (edges[-1] - edges[0]) / num).argmin())
    return longest.windows.steps[first], longest.windows.steps[first + take - 1]


def cut(seat: Seat, script: Script, steps: tuple[int, int]) -> tuple[Seat, Script, NDArray[np.bool_]] | None:
    """One device over the steps [first, last] alone, and which rows of its work they are; None if it has none of them."""
    work, windows = seat.work, seat.windows
    inside = [k for k, step in enumerate(windows.steps) if steps[0] <= step <= steps[1]]
    if not inside:
        return None
    first, stop = inside[0], inside[-1] + 1
    edges = windows.edges[first : stop + 1]
    belongs = windows.of_launch(work, int(windows.edges[0]))
    keep: NDArray[np.bool_] = (belongs >= first) & (belongs < stop)
    place = np.cumsum(keep) - 1
    blocks = (script.block_start >= edges[0]) & (script.block_end <= edges[-1])
    blocks[blocks] &= keep[script.block_on[blocks]]
    orders = (script.order_time >= edges[0]) & (script.order_time < edges[-1])
    some = Windows(windows.steps[first:stop], edges, windows.ends[first:stop])
    acted = replace(
        script,
        **{c: getattr(script, c)[keep] for c in ("stream", "on_host", "phase")},
        **{c: getattr(script, c)[blocks] for c in ("block_start", "block_end", "block_cause")},
        block_on=place[script.block_on[blocks]],
        order_time=script.order_time[orders],
        order_track=script.order_track[orders],
    )
    return replace(seat, work=_rows(work, keep), windows=some), acted, keep


def _rows(work: Work, keep: NDArray[np.bool_]) -> Work:
    columns = {f.name: getattr(work, f.name) for f in fields(work)}
    some: dict[str, Any] = {name: value[keep] for name, value in columns.items() if isinstance(value, np.ndarray)}
    return replace(work, **some)
