"""`headway diff` and `headway scale` at the command line: answers, JSON, pages, and wrong input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headway.cli.main import main
from tests.trace.simulate import Cluster, simulate, write

BASE = Cluster(mesh={"dp": 2}, steps=4, layers=2, kernels=2, noise=0.002)
CASES = {
    "diff": "the following arguments are required: A, B",
    "diff a": "the following arguments are required: B",
    "diff a a": "A and B are the same",
    "diff a nothing": "nothing",
    "diff a empty": "no trace in this folder",
    "diff a file.txt": "file.txt",
    "diff a b --htlm x": "Did you mean --html",
    "diff a b --html empty": "is a folder",
    "scale": "no path given",
    "scale a": "one size only",
    "scale a a": "given twice",
    "scale a empty": "no trace in this folder",
    "scale a file.txt": "file.txt",
    "scale nothing.csv": "nothing",
    "scale --csv nothing.csv": "cannot be read as a table",
    "scale --csv bare.csv": "has no column n_gpus",
    "scale --csv mixed.csv": "neither the global batch nor the batch per device is equal",
    "scale --csv none.csv": "no figure that says how long a step takes",
    "scale a --kind sideways": "--kind",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("hello\n")
    (tmp_path / "bare.csv").write_text("model,value\nA,1\n")
    (tmp_path / "mixed.csv").write_text("model,n_gpus,batch,metric,value\nA,8,32,step_time,1\nA,16,100,step_time,1\n")
    (tmp_path / "none.csv").write_text("model,n_gpus,batch,metric,value\nA,8,32,peak_memory,1\n")
    write(simulate(BASE), tmp_path / "a")
    write(simulate(replace(BASE, seed=1, input_ns=2_000_000)), tmp_path / "b")
    write(simulate(replace(BASE, seed=2, mesh={"dp": 4})), tmp_path / "n4")
    return tmp_path


@pytest.mark.parametrize("line", CASES)
def test_wrong_input_is_one_paragraph(line: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    assert CASES[line] in said
    assert said.startswith("Error: ") and said.count("\n\n") == 0 and "Traceback" not in said


def test_diff_as_text_json_and_page(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "a", "b", "--html", "d.html"]) == 0
    text = capsys.readouterr().out
    assert "B is slower" in text and "page: d.html" in text and max(map(len, text.splitlines())) <= 80
    assert main(["diff", "a", "b", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "headway.diff/1"
    assert sum(c["delta"] for c in data["buckets"]) == sum(c["delta"] for c in data["phases"]) == data["step"]["delta"]
    assert data["buckets"][0]["name"] == "idle.input"
    page = (place / "d.html").read_text()
    assert page.startswith("<!doctype html>") and "idle.<wbr>input" in page and "<script" not in page


def test_scale_as_text_json_and_page(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", "a", "n4", "--html", "s.html"]) == 0
    text = capsys.readouterr().out
    assert "weak scaling" in text and "not enough sizes for a law" in text and max(map(len, text.splitlines())) <= 80
    assert main(["scale", "a", "n4", "--json", "--kind", "weak"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "headway.scaling/1"
    assert [r["size"] for r in data["ladders"][0]["rungs"]] == [2, 4]
    assert "comm.all_reduce.dp" in (place / "s.html").read_text()
