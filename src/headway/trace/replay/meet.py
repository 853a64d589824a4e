"""Which rows of different devices are one collective, numbered, and when its last rank arrived."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headway.trace.ranks.match import Seat
from headway.trace.ranks.wait import Meeting
from headway.trace.sweep import Ints


def meetings(meeting: Meeting, seats: Sequence[Seat]) -> tuple[tuple[Ints, Ints], ...]:
    """For each row of work of each seat: the number of its collective (-1: none, or not sound), and when its last rank arrived."""
    found = meeting.matches
    out = tuple((np.full(len(s.work), -1, np.int64), np.full(len(s.work), -1, np.int64)) for s in seats)
    if len(found):
        number = np.where(meeting.sound, found.of_entry, -1)
        for k, (meets, arrived) in enumerate(out):
            mine = found.seat == k
            meets[found.row[mine]] = number[mine]
            arrived[found.row[mine]] = (found.start + meeting.wait)[mine]
    return out
