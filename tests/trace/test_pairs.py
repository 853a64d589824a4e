"""Begin and end events: the spans that were written, whatever nests, in whatever order the lists of a file come."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headway.trace.read.kineto import read
from headway.trace.read.pairs import paired
from tests.trace.drawing import span, write


def nested(draw: random.Random, begin: int, end: int, level: int) -> list[tuple[int, int]]:
    """Spans that nest within [begin, end)."""
    out: list[tuple[int, int]] = []
    while begin < end and level:
        a = draw.randint(begin, end)
        b = draw.randint(a, end)
        if b > a:
            out += [(a, b), *nested(draw, a, b, level - 1)]
        begin = b + draw.randint(0, 3)
    return out


@given(st.integers(0, 10_000))
def test_nested_spans_come_back(seed: int) -> None:
    draw = random.Random(seed)
    spans = [(t, *s) for t in range(3) for s in nested(draw, 0, 60, 4)]
    moments = sorted([(a, 1, -b, t) for t, a, b in spans] + [(b, 0, -a, t) for t, a, b in spans])
    rows = [(place, track, time) for place, (time, opens, _, track) in enumerate(moments) if opens]
    ends = [(place, track, time) for place, (time, opens, _, track) in enumerate(moments) if not opens]
    close, alone = paired(columns(rows), columns(ends))
    assert alone == 0
    assert sorted(zip([t for _, t, _ in rows], [a for _, _, a in rows], close.tolist(), strict=True)) == sorted(spans)


def columns(rows: list[tuple[int, int, int]]) -> tuple[Any, Any, Any]:
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def test_pairs_are_spans(tmp_path: Path) -> None:
    """The same numbers from B and E as from X; what has no partner is left out and counted."""
    whole = [span("cpu_op", "aten::linear", 0, 9), span("cpu_op", "aten::mm", 2, 3), span("kernel", "k", 4, 8, pid=0, tid=7, stream=7)]
    halves: list[dict[str, Any]] = []
    for row in whole:
        end = {"ph": "E", "pid": row["pid"], "tid": row["tid"], "ts": row["ts"] + row.pop("dur")}
        halves += [{**row, "ph": "B"}, end]
    halves.sort(key=lambda e: e["ts"])
    halves += [{"ph": "E", "pid": 5, "tid": 5, "ts": 1}, {"ph": "B", "cat": "cpu_op", "name": "open", "pid": 1, "tid": 2, "ts": 3}]
    table = read(write(tmp_path / "t.json", halves))
    assert [(table.names[n], a, b) for n, a, b in zip(table.name.tolist(), table.start.tolist(), table.end.tolist(), strict=True)] == [
        ("aten::linear", 0, 9000), ("aten::mm", 2000, 5000), ("k", 4000, 12000),
    ]  # fmt: skip
    assert [(h.what, h.count) for h in table.health] == [("begin_end_events", 2)]
    assert table.stream.tolist()[-1] == 7
