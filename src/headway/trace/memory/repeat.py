"""Which of the live activations are those of repeated blocks: the same stack asked for the same size several times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.trace.memory import kinds
from headway.trace.memory.history import Site
from headway.trace.memory.lives import Lives
from headway.trace.sweep import Ints

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Repeat:
    """`num` live blocks of `size` bytes each that one place asked for."""

    where: str
    num: int
    size: int


def repeats(sites: Sequence[Site], of: Lives, rows: Ints) -> tuple[Repeat, ...]:
    """Activations among the lives `rows` that occur more than once, most bytes first. What tells instances of a module apart in a stack
    or in a profiler's names (blocks.3, Block_3) does not count."""
    codes: dict[object, int] = {}
    wanted = [kinds.part_of(s).startswith("activations.") and kinds.part_of(s) != "activations.(input)" for s in sites]
    code = np.array([codes.setdefault(_shape(s), len(codes)) if w else -1 for s, w in zip(sites, wanted, strict=True)] + [-1], np.int64)
    mine = rows[code[of.site[rows]] >= 0]
    keys, first, count = np.unique(
        np.stack((code[of.site[mine]], of.size[mine])), axis=1, return_index=True, return_counts=True
    )  # one column a place and size
    found = [
        Repeat(kinds.where(sites[int(of.site[mine[first[i]]])]), int(count[i]), int(keys[1, i])) for i in np.flatnonzero(count > 1).tolist()
    ]
    return tuple(sorted(found, key=lambda r: -r.num * r.size))


def _shape(site: Site) -> object:
    if site.frames:
        return tuple(f for f in site.frames if not f.function.startswith(kinds.INSTANCE))
    return site.phase, _NUMBER.sub("N", site.module), site.operator
