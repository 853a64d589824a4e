"""A file to be written is never one that is read: refused in one paragraph, before any work, and nothing is touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headway.cli.main import main
from tests.trace.simulate import Cluster, simulate, write

BASE = Cluster(mesh={"dp": 2}, steps=4, layers=2, kernels=2, noise=0.002)
READ = "is read by this command and would be lost"
CASES = {
    "explain a/RANK0 --html a/RANK0": READ,
    "explain a --html a/RANK0": READ,
    "explain a --perfetto a/RANK1": READ,
    "explain a --perfetto ./b/../a/RANK1": READ,
    "explain a --perfetto link.json": READ,
    "explain above --html above/rank/RANK0": READ,
    "explain a --ceilings peak.json --html peak.json": READ,
    "explain a --html x --perfetto x": "--html and --perfetto name the same file",
    "explain a --html=": "names no file",
    "diff a b --html a/RANK0": READ,
    "diff a b --html b/RANK1": READ,
    "diff a b/RANK0 --html b/RANK0": READ,
    "scale a b t.csv --html t.csv": READ,
    "scale a b --csv t.csv --html t.csv": READ,
    "scale a b --html b/RANK0": READ,
    "diff a b --html events.jsonl": "record of a run",
    "sample missing --out t.csv": "no run 'missing'",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("outputs")
    write(simulate(BASE), place / "a")
    write(simulate(replace(BASE, seed=1)), place / "b")
    write(simulate(replace(BASE, seed=2)), place / "above" / "rank")
    (place / "t.csv").write_text("model,n_gpus,batch,metric,value\nA,8,32,step_time,1\nA,16,64,step_time,1\n")
    (place / "peak.json").write_text("{}")
    (place / "events.jsonl").write_text("{}\n")
    (place / "link.json").symlink_to(sorted((place / "a").iterdir())[0])
    return place


@pytest.mark.parametrize("line", CASES)
def test_an_input_is_never_written_over(line: str, made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(made)
    monkeypatch.setattr("headway.trace.explain.account", lambda *a, **k: pytest.fail("worked before it looked"))
    ranks = sorted(p.name for p in (made / "a").iterdir())
    before = {p: p.read_bytes() for p in made.rglob("*") if p.is_file()}
    assert main(line.replace("RANK0", ranks[0]).replace("RANK1", ranks[1]).split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("Error: ") and CASES[line] in said and said.count("\n") == 1
    assert {p: p.read_bytes() for p in made.rglob("*") if p.is_file()} == before


def test_an_answer_of_before_is_written_over(made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(made)
    for _ in range(2):
        assert main(["diff", "a", "b", "--html", "a/page.html"]) == 0
    (made / "a" / "page.html").unlink()
