"""A trace read in blocks of any size is the trace read at once, whatever its events hold and whatever stands around them."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.trace.read import kineto
from headway.trace.read.chunks import Lists, Uncut
from headway.trace.read.source import Broken, blocks
from headway.trace.table import Table
from tests.trace.drawing import span

ODD = ("aten::mm", '}, {"ph"', "]}", '"traceEvents": [', "a\\b", '}], "x": [{', "\u4e2d\u6587", "")
values = st.one_of(
    st.integers(-5, 5),
    st.sampled_from(ODD),
    st.just([{"name": 1}, {"name": 2}]),
    st.just([{"ph": "X"}, {"ph": "Y"}]),
    st.just({"ts": [{"pid": 1}]}),
)


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """A trace with odd names, nested arguments, and fields before and behind its events that look like events."""
    rows = [
        {**span("cpu_op", draw(st.sampled_from(ODD)), i, 1), "args": {"x": draw(values), "Input Dims": [[i]], "Input type": ["float"]}}
        for i in range(draw(st.integers(1, 40)))
    ]
    around = st.dictionaries(st.sampled_from(("a", "b", "deviceProperties")), values, max_size=3)
    return {**draw(around), "traceEvents": rows, **{f"{k}_": v for k, v in draw(around).items()}, "distributedInfo": {"rank": 4}}


def same(a: Table, b: Table) -> bool:
    columns = all((getattr(a, c) == getattr(b, c)).all() for c in ("start", "end", "kind", "name", "track", "shape"))
    return columns and (a.names, a.tracks, a.shapes, a.rank, a.health) == (b.names, b.tracks, b.shapes, b.rank, b.health)


@given(files(), st.integers(1, 3000), st.sampled_from((None, 1)), st.booleans(), st.booleans())
def test_blocks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any], size: int, indent: int | None, packed: bool, listed: bool
) -> None:
    text = json.dumps(data["traceEvents"] if listed else data, indent=indent, ensure_ascii=False).encode()
    path = tmp_path_factory.mktemp("lists") / "t.json"
    path.write_bytes(gzip.compress(text[: len(text) // 2]) + gzip.compress(text[len(text) // 2 :]) if packed else text)
    assert b"".join(blocks(path, size)) == text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kineto, "_in_lists", lambda path: None)
        whole = kineto.read(path)
        patch.undo()
        patch.setattr(kineto, "blocks", partial(blocks, size=size))
        assert same(kineto.read(path), whole)


def test_a_sound_file_is_read_in_lists(tmp_path: Path) -> None:
    """Many lists, none longer than a block and a rest; the text around them once."""
    rows = [span("cpu_op", f"aten::op{i}", i, 1) for i in range(500)]
    devices = [{"id": 0, "name": "x"}, {"id": 1, "name": "y"}]
    text = json.dumps({"schemaVersion": 1, "traceEvents": rows, "deviceProperties": devices}).encode()
    lists = Lists(text[i : i + 4096] for i in range(0, len(text), 4096))
    found = list(lists)
    assert len(found) > 5 and max(map(len, found)) < 3 * 4096
    assert [e for part in found for e in json.loads(part)] == rows
    assert json.loads(lists.shell) == {"schemaVersion": 1, "traceEvents": [], "deviceProperties": devices}


@pytest.mark.parametrize("text", [b"", b"{}", b'{"traceEvents": 5}', b'{"traceEvents": [', b'{"traceEvents": [{"ph": "X"}'])
def test_no_list_is_seen(text: bytes) -> None:
    with pytest.raises(Uncut):
        list(Lists(iter([text])))


def test_a_gzip_file_that_breaks(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(range(256)) * 100)
    (tmp_path / "t.gz").write_bytes(packed[:-20])
    with pytest.raises(Broken):
        list(blocks(tmp_path / "t.gz", 1000))
