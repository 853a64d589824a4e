"""Knob honesty: a setting that nothing reads would be accepted and ignored."""

from __future__ import annotations

import ast
import dataclasses
import typing
from pathlib import Path
from typing import Any, Literal

import pytest

from headway.spec import run
from headway.spec.codec import flag_names
from headway.spec.parts import RoleSpec, StageSpec
from headway.spec.run import RunSpec

PACKAGE = Path(__file__).resolve().parent.parent.parent / "src" / "headway"
RULES = {rule.__name__ for rule in (*run._RULES, run._stages)}
# What the user's own network, data set or objective reads; with ours, any value is refused (tests/spec/test_check.py).
FOR_THE_USER = {"model.options", "data.options", "objective.options"}


def attributes(tree: ast.AST) -> set[str]:
    """Names of attributes that are read, outside the rules that only judge them."""
    if isinstance(tree, ast.FunctionDef) and tree.name in RULES:
        return set()
    own = {tree.attr} if isinstance(tree, ast.Attribute) and isinstance(tree.ctx, ast.Load) else set()
    return own.union(*map(attributes, ast.iter_child_nodes(tree)))


def settings() -> dict[str, Any]:
    """Dotted name -> type of every setting that can have more than one value that is not refused."""
    names = dict(flag_names(RunSpec()))
    for kind, prefix in ((RoleSpec, "roles"), (StageSpec, "stages")):
        names |= {f"{prefix}.{f.name}": typing.get_type_hints(kind)[f.name] for f in dataclasses.fields(kind)}
    refused = {f"mesh.{axis}" for axis in run._NOT_YET}
    single = {n for n, hint in names.items() if typing.get_origin(hint) is Literal and len(typing.get_args(hint)) == 1}
    return {n: hint for n, hint in names.items() if n not in refused | single | FOR_THE_USER}


def unread(names: set[str], files: list[Path]) -> set[str]:
    """Settings whose last name no file reads as an attribute."""
    read = set().union(*(attributes(ast.parse(file.read_text(encoding="utf-8"))) for file in files))
    return {name for name in names if name.rpartition(".")[2] not in read}


@pytest.mark.skipif(not (PACKAGE / "train" / "loop.py").is_file(), reason="headway.train.loop does not exist yet")
def test_every_setting_is_read_somewhere() -> None:
    files = [f for f in PACKAGE.rglob("*.py") if f != PACKAGE / "spec" / "parts.py"]
    ignored = unread(set(settings()), files)
    assert not ignored, f"nothing reads these settings: {sorted(ignored)}"


def test_the_search_finds_a_setting_that_nothing_reads(tmp_path: Path) -> None:
    file = tmp_path / "reader.py"
    file.write_text("def use(spec):\n    spec.size = 1\n    return spec.mesh.tp\ndef _positive(spec):\n    return spec.depth\n")
    assert unread({"mesh.tp", "mesh.pp", "data.size", "model.depth"}, [file]) == {"mesh.pp", "data.size", "model.depth"}
