"""Many files: a pool of processes and a Ray cluster answer as one process does; a bad file or a killed reader is told."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from headway.spec.breakdown import to_json
from headway.spec.errors import TraceError
from headway.trace.explain import explain
from headway.trace.fleet import engine
from tests.trace.drawing import draw

DRAWING = """
main [S0                     ][S1                     ]
main  [L1] [L2]                [L3] [L4]
0.7      [g1  ]                   [g3      ]
0.8        [n2  {longer}]{then}[n4    ]
"""


def traces(folder: Path, num: int) -> Path:
    for rank in range(num):
        drawing = DRAWING.strip("\n").format(longer=" " * (rank % 5), then=" " * (16 - rank % 5))
        draw(folder / f"rank{rank}.json", drawing, rank=rank, world=num)
    return folder


def test_a_pool_answers_as_one_process(tmp_path: Path) -> None:
    folder = traces(tmp_path, 7)
    (folder / "notes.json").write_text("{}")
    alone = to_json(explain([folder], workers=1))
    assert to_json(explain([folder], workers=2)) == alone
    assert len(alone["ranks"]) == 7
    assert [h["what"] for h in alone["health"]].count("not_a_trace") == 1


def test_ray_answers_as_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    folder = traces(tmp_path, 64)
    (folder / "notes.json").write_text("{}")
    assert to_json(explain([folder], engine="ray")) == to_json(explain([folder]))


def test_ray_that_is_not_there_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(TraceError, match=r"pip install 'headway\[ray\]'"):
        explain([traces(tmp_path, 2)], engine="ray")


def test_a_named_file_that_is_no_trace_is_an_error_in_a_pool_too(tmp_path: Path) -> None:
    folder = traces(tmp_path, 2)
    bad = tmp_path / "bad.json"
    bad.write_text("[1, 2")
    with pytest.raises(TraceError, match=r"bad\.json"):
        explain([folder / "rank0.json", bad, folder / "rank1.json"], workers=2)


def killed(path: Path) -> engine.Outcome:
    """A reader whom the kernel takes for lack of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ()


def test_a_reader_that_is_killed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "attempt", killed)
    with pytest.raises(TraceError, match=r"was killed.*--workers 1"):
        explain([traces(tmp_path, 4)], workers=2)


def test_a_pool_is_used_where_it_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def pooled(paths: Sequence[Path], workers: int) -> object:
        asked.append(workers)
        return map(engine.attempt, paths)

    monkeypatch.setattr(engine, "_pooled", pooled)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    folder = traces(tmp_path, 3)
    explain([folder], workers=0)
    assert asked == []
    monkeypatch.setattr(engine, "WORTH_BYTES", 100)
    explain([folder], workers=0)
    assert asked == [3], "one a file at most"
    explain([folder / "rank0.json"], workers=0)
    assert asked == [3]
