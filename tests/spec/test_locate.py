from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headway.spec.errors import SpecError
from headway.spec.locate import is_own, locate

SOURCE = """
import dataclasses

@dataclasses.dataclass
class Thing:
    size: int = 3

    @staticmethod
    def make():
        return "made"

def network():
    return "net"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def test_a_file_of_the_user(file: Path) -> None:
    assert locate(f"{file}:network")() == "net"
    assert locate(f"{file}:Thing")(size=4).size == 4
    assert locate(f"{file}:Thing.make")() == "made"
    assert locate(f"{file}:network") is locate(f"{file}:network")  # imported once


def test_a_path_relative_to_where_the_command_runs(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert locate("mine.py:network") is locate(f"{file}:network")


def test_two_files_of_one_name_are_two_modules(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "mine.py"
    other.parent.mkdir()
    other.write_text("def network():\n    return 'other'\n")
    assert (locate(f"{file}:network")(), locate(f"{other}:network")()) == ("net", "other")


def test_a_module_that_python_finds() -> None:
    assert locate("json.decoder:JSONDecoder").__name__ == "JSONDecoder"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mine.py", "does not name an object"),
        (":network", "does not name an object"),
        ("{file}:", "does not name an object"),
        ("{folder}/nothing.py:network", r"no such file: .*nothing\.py"),
        ("{file}:netwrok", "has no 'netwrok'; did you mean 'network'?"),
        ("{file}:Thing.mkae", "has no 'mkae'; did you mean 'make'?"),
        ("no_such_package_here:network", "no module 'no_such_package_here'"),
        ("json.no_such_module:network", r"no module 'json\.no_such_module'"),
    ],
)
def test_what_is_not_there_is_said(file: Path, name: str, text: str) -> None:
    with pytest.raises(SpecError, match=text.replace("?", r"\?")):
        locate(name.format(file=file, folder=file.parent))


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def network(:\n")
    with pytest.raises(SpecError, match=r"broken\.py, line 1: "):
        locate(f"{path}:network")


def test_an_error_of_the_file_itself_is_its_own(tmp_path: Path) -> None:
    """A bug in the user's file is shown as Python shows it, and the half-imported module is not kept."""
    path = tmp_path / "raises.py"
    path.write_text("import json\n1 / 0\n")
    before = set(sys.modules)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            locate(f"{path}:network")
    assert set(sys.modules) == before
    path.write_text("import json\nimport no_such_package_here\n")
    with pytest.raises(SpecError, match=r"raises.py, line 2: No module named 'no_such_package_here'"):
        locate(f"{path}:network")
    assert set(sys.modules) == before


def test_own_names_have_a_colon() -> None:
    assert is_own("a.py:b")
    assert not is_own("dit")
