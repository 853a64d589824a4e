"""Which module, and which compiled graph, each host thread was in: marks by name, and the backward pass under what made its nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from headway.trace import marks
from headway.trace.sweep import Ints, Steps, classes, depth, distinct
from headway.trace.table import HOST, Kind, Table
from headway.trace.tracks import by_track, looked_up

Named = tuple[tuple[str, ...], dict[int, Steps]]  # names of codes, and the code on each track over time


def modules(table: Table) -> Named:
    """Paths of modules: from marks that hold a path, and from nested calls of nn.Module (Net_0.Block_1.Linear_0)."""
    marked = _coded(table, marks.module)
    rows = np.flatnonzero(table.of(*HOST) & table.named(lambda n: n.startswith(marks.CALL)) & (table.end > table.start))
    if not len(rows):
        return _with_backward(table, *marked)
    paths, code = _nested(table, rows)
    names, of_row = marked
    of_row[rows] = np.where(of_row[rows] >= 0, of_row[rows], code + len(names))
    return _with_backward(table, (*names, *paths), of_row)


def graphs(table: Table) -> Named:
    """Graphs that torch.compile made: numbers of regions (0/1: the second version of frame 0), else names of their code."""
    found = _coded(table, marks.region)
    return _with_backward(table, *(found if found[0] else _coded(table, marks.compiled)))


def _coded(table: Table, rule: Callable[[str], str]) -> tuple[tuple[str, ...], Ints]:
    """The names that `rule` reads off host rows, and the code of each row; -1 for none."""
    found = [rule(n) for n in table.names]
    names = tuple(sorted({n for n in found if n}))
    code_of = {n: i for i, n in enumerate(names)}
    code = np.array([*(code_of.get(n, -1) for n in found), -1], np.int64)[table.name]
    return names, np.where(table.of(*HOST), code, -1)


def _nested(table: Table, rows: Ints) -> tuple[list[str], Ints]:
    """Paths of calls of nn.Module, and the path of each row: those around it on its thread, outermost first."""
    parent = np.full(len(rows), -1, np.int64)
    level = np.zeros(len(rows), np.int64)
    for track in distinct(table.track[rows]).tolist():
        mine = np.flatnonzero(table.track[rows] == track)
        deep = depth(table.start[rows[mine]], table.end[rows[mine]])
        level[mine] = deep
        for d in range(1, int(deep.max(initial=0)) + 1):
            outer, inner = mine[deep == d - 1], mine[deep == d]
            parent[inner] = outer[np.searchsorted(outer, inner) - 1]
    paths: list[str] = []
    code = np.full(len(rows), -1, np.int64)
    for d in range(int(level.max(initial=0)) + 1):
        here = np.flatnonzero(level == d)
        above = np.where(parent[here] >= 0, code[np.maximum(parent[here], 0)], -1)
        pairs, of_row = classes(above, table.name[rows[here]])
        code[here] = len(paths) + of_row
        paths += [_joined(paths, a, table.names[n]) for a, n in pairs.tolist()]
    return paths, code


def _joined(paths: Sequence[str], above: int, name: str) -> str:
    short = name.removeprefix(marks.CALL)
    return f"{paths[above]}.{short}" if above >= 0 else short


def _with_backward(table: Table, names: tuple[str, ...], code: Ints) -> Named:
    """The code of each thread over time; nodes of the backward pass take that of the forward operator with their sequence number."""
    if not names:
        return (), {}
    forward = by_track(table, np.flatnonzero(code >= 0), code)
    nodes = np.flatnonzero(table.of(*HOST) & table.named(marks.is_backward) & (table.sequence >= 0) & (code < 0))
    if not len(nodes):
        return names, forward
    code = code.copy()
    code[nodes] = _of_forward(table, nodes, forward)
    return names, by_track(table, np.flatnonzero(code >= 0), code)


def _of_forward(table: Table, nodes: Ints, forward: dict[int, Steps]) -> Ints:
    """Code at the last forward operator that carries the sequence number of each backward node; -1 if there is none."""
    made = np.flatnonzero((table.kind == Kind.OPERATOR) & (table.sequence >= 0) & (table.forward <= 0))
    made = made[~table.named(marks.is_backward)[made]]
    if not len(made):
        return np.full(len(nodes), -1, np.int64)
    made = made[np.argsort(table.sequence[made], kind="stable")]  # rows are in order of start, so the last of a number is last
    index = np.searchsorted(table.sequence[made], table.sequence[nodes], side="right") - 1
    row = made[np.maximum(index, 0)]
    found = (index >= 0) & (table.sequence[row] == table.sequence[nodes])
    return np.where(found, looked_up(forward, table.track[row], table.start[row]), -1)
