"""Which addresses were reserved at a moment, what was alive in them, and which segments a few blocks keep from being given back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.spec.memory import Held, Pin
from headway.trace.memory.history import GROWS, SHRINKS, Action, History
from headway.trace.memory.lives import Lives
from headway.trace.sweep import EMPTY, Ints

NUM_PINS = 20
_NUM_BLOCKS = 3  # of a pin that are named


@dataclass(frozen=True)
class Layout:
    """Reserved pieces [start, end) at one moment, in order; a piece is a segment, or what is mapped of an expandable one."""

    start: Ints
    end: Ints
    used: Ints  # bytes allocated or awaiting in each
    live: Ints  # bytes allocated in each
    largest: Ints  # the largest free run of each: what still fits into it
    private: NDArray[np.bool_]  # of the pool of a CUDA graph (known of pieces that are there at the end)
    inside: Ints  # for each life of the moment, its piece; -1 for none
    strays: int  # lives that lie in no piece


def layout(history: History, of: Lives, moment: int, rows: Ints, waiting: Ints) -> Layout:
    """The pieces at `moment`, with the lives `rows` allocated and `waiting` awaiting in them.

    What is reserved at the end, less what later events added, plus what they took away: each is a range of addresses with a sign.
    """
    later = np.arange(moment, len(history))
    grown = later[np.isin(history.action[later], GROWS)]
    shrunk = later[np.isin(history.action[later], SHRINKS)]
    ends = history.segments
    start = np.concatenate((ends.address, history.address[shrunk], history.address[grown]))
    size = np.concatenate((ends.size, history.size[shrunk], history.size[grown]))
    sign = np.concatenate((np.ones(len(ends.size) + len(shrunk), np.int64), -np.ones(len(grown), np.int64)))
    edges, where = np.unique(np.concatenate((start, start + size)), return_inverse=True)
    change = np.zeros(len(edges), np.int64)
    np.add.at(change, where, np.concatenate((sign, -sign)))
    covered = np.cumsum(change) > 0
    # neighbours in the address space stay two segments; ranges of an expandable one are one piece
    own = np.concatenate((ends.address[ends.expandable == 0], history.address[history.rows(Action.SEGMENT_ALLOC)]))
    joined = np.append(False, covered[:-1]) & ~np.isin(edges, own) if len(edges) else covered
    first = np.flatnonzero(covered & ~joined)
    last = np.flatnonzero(covered & np.append(~covered[1:] | ~joined[1:], True)) if len(edges) else first
    begin, end = edges[first], edges[np.minimum(last + 1, len(edges) - 1)] if len(edges) else EMPTY
    both = np.concatenate((rows, waiting))
    piece = np.searchsorted(begin, of.address[both], side="right") - 1
    fits = (piece >= 0) & (of.address[both] + of.size[both] <= end[np.maximum(piece, 0)]) if len(begin) else np.zeros(len(both), bool)
    piece = np.where(fits, piece, -1)
    used, live = np.zeros(len(begin), np.int64), np.zeros(len(begin), np.int64)
    np.add.at(used, piece[fits], of.size[both][fits])
    alive = fits & (np.arange(len(both)) < len(rows))
    np.add.at(live, piece[alive], of.size[both][alive])
    largest = _largest_gaps(begin, end, of.address[both][fits], of.size[both][fits], piece[fits])
    private = np.isin(begin, ends.address[ends.private == 1])
    return Layout(begin, end, used, live, largest, private, piece[: len(rows)], int((~fits).sum()))


def _largest_gaps(begin: Ints, end: Ints, address: Ints, size: Ints, piece: Ints) -> Ints:
    """The largest free run of each piece [begin, end) with the blocks `address`, `size` in pieces `piece`."""
    place = np.concatenate((np.arange(len(begin)), piece))
    start = np.concatenate((begin, address))
    stop = np.concatenate((begin, address + size))
    order = np.lexsort((stop, start, place))  # the beginning of a piece is an empty block, and first
    place, start, stop = place[order], start[order], stop[order]
    same = place[1:] == place[:-1]
    following = np.append(np.where(same, start[1:], end[place[:-1]]), end[place[-1:]])
    largest = np.zeros(len(begin), np.int64)
    np.maximum.at(largest, place, np.maximum(following - stop, 0))
    return largest


def free_parts(of: Layout, awaiting: int, free: int) -> dict[str, int]:
    """`free` bytes (reserved less allocated) by why: awaiting, private (of a graph's pool), cached (pieces with nothing in them), pinned
    (the rest)."""
    room = of.end - of.start - of.used
    told = {"awaiting": awaiting, "private": int(room[of.private].sum()), "cached": int(room[(of.used == 0) & ~of.private].sum())}
    for name, num in told.items():  # in a broken recording they may be more than there is
        told[name] = min(num, free)
        free -= told[name]
    return {**told, "pinned": free}


def pins(of: Layout, all_lives: Lives, rows: Ints, labels: Sequence[tuple[str, str]], label: Ints) -> tuple[Pin, ...]:
    """The segments with most free bytes of those that hold something; `labels[label[i]]` is (where, part) of life rows[i]."""
    free = of.end - of.start - of.used
    chosen = np.flatnonzero((of.live > 0) & (free > 0) & ~of.private)
    chosen = chosen[np.argsort(-free[chosen], kind="stable")][:NUM_PINS]
    out = []
    for piece in chosen.tolist():
        mine = np.flatnonzero(of.inside == piece)
        size = all_lives.size[rows[mine]]
        groups: dict[int, list[int]] = {}
        for code, n in zip(label[mine].tolist(), size.tolist(), strict=True):
            groups.setdefault(code, []).append(n)
        held = [Held(where=labels[c][0], part=labels[c][1], num_blocks=len(g), num_bytes=sum(g)) for c, g in groups.items()]
        held.sort(key=lambda h: (-h.num_bytes, h.where))
        out.append(
            Pin(
                address=int(of.start[piece]),
                segment_bytes=int(of.end[piece] - of.start[piece]),
                free_bytes=int(free[piece]),
                largest_free_bytes=int(of.largest[piece]),
                blocks=tuple(held[:_NUM_BLOCKS]),
            )
        )
    return tuple(out)
