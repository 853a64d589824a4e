"""The run folder: names, atomic files, requests, who is alive, what a resume may change."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headway.report.lists import print_status
from headway.runtime import folder, manifest
from headway.runtime.folder import Run
from headway.spec.codec import encode
from headway.spec.errors import RunError, SpecError
from headway.spec.info import SCHEMA
from headway.spec.parts import MeshSpec, ModelSpec
from headway.spec.run import RunSpec


def written(path: Path, **changes: Any) -> Run:
    run = Run(path=path, spec=RunSpec(name=path.name, **changes), info={"world": 2})
    folder.make_folder(path)
    folder.write_run(run)
    return run


def status(path: Path, **fields: Any) -> None:
    folder.write_json(path / "status.json", {"state": "running", "time_ns": time.time_ns(), **folder.identity(), **fields})


def test_a_name_is_a_run_in_runs_and_a_path_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder.place("digits") == Path("runs/digits")
    assert folder.place("a/b") == Path("a/b") and folder.place(str(tmp_path)) == tmp_path
    written(Path("here"))
    assert folder.place("here") == Path("here")


def test_a_run_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    run = written(tmp_path / "a", seed=3, mesh=MeshSpec(dp_shard=2))
    assert folder.open_run(str(run.path)) == run


def test_a_run_that_is_not_there_names_those_that_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=r"There is no run in \./runs yet"):
        folder.open_run("digits")
    written(Path("runs/one"))
    with pytest.raises(RunError, match="Runs here: one"):
        folder.open_run("two")


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"schema": "other/1"}', '{"schema": "headway.run/1"}'])
def test_a_run_json_that_cannot_be_read_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunError, match=r"cannot read .*run\.json"):
        folder.open_run(str(tmp_path))


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "status.json"
    folder.write_json(file, {"a": 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        folder.write_json(file, {"a": 2})
    assert folder.read_json(file) == {"a": 1}
    file.write_text('{"a": ')
    assert folder.read_json(file) is None and folder.read_json(tmp_path / "no") is None


def test_torn_lines_of_events_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"kind": "log"}\n[1]\n{"kind": "lo')
    assert list(folder.read_events(tmp_path)) == [{"kind": "log"}]
    assert list(folder.read_events(tmp_path, rank=3)) == []


def test_a_request_is_there_until_it_is_answered(tmp_path: Path) -> None:
    assert folder.asked(tmp_path, "profile") is None
    folder.ask(tmp_path, "profile", steps=4)
    assert folder.asked(tmp_path, "profile")["steps"] == 4  # type: ignore[index]
    folder.answered(tmp_path, "profile")
    folder.answered(tmp_path, "profile")
    assert folder.asked(tmp_path, "profile") is None


def test_old_runs_are_set_aside_one_after_another(tmp_path: Path) -> None:
    for n in (1, 2):
        written(tmp_path / "a", seed=n)
        assert folder.set_aside(tmp_path / "a") == tmp_path / f"a.{n}"
    assert folder.set_aside(tmp_path / "a") is None
    assert [folder.open_run(str(tmp_path / f"a.{n}")).spec.seed for n in (1, 2)] == [1, 2]


def test_a_resume_may_change_the_layout_but_not_what_makes_the_run(tmp_path: Path) -> None:
    run = written(tmp_path / "a")
    assert folder.compatible(tmp_path / "new", run.spec) == []
    assert folder.compatible(run.path, dataclasses.replace(run.spec, name="other")) == [], "a run may be moved"
    assert folder.compatible(run.path, dataclasses.replace(run.spec, samples=7)) == [("samples", 100_000, 7)]
    with pytest.raises(SpecError, match=r"--model\.depth was 4, now 5"):
        folder.compatible(run.path, dataclasses.replace(run.spec, model=ModelSpec(depth=5)))


def checkpoint(path: Path, samples: int, **meta: Any) -> None:
    saved = path / "checkpoints" / manifest.name_of(samples)
    saved.mkdir(parents=True)
    manifest.write(saved, {"samples": samples, "world": 1, "meta": meta, "values": {}, "files": {}})


def test_without_its_run_json_a_run_is_what_its_checkpoints_say(tmp_path: Path) -> None:
    run = written(tmp_path / "a")
    checkpoint(run.path, 10)  # says nothing
    checkpoint(run.path, 20, spec=encode(run.spec))
    (run.path / "run.json").unlink()
    assert folder.compatible(run.path, dataclasses.replace(run.spec, samples=7)) == [("samples", 100_000, 7)]
    with pytest.raises(SpecError, match=r"--seed was 0, now 1"):
        folder.compatible(run.path, dataclasses.replace(run.spec, seed=1))
    with pytest.raises(RunError, match="Its checkpoints are there"):
        folder.open_run(str(run.path))


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "7",
        '{"state": 3, "pid": "x", "time_ns": null}',
        '{"state": "running", "time_ns": "now", "pid": {}}',
        "[" * 100_000,
        '{"loss": []}',
    ],
)
def test_a_status_that_somebody_has_edited_is_read_as_far_as_it_goes(tmp_path: Path, text: str) -> None:
    run = written(tmp_path / "a")
    (run.path / "status.json").write_text(text)
    (run.path / "events0.jsonl").write_text('{"kind": "warning"}\n{"kind": "warning", "text": 7, "time_ns": "x"}\n' + "[" * 100_000)
    told = folder.summary(run)
    assert told["state"] in ("starting", "dead") and told["last_warning"] is None
    print_status(told, Console(file=io.StringIO()))
    folder.compatible(run.path, run.spec)


@pytest.mark.parametrize("info", [[], 7, {"size": "8"}, {"world": None}, {"channels": [1]}])
def test_a_run_json_that_somebody_has_edited_is_refused(tmp_path: Path, info: Any) -> None:
    run = written(tmp_path / "a")
    folder.write_json(run.path / "run.json", {"schema": SCHEMA, "spec": encode(run.spec), "info": info})
    with pytest.raises(RunError, match=r"cannot read .*run\.json: info"):
        folder.open_run(str(run.path))


def test_a_run_that_is_running_is_not_started_twice(tmp_path: Path) -> None:
    run = written(tmp_path / "a")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        status(run.path, pid=other.pid, pid_started=folder._started(other.pid))
        with pytest.raises(RunError, match=f"running already \\(process {other.pid}"):
            folder.compatible(run.path, run.spec)
        folder.require_live(run.path)
        other.communicate(b"\n")
    assert folder.status(run.path)["state"] == "dead"
    assert folder.compatible(run.path, run.spec) == []


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "running"),
        ({"state": "ended"}, "ended"),
        ({"pid": 1 << 30}, "dead"),
        ({"pid_started": "1"}, "dead"),  # another process has the number now
        ({"host": "elsewhere"}, "running"),
        ({"host": "elsewhere", "time_ns": 0}, "dead"),
        ({"host": "elsewhere", "time_ns": time.time_ns() - 700 * 10**9, "period_s": 60.0}, "running"),  # its lines are far apart
    ],
)
def test_who_is_alive(tmp_path: Path, fields: dict[str, Any], state: str) -> None:
    status(tmp_path, **fields)
    assert folder.status(tmp_path)["state"] == state
    assert folder.ended(tmp_path) == (state not in ("running", "starting"))
    if state != "running":
        with pytest.raises(RunError, match=f"not running \\(state: {state}\\)"):
            folder.require_live(tmp_path)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write to the run folder"):
        folder.make_folder(tmp_path / "file" / "run")


def test_the_summary_has_the_last_checkpoint_and_warning(tmp_path: Path) -> None:
    run = written(tmp_path / "a", global_batch=10, samples=95)
    status(run.path, samples=30, left_s=5.0)
    for name in ("s000000000010", "s000000000020", "s000000000030.incomplete"):
        (run.path / "checkpoints" / name).mkdir(parents=True)
    rows = [{"kind": "warning", "text": t, "time_ns": time.time_ns()} for t in ("first", "second")]
    (run.path / "events.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    told = folder.summary(run)
    assert (told["steps"], told["total_samples"], told["samples"], told["time_left_s"]) == (10, 100, 30, 5.0)
    assert told["last_checkpoint"] == "s000000000020" and told["last_warning"]["text"] == "second"


def test_waiting_ends_with_an_answer_or_when_nothing_can_come() -> None:
    answers = iter([0, 0, 7])
    assert folder.wait_for(lambda: next(answers), 10.0) == 7
    start = time.monotonic()
    assert folder.wait_for(lambda: 0, 10.0, over=lambda: True) == 0
    assert folder.wait_for(lambda: 0, 0.01) == 0
    assert time.monotonic() - start < 2


def test_traces_are_new_once_every_rank_has_written(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "old.json.gz").write_text("")
    before = set((tmp_path / "traces").iterdir())
    (tmp_path / "traces" / "a.json.gz").write_text("")
    assert folder.new_traces(tmp_path, before, 2) == []
    (tmp_path / "traces" / "b.json.gz").write_text("")
    assert [p.name for p in folder.new_traces(tmp_path, before, 2)] == ["a.json.gz", "b.json.gz"]
    assert os.listdir(tmp_path) == ["traces"]


@pytest.mark.parametrize("state", ["running", "starting"])
def test_a_live_run_is_neither_resumed_nor_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    run = written(tmp_path / "a")
    status(run.path, state=state, pid=1, host="elsewhere", job="7")
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    for start in (lambda: folder.compatible(run.path, run.spec), lambda: folder.set_aside(run.path)):
        with pytest.raises(RunError, match="running already"):
            start()
    monkeypatch.setenv("SLURM_JOB_ID", "7")  # queued again after its node was lost: the earlier life is over
    assert folder.compatible(run.path, run.spec) == []
    assert folder.identity()["job"] == "7"
    assert folder.set_aside(run.path) == tmp_path / "a.1"


def test_a_checkpoint_that_is_being_removed_is_not_the_last_one(tmp_path: Path) -> None:
    run = written(tmp_path / "a")
    for name in ("s000000000010", "s000000000020.removed"):
        (run.path / "checkpoints" / name).mkdir(parents=True)
    assert folder.summary(run)["last_checkpoint"] == "s000000000010"


@pytest.mark.parametrize("name", ["", ".", "..", "runs", "./runs"])
def test_the_folder_of_runs_is_no_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="names no run"):
        folder.place(name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"schema": "headway.run/99", "spec": {"name": "a"}, "info": {}}', "newer version"),
        ('{"schema": "headway.run/1", "spec": {"name": "a", "global_batch": 0}}', "must be at least 1"),
        ('{"schema": "headway.run/1", "spec": ' + '{"model":' * 5000 + "{}" + "}" * 5001, "deeper than"),
        ('{"schema": "headway.run/1", "spec": {"name": "a", "samples": ' + "9" * 400 + "}}", "64 bits"),
        ("[1]", "cannot read"),
    ],
)
def test_a_run_json_that_cannot_be_is_one_paragraph(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunError, match=says):
        folder.open_run(str(tmp_path))


def test_a_link_that_leads_to_itself_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(RunError, match="no run"):
        folder.open_run(str(tmp_path / "loop"))


def test_numbers_that_cannot_be_counted_with_are_left_out_of_a_status(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"state": "ended", "time_ns": 1e300, "samples": 5}')
    assert folder.status(tmp_path)["samples"] == 5
    assert "time_ns" not in folder.status(tmp_path)
