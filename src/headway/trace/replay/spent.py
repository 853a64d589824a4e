"""What the host did along edges, by cause: most edges carry none, so only what is there is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.trace.replay.script import NUM_CAUSES
from headway.trace.sweep import EMPTY, Ints


@dataclass(frozen=True)
class Spent:
    """Nanoseconds of a cause on an edge, in order of edges."""

    edge: Ints
    cause: Ints
    ns: Ints

    @classmethod
    def of_rows(cls, rows: Ints) -> Spent:
        """From [edges, causes]."""
        edge, cause = np.nonzero(rows)
        return cls(edge, cause, rows[edge, cause])

    @classmethod
    def joined(cls, parts: Sequence[Spent], sizes: Sequence[int]) -> Spent:
        """Of several runs of edges one after another, `sizes` of them each."""
        if not parts:
            return cls(EMPTY, EMPTY, EMPTY)
        first = np.cumsum([0, *sizes[:-1]])
        edge = np.concatenate([p.edge + f for p, f in zip(parts, first, strict=True)])
        return cls(edge, np.concatenate([p.cause for p in parts]), np.concatenate([p.ns for p in parts]))

    def moved(self, place: Ints) -> Spent:
        """With edge i at place[i]; those at -1 are gone."""
        edge = place[self.edge]
        keep = np.flatnonzero(edge >= 0)
        keep = keep[np.argsort(edge[keep], kind="stable")]
        return Spent(edge[keep], self.cause[keep], self.ns[keep])

    def per_edge(self, num: int, without: NDArray[np.bool_] | None = None) -> Ints:
        """Nanoseconds of each of `num` edges; `without` [causes] are left out. Sums are exact: they stay below 2^53."""
        keep = slice(None) if without is None else ~without[self.cause]
        return np.bincount(self.edge[keep], self.ns[keep].astype(np.float64), num).astype(np.int64)

    def at(self, edge: int) -> Ints:
        """[causes] of one edge."""
        low, high = np.searchsorted(self.edge, (edge, edge + 1))
        return np.bincount(self.cause[low:high], self.ns[low:high].astype(np.float64), NUM_CAUSES).astype(np.int64)
