"""Recipes: each is whole, says what it is, and is found by every kind of name."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from headway.recipes.registry import RECIPES, about, resolve
from headway.spec.codec import encode
from headway.spec.errors import SpecError
from headway.spec.info import SCHEMA
from headway.spec.run import RunSpec, check


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_can_start_and_says_its_command_and_hardware(name: str) -> None:
    spec = resolve(name)
    if name == "folder":
        assert [p for p in check(spec) if "--data.path" not in p] == []
        spec = dataclasses.replace(spec, data=dataclasses.replace(spec.data, path="photos"))
    assert check(spec) == [] and spec.name == name
    assert f"headway train {name}" in about()[name] and "Hardware:" in about()[name]


def test_a_run_json_or_its_folder_is_accepted_back(tmp_path: Path) -> None:
    spec = dataclasses.replace(resolve("digits"), seed=7)
    (tmp_path / "run.json").write_text(json.dumps({"schema": SCHEMA, "spec": encode(spec), "info": {}}))
    assert resolve(str(tmp_path / "run.json")) == resolve(str(tmp_path)) == spec


def test_a_users_recipe_is_a_function_or_a_spec(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from headway.spec.run import RunSpec\nspec = RunSpec(seed=4)\ndef run():\n    return spec\ndef other():\n    return 3\n"
    )
    assert resolve(f"{file}:run") == resolve(f"{file}:spec") == RunSpec(seed=4)
    with pytest.raises(SpecError, match="gave int, not a RunSpec"):
        resolve(f"{file}:other")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read"),
        ("{", "is not JSON"),
        ("[]", "is not a run.json"),
        ('{"schema": "headway.run/2", "spec": {}}', "newer version"),
        ('{"schema": "headway.run/1", "spec": {"sead": 1}}', "did you mean --seed"),
    ],
)
def test_a_file_that_is_no_run_json_is_said(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SpecError) as error:
        resolve(str(file))
    assert message in str(error.value) and str(file) in str(error.value)


def test_a_typo_is_answered_with_the_nearest_recipe() -> None:
    with pytest.raises(SpecError, match="Did you mean digits"):
        resolve("digit")
