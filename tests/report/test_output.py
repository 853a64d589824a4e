"""Answers are never written over devices, folders or a run's records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.report.output import replaced, target
from headway.spec.errors import RunError


def test_new_and_ordinary_files_are_fine(tmp_path: Path) -> None:
    old = tmp_path / "old.html"
    old.write_text("x")
    assert target(old) == old and target(tmp_path / "new.html") == tmp_path / "new.html"


@pytest.mark.parametrize(("name", "text"), [("folder", "is a folder"), ("pipe", "no ordinary file"), ("run.json", "record of a run")])
def test_the_rest_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RunError, match=text):
        target(tmp_path / name)


def test_what_is_written_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    with replaced(out, "page") as part:
        part.write_text("new")
        assert not out.exists()
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("page.html", "new")]


def test_what_is_broken_off_leaves_the_old(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("old")
    with pytest.raises(KeyboardInterrupt), replaced(out, "page") as part:
        part.write_text("ne")
        raise KeyboardInterrupt
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("page.html", "old")]


def test_a_file_for_a_folder_is_named_by_what_the_user_gave(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(RunError, match=r"file/page\.html: the page cannot be written: Not a directory"),
        replaced(tmp_path / "file" / "page.html", "page") as part,
    ):
        part.write_text("new")


@pytest.mark.parametrize(
    "name", ["events.jsonl", "events.rank12.jsonl", "checkpoints/s000000000128/model.bin", "traces/steps.json", "status.json"]
)
def test_what_a_run_keeps_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "run.json").write_text("{}")
    file = tmp_path / name
    assert target(file) == file, "nothing is there to be lost"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    with pytest.raises(RunError, match="record of a run"):
        target(file)
