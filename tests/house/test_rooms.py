"""Rooms: each is placed, has a README, an empty front door and a name that says something."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "src" / "headway"
ROOMS = sorted(p.parent for p in PACKAGE.glob("*/*.py") if p.name == "__init__.py")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README_LINES = json.loads((ROOT / "tests" / "house" / "ratchet.json").read_text(encoding="utf-8"))["readme_lines"]
EMPTY_NAMES = ("utils", "util", "common", "helpers", "helper", "manager", "base", "misc")
# The design's list, top to bottom, so that the contract cannot lose a room by accident.
DESIGN = [
    "cli", "recipes", "study", "bench", "train", "evaluate", "runtime", "diffusion", "parallel", "data", "encoders", "nn", "report",
    "doctor", "plan", "history", "kernels", "trace", "stats", "spec",
]  # fmt: skip


def placed() -> list[str]:
    layers = PYPROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    return [name for line in layers for name in re.findall(r"\w+", line)]


def test_every_room_of_the_design_is_placed_once_and_in_order() -> None:
    assert [name for name in placed() if name != "__main__"] == DESIGN


@pytest.mark.parametrize("room", ROOMS, ids=lambda p: p.name)
def test_a_room_has_a_short_readme(room: Path) -> None:
    readme = room / "README.md"
    assert readme.is_file(), f"{room.name} has no README.md: why it exists, its entry points, what it refuses to do"
    lines = readme.read_text(encoding="utf-8").splitlines()
    assert 5 <= len(lines) <= README_LINES, f"{readme} has {len(lines)} lines; at most {README_LINES}"
    assert "refuse" in "\n".join(lines).lower(), f"{readme} does not say what the room refuses to do"


@pytest.mark.parametrize("room", ROOMS, ids=lambda p: p.name)
def test_the_front_door_of_a_room_is_empty(room: Path) -> None:
    """Only a docstring: importing one module of a room must not import the others (torch, for one)."""
    body = ast.parse((room / "__init__.py").read_text(encoding="utf-8")).body
    assert len(body) == 1
    assert isinstance(body[0], ast.Expr)
    assert isinstance(body[0].value, ast.Constant)


def test_every_folder_with_code_is_a_room() -> None:
    folders = {f.parent for f in PACKAGE.rglob("*.py")} - {PACKAGE}
    missing = [str(f.relative_to(ROOT)) for f in sorted(folders) if not (f / "__init__.py").is_file()]
    assert not missing, f"no __init__.py in {missing}"


def test_no_module_has_an_empty_name() -> None:
    empty = [str(f.relative_to(ROOT)) for f in PACKAGE.rglob("*.py") if f.stem in EMPTY_NAMES or f.parent.name in EMPTY_NAMES]
    assert not empty, f"name the thing: {empty}"


PLANTED = {
    "spec/low.py": "def f():\n    from headway.trace import high\n",  # upwards, inside a function
    "spec/__init__.py": "",
    "trace/__init__.py": "",
    "trace/high.py": "def f():\n    import torch\n",  # torch, inside a function
    "nn/__init__.py": "",
    "nn/dit.py": "",
    "encoders/__init__.py": "",
    "encoders/vae.py": "import headway.nn.dit\n",  # a room on the same line
    "parallel/__init__.py": "",
    "parallel/rules.py": "import headway.nn.dit\n",
    "attic/__init__.py": "",  # a room that the design does not know
    "__init__.py": "",
}


def lint(tmp_path: Path, files: dict[str, str]) -> tuple[int, str]:
    """The exit code and text of import-linter, with our contracts, on a package made of `files`."""
    for name, text in files.items():
        file = tmp_path / "headway" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    program = "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--no-cache", "--show-timings"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_contracts_catch_planted_imports(tmp_path: Path) -> None:
    code, text = lint(tmp_path, PLANTED)
    assert code == 1, text
    assert "headway.spec.low -> headway.trace.high" in text
    assert "headway.trace.high -> torch" in text
    assert "headway.encoders.vae -> headway.nn.dit" in text
    assert "headway.parallel.rules -> headway.nn.dit" in text
    assert "headway.attic" in text


def test_the_contracts_let_a_clean_house_pass(tmp_path: Path) -> None:
    clean = {
        "__init__.py": "",
        "spec/__init__.py": "",
        "spec/run.py": "",
        "nn/__init__.py": "",
        "nn/dit.py": "import torch, headway.spec.run\n",
    }
    code, text = lint(tmp_path, clean)
    assert code == 0, text
