"""Packaging: extras, pins, make targets and what CI runs."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINS = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[ ;]", r, maxsplit=1)[0] for r in requirements}


def test_extras_are_those_of_the_design() -> None:
    assert set(PROJECT["optional-dependencies"]) == {"train", "models", "robot", "remote", "ray", "dev"}


def test_development_is_pinned() -> None:
    extras = PROJECT["optional-dependencies"]
    wanted = names(PROJECT["dependencies"]) | names(extras["train"]) | names(extras["dev"])
    assert wanted <= set(PINS), f"no version in constraints.txt: {wanted - set(PINS)}"
    assert PINS["torch"] == "2.13.0"


def test_version_is_said_once_more_in_the_package_and_agrees() -> None:
    text = (ROOT / "src" / "headway" / "__init__.py").read_text(encoding="utf-8")
    assert f'__version__ = "{PROJECT["version"]}"' in text
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8") or "## [Unreleased]" in (
        ROOT / "CHANGELOG.md"
    ).read_text(encoding="utf-8")


def test_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["license"] == "Apache-2.0"


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = [line for line in script.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert lines == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make test"]


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^\.PHONY: (\S+)$", text, re.MULTILINE))
    assert {"demo", "test", "check", "gpu", "help", "clean"} <= targets
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make (\S+)", shown, re.MULTILINE)) == targets


def test_an_old_python_is_refused_in_one_line(tmp_path: Path) -> None:
    """The guard of the Makefile, with an interpreter that calls itself 3.10."""
    old = tmp_path / "python-old"
    old.write_text('#!/bin/sh\ncase "$1" in -V) echo "Python 3.10.0";; *) exit 1;; esac\n')
    old.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"))
    done = subprocess.run(["make", "venv", f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Headway needs Python 3.11 or newer" in done.stdout
    assert "Python 3.10.0" in done.stdout
    assert not (tmp_path / ".venv").exists()
