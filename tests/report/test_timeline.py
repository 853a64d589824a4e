"""The timeline's data: nothing lost where pieces are put together, devices and steps chosen and said; and the trace for Perfetto."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.report import timeline as page
from headway.report.perfetto import write_perfetto
from headway.spec.errors import RunError
from headway.trace.timeline import Timeline

NAMES = ("compute.gemm", "comm.all_reduce.dp.wait", "idle.launch")


def line(rank: int = 0, *, steps: int = 3, pieces: int = 50, slow: float = 1.0, long: int = 0) -> Timeline:
    rng, origin = np.random.default_rng(rank), 1_700_000_000_000_000_000
    length = (rng.exponential(1000 * slow, steps * pieces)).astype(np.int64) + 1
    length[[7, -7]] += long
    start = origin + np.concatenate(([0], np.cumsum(length)[:-1]))
    end = start + length
    edges = np.append(start[::pieces], end[-1:])
    code = rng.integers(0, 3, len(start))
    return Timeline(
        rank=rank, device="cuda:0", steps=tuple(range(10, 10 + steps)), edges=edges, start=start, end=end, bucket=code, phase=code,
        module=np.zeros(len(start), np.int64), label=np.where(code == 0, 0, -1), names=NAMES, modules=("other",), labels=("sgemm",),
    )  # fmt: skip


def decoded(lane: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum(lane["at"]), np.array(lane["length"])


def test_everything_is_there_if_it_fits() -> None:
    data = page.lanes([line(0), line(1)])
    assert data is not None and data["note"] == ""
    for lane, t in zip(data["lanes"], (line(0), line(1)), strict=True):
        at, length = decoded(lane)
        assert (at == t.start - int(line(0).edges[0])).all() and (length == t.end - t.start).all()
        assert [data["names"][b] for b in lane["bucket"]] == [t.names[b] for b in t.bucket.tolist()]
        assert {data["labels"][k] if k >= 0 else None for k in lane["kernel"]} == {"sgemm", None}
    json.dumps(data)


def test_short_neighbours_are_put_together_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MAX_PIECES", 200)
    t = line(steps=1, pieces=5000, long=90_000)
    data = page.lanes([t])
    assert data is not None
    (lane,) = data["lanes"]
    at, length = decoded(lane)
    assert len(at) <= 300 and "short pieces" in data["note"]
    assert (at[1:] == at[:-1] + length[:-1]).all() and length.sum() == t.end[-1] - t.start[0]
    assert set((t.end - t.start)[[7, -7]].tolist()) <= set(length.tolist()), "long pieces stay"


def test_many_devices_and_steps_are_chosen_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MAX_PIECES", 8 * 150)
    lines = [line(r, steps=6, slow=5.0 if r == 9 else 1.0) for r in range(20)]
    data = page.lanes(lines)
    assert data is not None
    assert len(data["lanes"]) == 8 and "rank 9, cuda:0" in [lane["label"] for lane in data["lanes"]]
    assert "8 of 20 devices" in data["note"] and "of 6 traced steps" in data["note"]


def test_nothing_to_draw() -> None:
    assert page.lanes([]) is None
    assert page.timeline_section(None) is None


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_perfetto_gets_every_nanosecond(tmp_path: Path, name: str) -> None:
    t = line(steps=2)
    num = write_perfetto(tmp_path / name, [t])
    text = (gzip.decompress((tmp_path / name).read_bytes()) if name.endswith("gz") else (tmp_path / name).read_bytes()).decode()
    events = json.loads(text, parse_float=lambda s: int(s.replace(".", "")))["traceEvents"]
    assert len(events) == num
    spans = [e for e in events if e["ph"] == "X"]
    by_track = {track: [e for e in spans if e["tid"] == track] for track in range(5)}
    assert [e["name"] for e in by_track[0]] == ["step 10", "step 11"]
    for track in (0, 1, 2, 3):
        assert sum(e["dur"] for e in by_track[track]) == t.end[-1] - t.start[0]
    for name_of in NAMES:
        code = NAMES.index(name_of)
        assert sum(e["dur"] for e in by_track[1] if e["name"] == name_of) == (t.end - t.start)[t.bucket == code].sum()
    assert {e["name"] for e in by_track[4]} == {"sgemm"}


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be written"):
        write_perfetto(tmp_path / "no" / "out.json", [line()])
