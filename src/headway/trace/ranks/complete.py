"""Whether the traces are what they are taken for: all ranks of one run, each once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from headway.spec.breakdown import RankBreakdown
from headway.spec.health import Health, some
from headway.trace.part import FileParts


def conflicts(ranked: Sequence[tuple[int, FileParts]]) -> list[Health]:
    """Files that cannot be ranks of one run: two that say the same rank and device at the same time, or worlds of several sizes."""
    spans: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for rank, file in ranked:
        for part in file.parts:
            if file.rank is not None and part.windows.steps:
                spans[rank, part.work.device].append((int(part.windows.edges[0]), int(part.windows.edges[-1])))
    twice = sorted({rank for (rank, _), at in spans.items() for a, b in pairwise(sorted(at)) if b[0] < a[1]})
    worlds = sorted({f.world for _, f in ranked if f.world is not None})
    out = []
    if twice:
        text = f"several files say that they are rank {', '.join(map(str, twice[:8]))} at the same time: copies, or different runs"
        out.append(Health(what="repeated_rank", count=len(twice), affects="everything over ranks", text=text))
    if len(worlds) > 1:
        text = f"the traces are of worlds of {', '.join(map(str, worlds))} ranks: different runs, or processes that do not train"
        out.append(Health(what="different_worlds", count=len(worlds), affects="everything over ranks", text=text))
    return out


def missing(rows: Sequence[RankBreakdown], world: int | None) -> list[Health]:
    """Ranks of the world without a trace, where there are collectives to meet them in."""
    absent = sorted(set(range(world or 0)) - {r.rank for r in rows if any(s.buckets for s in r.steps)})
    if not absent or not any(name.startswith("comm.") for r in rows for s in r.steps for name in s.buckets):
        return []
    text = f"no trace of {len(absent)} of {world} ranks ({some(absent)}): their collectives cannot be split into wait and transfer"
    return [Health(what="missing_ranks", count=len(absent), affects="comm wait and transfer", text=text)]
