"""What a collective is: its kind, the axis it runs along, who takes part, how many bytes.

Sources, best first: the arguments the profiler wrote; the operator that issued it; its kernel's name. Of the axis: marks of ours; the
group's description; FSDP's marks; where its ranks lie in the mesh that the user says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headway.trace import classify, marks
from headway.trace.host import comm_axes
from headway.trace.ranks.axes import Mesh, named
from headway.trace.sweep import Ints, Steps
from headway.trace.table import HOST, Collective, Kind, Table
from headway.trace.tracks import by_track, looked_up

POINT_TO_POINT = frozenset(("send", "recv", "send_recv", "peer_copy"))
_FSDP_AXIS = {"all_gather": "dp_shard", "reduce_scatter": "dp_shard", "all_reduce": "dp_replicate"}


@dataclass(frozen=True)
class Comm:
    """One collective as seen by one rank. `ranks` is empty if the members are unknown."""

    name: str
    axis: str
    ranks: tuple[int, ...] = ()
    bytes: int | None = None
    peer: int | None = None  # of a send or recv: the other rank

    @property
    def matched(self) -> bool:
        """Whether every member takes part at once, so that the last to arrive holds up the rest."""
        return self.name not in POINT_TO_POINT

    def pair(self, rank: int) -> tuple[int, int] | None:
        """(from, to) of a send or recv of `rank`; None if its peer is unknown. A group of two has no other peer."""
        peer = self.peer
        if peer is None and len(self.ranks) == 2 and rank in self.ranks:
            peer = self.ranks[0] if self.ranks[1] == rank else self.ranks[1]
        if peer is None or peer == rank or self.name not in ("send", "recv"):
            return None
        return (rank, peer) if self.name == "send" else (peer, rank)


def describe(
    table: Table, rows: Ints, is_comm: NDArray[np.bool_], track: Ints, launched: Ints, source: Ints | None = None
) -> tuple[tuple[Comm, ...], Ints, Ints]:
    """(different collectives, index into them of each row or -1, the group's own number of each row or -1).

    `source`: for each collective, the row that issued it, or -1.
    """
    comm_of, number = np.full(len(rows), -1, np.int64), np.full(len(rows), -1, np.int64)
    mine = np.flatnonzero(is_comm)
    if not len(mine):
        return (), comm_of, number
    issuer = _issuers(table, track[mine], launched[mine]) if source is None else source
    names, open_axis = comm_axes(table)
    axis = looked_up(open_axis, track[mine], launched[mine]).tolist()
    sharded = (looked_up(_fsdp(table), track[mine], launched[mine]) >= 0).tolist()
    found: dict[tuple[Collective, int, bool], int] = {}
    codes = []
    heard: dict[tuple[Collective | None, Collective | None, int, int, int], Collective] = {}  # most rows say what others have said
    told = table.collectives.get
    for i, (row, by, kind, name, theirs) in enumerate(
        zip(*(c.tolist() for c in (rows[mine], issuer, table.kind[rows[mine]], table.name[rows[mine]], table.name[issuer])), strict=True)
    ):
        key = (told(row), told(by), kind, name, theirs if by >= 0 else -1)
        said = heard.get(key) or heard.setdefault(key, _said(table, row, by))
        if said.number is not None:
            number[mine[i]] = said.number
            said = replace(said, number=None)
        codes.append(found.setdefault((said, axis[i], sharded[i]), len(found)))
    described = [_comm(table, said, names[a] if a >= 0 else "", within) for said, a, within in found]
    different = {comm: i for i, comm in enumerate(dict.fromkeys(described))}
    comm_of[mine] = np.array([different[c] for c in described], np.int64)[codes]
    return tuple(different), comm_of, number


def _comm(table: Table, said: Collective, marked: str, sharded: bool) -> Comm:
    group = _group(table, said)
    where = _axis(table, said, marked, sharded, group)
    return Comm(said.name, where, group or _members(table, where), said.bytes, said.peer)


def _said(table: Table, row: int, issuer: int) -> Collective:
    """What is known of the collective in `row`: its own arguments, completed by those of the row that issued it."""
    name = table.names[table.name[row]]
    if table.kind[row] == Kind.MEMCPY:
        return Collective("peer_copy")
    own = table.collectives.get(row) or Collective(classify.collective(name))
    if issuer < 0:
        return own
    theirs = table.collectives.get(issuer) or Collective(classify.collective(table.names[table.name[issuer]]))
    if own.group is not None or theirs.name in ("wait", "other"):
        return own
    counts = [b for b in (own.bytes, theirs.bytes) if b is not None]
    return replace(theirs, bytes=max(counts) if counts else None)


def _issuers(table: Table, track: Ints, time: Ints) -> Ints:
    """The innermost host row about a collective that is open where each was launched; -1 if there is none."""
    about = np.flatnonzero(
        table.of(*HOST) & table.named(lambda n: n == "record_param_comms" or n.startswith(("nccl:", "xccl:", "hccl:", "c10d::")))
    )
    told = [r for r in about.tolist() if table.collectives.get(r) is None or table.collectives[r].name != "wait"]
    rows = np.array(told, np.int64)
    best = np.array([0 if r in table.collectives and table.collectives[r].group is not None else 1 for r in told], np.int64)
    out = np.full(len(track), -1, np.int64)
    for level in (1, 0):  # rows with the group's name win over those without
        found = looked_up(by_track(table, rows[best == level], np.arange(len(table))), track, time)
        out = np.where(found >= 0, found, out)
    return out


def _fsdp(table: Table) -> dict[int, Steps]:
    rows = np.flatnonzero(table.of(*HOST) & table.named(lambda n: n.startswith("FSDP::")))
    return by_track(table, rows, np.arange(len(table)))


def _group(table: Table, said: Collective) -> tuple[int, ...]:
    """Global ranks of the group that the arguments name; () if they name none."""
    if said.ranks:
        return said.ranks
    found = [g for g in table.groups if g.name == said.group]
    return found[0].ranks if found else ()


def _axis(table: Table, said: Collective, marked: str, sharded: bool, ranks: tuple[int, ...]) -> str:
    """Axis name: a mark of ours, the group's description, its place among the groups, FSDP's meaning; else world or group."""
    if marked:
        return marked
    text = next((g.text for g in table.groups if g.name == said.group), "") if said.group is not None else ""
    text = said.text or text
    if text and text != "undefined":
        return named(text)
    if sharded and said.name in _FSDP_AXIS:
        return _FSDP_AXIS[said.name]
    if said.group is not None:
        return "world" if ranks and len(ranks) == table.world else marks.axis(f"group-{said.group}")
    return "world" if _only_world(table) else "group"


def _only_world(table: Table) -> bool:
    """Whether the file knows no group beside the one of all ranks (older files list no groups at all)."""
    return all(len(g.ranks) <= 1 or len(g.ranks) == table.world for g in table.groups)


def _members(table: Table, axis: str) -> tuple[int, ...]:
    """Ranks of the group of an axis: the group of that name, or all ranks where there is no other group."""
    found = [g.ranks for g in table.groups if g.text and named(g.text) == axis]
    if found:
        return found[0]
    return tuple(range(table.world)) if table.world and _only_world(table) else ()


def on_mesh(comms: Sequence[Comm], rank: int, mesh: Mesh) -> tuple[Comm, ...]:
    """`comms` of one rank with the axes and members that a mesh gives them, where nothing in the trace says them."""
    return tuple(_on_mesh(c, rank, mesh) for c in comms)


def _on_mesh(comm: Comm, rank: int, mesh: Mesh) -> Comm:
    unknown = comm.axis in ("group", "world") or comm.axis.startswith("group-")
    ranks = comm.ranks or (tuple(range(mesh.world)) if comm.axis == "world" else ())
    axis = (mesh.axis(ranks) if unknown else "") or comm.axis
    return replace(comm, axis=axis, ranks=ranks or mesh.group(rank, axis))
