"""From events to lives: every block from the moment it is asked for to the moment its memory can be used again.

Events are sorted by address; there an alloc is followed by its free. What has no partner is a block from before the recording (a free
alone, or a block that is in use at the end without an alloc), or one whose free was lost (an alloc alone): it ends where its address is
given out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.trace.memory.history import GROWS, SHRINKS, Action, History
from headway.trace.sweep import EMPTY, Ints

Bools = NDArray[np.bool_]
_LEAST = 512  # bytes: blocks are multiples of it (CUDACachingAllocator's kMinBlockSize)
_OWN = (Action.ALLOC, Action.FREE_REQUESTED, Action.FREE_COMPLETED)


@dataclass(frozen=True, kw_only=True)
class Lives:
    """One row a block. It is allocated at moments [born, freed) and its bytes are taken until `gone`; n + 1 is "after the end".

    `born` = 0 where it was there before the recording; `size` is what it takes, not what was asked for.
    """

    address: Ints
    size: Ints
    born: Ints
    freed: Ints
    gone: Ints
    site: Ints
    before: Bools  # from before the recording
    num_lost: int = 0  # lives whose end was not recorded

    def __len__(self) -> int:
        return len(self.address)

    def at(self, moment: int) -> Ints:
        """Rows that are allocated at `moment`."""
        return np.flatnonzero((self.born <= moment) & (moment < self.freed))

    def awaiting(self, moment: int) -> Ints:
        """Rows that are freed at `moment` and still taken."""
        return np.flatnonzero((self.freed <= moment) & (moment < self.gone))


def lives(history: History) -> Lives:
    """Every block of `history`, in order of address and birth."""
    n = len(history)
    rows = history.rows(*_OWN)
    final = history.blocks
    # the blocks at the end are one more event each, so that an alloc without a free finds its block, or that it has none
    address = np.concatenate((history.address[rows], final.address))
    when = np.concatenate((rows + 1, np.full(len(final.address), n + 1, np.int64)))  # moment after the event
    action = np.concatenate((history.action[rows], np.full(len(final.address), Action.OTHER, np.int64)))
    size = np.concatenate((history.size[rows], final.size))
    site = np.concatenate((history.site[rows], final.site))
    awaits = np.concatenate((np.zeros(len(rows), np.int64), final.awaiting))
    order = np.lexsort((when, address))
    address, when, action, size, site, awaits = (c[order] for c in (address, when, action, size, site, awaits))
    fresh = np.ones(len(address), bool)
    fresh[1:] = address[1:] != address[:-1]
    # a life begins with an alloc, at the first event of an address, and where an event cannot follow the one before it
    previous = np.where(fresh, Action.FREE_COMPLETED, np.roll(action, 1)) if len(action) else action
    begins = fresh | (action == Action.ALLOC) | (previous == Action.FREE_COMPLETED)
    begins |= (action == Action.FREE_REQUESTED) & (previous == Action.FREE_REQUESTED)
    first = np.flatnonzero(begins)
    if not len(first):
        return Lives(address=EMPTY, size=EMPTY, born=EMPTY, freed=EMPTY, gone=EMPTY, site=EMPTY, before=np.zeros(0, bool))
    group = np.cumsum(begins) - 1
    never = n + 2

    def earliest(mask: Bools) -> Ints:
        out = np.full(len(first), never, np.int64)
        np.minimum.at(out, group[mask], when[mask])
        return out

    asked, done, held = (earliest(action == a) for a in (Action.FREE_REQUESTED, Action.FREE_COMPLETED, Action.OTHER))
    born_here = action[first] == Action.ALLOC
    next_first = np.append(first[1:], len(address))
    follows = np.append(~fresh[first[1:]], False)  # the next life is at the same address
    reused = np.where(follows, when[np.minimum(next_first, len(when) - 1)], n + 1)
    ended = (done < never) | (held < never)
    gone = np.where(done < never, done, np.where(held < never, n + 1, reused))
    waits = np.zeros(len(first), bool)
    np.logical_or.at(waits, group, (awaits > 0))
    freed = np.minimum(np.where(asked < never, asked, gone), gone)
    early = waits | (~born_here & (done < never) & history.layout)  # freed before the recording: every free is requested, then completed
    freed = np.where(early & (asked == never), 0, freed)
    taken = _taken(size[first], history.settings) if history.layout else size[first]
    known = np.zeros(len(first), np.int64)
    is_final = action == Action.OTHER
    known[group[is_final]] = size[is_final]
    place = site[first].copy()
    place[group[is_final]] = np.where(born_here[group[is_final]], place[group[is_final]], site[is_final])
    before = ~born_here
    begin = np.where(born_here, when[first], 0)
    if len(first) > 1:  # a life from before cannot begin while another one is at its address
        begin[1:] = np.where(before[1:] & follows[:-1], gone[:-1], begin[1:])
    return Lives(
        address=address[first],
        size=np.where(known > 0, known, taken),
        born=begin,
        freed=np.maximum(freed, begin),
        gone=np.maximum(gone, begin),
        site=np.where(before & ~np.isin(np.arange(len(first)), group[is_final]), -1, place),
        before=before,
        num_lost=int((born_here & ~ended).sum()),
    )


def _taken(asked: Ints, settings: Mapping[str, object]) -> Ints:
    """Bytes of the block that serves a request: a multiple of 512, or with roundup_power2_divisions = d the next 1/d of a power of two.

    What a large segment leaves below 1 MiB is given with the block and is not counted: it shows as free.
    """
    out = np.maximum(_LEAST, -(-asked // _LEAST) * _LEAST)
    table = settings.get("roundup_power2_divisions")
    if not isinstance(table, Mapping) or not any(isinstance(d, int) and d > 1 for d in table.values()):
        return out
    keys = [1 << i for i in range(16)]  # MiB: the division of a request is that of its power of two, at most the last
    divisions = np.array([d if isinstance(d := table.get(str(k)), int) and 0 < d <= 1 << 20 else 0 for k in keys], np.int64)
    sizes, which = np.unique(asked, return_inverse=True)
    power = np.array([max(0, int(a).bit_length() - 1) for a in sizes], np.int64)[which]  # exact, which a float's logarithm is not
    of = divisions[np.clip(power - 20, 0, len(keys) - 1)]
    part = np.maximum(_LEAST, (np.int64(1) << np.minimum(power, 61)) // np.maximum(of, 1))
    return np.where((of > 1) & (asked > _LEAST * of), -(-asked // part) * part, out)


def reserved(history: History) -> Ints:
    """Reserved bytes at each moment [n + 1]: the allocator's own totals, else the segments of the end less what came after."""
    if len(history.reserved):
        return np.concatenate((history.reserved[:1], history.reserved))
    change = np.where(np.isin(history.action, GROWS), history.size, 0) - np.where(np.isin(history.action, SHRINKS), history.size, 0)
    after = np.append(np.cumsum(change[::-1])[::-1], 0)
    return int(history.segments.size.sum()) - after


def allocated(of: Lives, num_events: int) -> Ints:
    """Allocated bytes of all lives at each moment [n + 1]."""
    change = np.zeros(num_events + 3, np.int64)
    np.add.at(change, np.minimum(of.born, num_events + 1), of.size)
    np.add.at(change, np.minimum(of.freed, num_events + 1), -of.size)
    return np.cumsum(change)[: num_events + 1]


def totals(history: History) -> Ints:
    """Allocated bytes at each moment [n + 1] as the allocator itself counted them after each event."""
    first = int(history.size[0]) * (int(history.action[0] == Action.ALLOC) - int(history.action[0] == Action.FREE_COMPLETED))
    return np.concatenate((np.maximum(history.allocated[:1] - first, 0), history.allocated))
