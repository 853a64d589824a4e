"""Wrong input: one paragraph on stderr (what, where, fix), exit code 2, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from headway.cli.main import COMMANDS, main

CASES = {
    "trian digits": "Did you mean `headway train`",
    "train digts": "Did you mean digits",
    "train digits --mesh.dpshard 2": "did you mean --mesh.dp-shard",
    "train digits --optim.lr fast": "expected a number, got 'fast'",
    "train digits --optim.lr": "--optim.lr needs a value",
    "train digits --global-batch 33 --mesh.dp-shard 2": "use 32 or 34",
    "train digits --mesh.tp 2": "tensor parallelism is not implemented",
    "train digits --observe.peak h2000": "use measured or one of",
    "train digits --guard.inject nowhere:5": "SITE:MS",
    "train digits --observe.profile-steps 9-3": "first and the last step",
    "train digits --data.flip": "makes other digits",
    "train digits --optim.lrr 1 --optim.lr -1": "2. --optim.lr must not be negative",
    "train digits --mesh.dp-shard 4096 --global-batch 4096 --run big": "more machines",
    "train digits --model.name nothing.py:net": "no such file: nothing.py",
    "train digits --objective.name own.py:los": "'own.py' has no 'los'",
    f"train digits --run {'x' * 300}": "File name too long",
    "explain pipe": "is a pipe or a device",
    "explain /dev/zero": "is a pipe or a device",
    "train folder": "--data.path is needed",
    "train folder --data.path missing": "there is no such folder",
    "train folder --data.path file.txt": "not a folder",
    "train folder --data.path empty": "holds no image files",
    "train digits --run file.txt/run": "cannot write to the run folder",
    "train digits --run '../..' ": "names no run",
    "train nothing.py:run": "no such file",
    "train own.py": "Add ':' and the name of the function",
    "train own.py:broken": "failed: ZeroDivisionError: division by zero (",
    "train own.py:needs": "failed: TypeError: ",
    "train digits --model.name own.py:network --model.condition none --run floats": "failed: KeyError: 'hidden' (",
    "train digits --objective.name own.py:floats --run floats --samples 128": "gave a float, not a LossOut",
    "train bad.py:run": "bad.py, line 1",
    "train own.py:nun": "did you mean 'run'",
    "train own.py:number": "not a RunSpec",
    "train torn.json": "is not JSON",
    "train other.json": "is not a run.json",
    "train missing.json": "cannot read missing.json",
    "status nothing": "no run 'nothing'",
    "stop nothing": "no run 'nothing'",
    "profile nothing": "no run 'nothing'",
    "sample nothing": "no run 'nothing'",
    "evaluate nothing": "no run 'nothing'",
    "explain nothing.json": "no such trace",
    "explain file.txt": "file.txt",
    "explain empty": "empty",
    "explain zero.json": "zero.json",
    "explain other.json": "other.json",
    "explain noise.json.gz": "noise.json.gz",
    "explain": "PATH",
    "explain file.txt --hmtl x": "Did you mean --html",
    "sample": "RUN",
    "sample x --columns 0": "--columns",
    "sample x --columns many": "--columns",
    "sample x --steps 0": "--steps",
    "sample x --guidance nan": "--guidance",
    "evaluate x --num 0": "--num",
    "profile x --steps -1": "--steps",
    "sample x --solver rk4": "--solver",
}


OWN = """
run = None
number = 3
def broken(): return 1 / 0
def needs(argument): return None
def network(model, **more): return model.options["hidden"]
def floats(spec): return lambda roles, batch, draw: 0.5
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file.txt").write_text("hello\n")
    (tmp_path / "zero.json").write_bytes(b"")
    (tmp_path / "torn.json").write_text('{"schema": "headway.run/1", "spec": {')
    (tmp_path / "other.json").write_text('{"answer": 42}')
    (tmp_path / "noise.json.gz").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "bad.py").write_text("def run(:\n")
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


@pytest.mark.parametrize("line", CASES)
def test_wrong_input_is_one_paragraph(line: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.replace("'", "").split()) == 2
    said = capsys.readouterr().err
    assert CASES[line] in said
    assert said.startswith("Error: ") and said.count("\n\n") == 0 and "Traceback" not in said
    assert "--run floats" in line or not (place / "runs").exists(), "a refused command leaves nothing behind"


@pytest.mark.parametrize(("local_rank", "said"), [("0", 1), ("1", 0)])
def test_settings_of_all_ranks_are_refused_by_one_of_a_machine(
    local_rank: str, said: int, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", local_rank), ("WORLD_SIZE", "2"), ("LOCAL_RANK", local_rank)):
        monkeypatch.setenv(name, value)
    assert main(["train", "digits", "--mesh.dp-shard", "4"]) == 2
    assert capsys.readouterr().err.count("Error: ") == said


def test_all_problems_at_once_and_without_torch(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "digits", "--global-batch", "33", "--mesh.dp-shard", "2", "--mesh.tp", "2", "--model.heads", "5", "--json"]) == 2
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert len(problems) == 3


def test_check_looks_for_own_parts_without_running_them(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "loud.py").write_text("raise SystemExit('run')\nclass Net: ...\nloss = 1\n")
    words = ["--model.name", "bad.py:net", "--data.name", "nomodule.sub:fn", "--objective.name", "loud.py:lss", "--data.size", "4"]
    assert main(["check", "digits", *words, "--json"]) == 2
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [p for p in problems if "bad.py, line 1: " in p or "no module 'nomodule.sub'" in p or "did you mean 'loss'" in p] == problems
    assert main(["check", "digits", "--model.name", "loud.py:Net", "--model.condition", "none", "--json"]) == 0


def test_the_processes_must_be_those_of_the_mesh(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "3", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert main(["train", "digits", "--mesh.dp-shard", "2"]) == 2
    assert "needs 2 processes (dp_shard 2), but 3 were started" in capsys.readouterr().err


def test_help_has_an_example_and_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        assert left.value.code == 0
        assert f"example: headway {name}" in capsys.readouterr().out


def test_a_broken_image_is_named_and_counted_or_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(8):
        folder = place / "pictures" / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 16), (i * 30, 0, 0)).save(folder / f"{i}.png")
    (place / "pictures" / "a" / "broken.png").write_bytes(b"\x89PNG nothing more")
    small = "train folder --data.path pictures --data.size 16 --global-batch 4 --samples 8 --model.depth 1 --model.width 32 --model.heads 2"
    words = [*small.split(), "--observe.profile-steps", "", "--observe.peak", "h200", "--checkpoint.every", "0"]
    assert main([*words, "--run", "skip"]) == 0
    said = capsys.readouterr().err
    assert "broken.png" in said and "1 " in said
    assert main([*words, "--run", "refuse", "--data.broken", "refuse"]) == 2
    assert "broken.png" in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["", "--json"])
def test_a_reader_that_has_seen_enough_is_no_error(place: Path, answer: str) -> None:
    command = f"{sys.executable} -m headway recipes {answer} | true; exit ${{PIPESTATUS[0]}}"
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    for env in (environ, environ | {"PYTHONUNBUFFERED": "1"}):
        ended = subprocess.run(["bash", "-c", f"sleep 0 ; {command}"], env=env, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, "")
