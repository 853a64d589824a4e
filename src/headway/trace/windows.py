"""Where each step begins and ends on a device.

A step ends when the last device work launched in it has ended, and not before its host mark ends:

    b_k = max(b_{k-1}, host end of k, end of the last device work launched in k),   window k = [b_{k-1}, b_k),   b_0 = first host mark

Work launched between two marks belongs to the later step. Work whose launch is unknown moves no boundary; it is counted in the window
in which it starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.trace import marks
from headway.trace.host import step_rows
from headway.trace.sweep import Ints
from headway.trace.table import DEVICE_WORK, HOST, Table
from headway.trace.work import Work


@dataclass(frozen=True)
class Windows:
    """Steps of one device: `edges` has one more entry than `steps`; window i is [edges[i], edges[i+1])."""

    steps: tuple[int, ...]
    edges: Ints
    ends: Ints  # host end of each step

    def of_time(self, time: Ints) -> Ints:
        """Index of the window that holds each moment; -1 outside."""
        index = np.searchsorted(self.edges, time, side="right") - 1
        return np.where((index >= 0) & (index < len(self.steps)), index, -1)

    def of_launch(self, work: Work, first: int) -> Ints:
        """Index of the step in which each row of work was launched; the window it starts in if the launch is unknown; else -1."""
        index = np.searchsorted(self.ends, work.launched, side="right")
        index = np.where((work.launched >= first) & (index < len(self.steps)), index, -1)
        return np.where(work.linked, index, self.of_time(work.start))


def windows(table: Table, work: Work) -> Windows:
    """The steps of `work` by the host's marks; one window over everything, step 0, if there are none."""
    rows = step_rows(table)
    if not len(rows):
        return _whole(table)
    ends = np.maximum.accumulate(table.end[rows])
    first = int(table.start[rows[0]])
    steps = tuple(marks.step(table.names[i]) for i in table.name[rows].tolist())
    plain = Windows(steps, np.concatenate(([first], ends)), ends)
    index = np.where(work.linked, plain.of_launch(work, first), -1)
    last = ends.copy()
    np.maximum.at(last, index[index >= 0], work.end[index >= 0])
    return Windows(steps, np.concatenate(([first], np.maximum.accumulate(last))), ends)


def _whole(table: Table) -> Windows:
    rows = table.rows(*HOST, *DEVICE_WORK)
    first, last = int(table.start[rows].min()), int(table.end[rows].max())
    edges = np.array([first, last], np.int64)
    return Windows((0,), edges, edges[1:] + 1)
