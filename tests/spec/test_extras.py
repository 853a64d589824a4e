from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from headway.spec.extras import EXTRAS, missing_extra

DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}  # where the import has another name


def test_the_table_is_that_of_the_package(root: Path) -> None:
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    wanted = {(re.split(r"[<>=!~\[]", text)[0], extra) for extra, texts in extras.items() if extra != "dev" for text in texts}
    assert {(DISTRIBUTIONS.get(name, name), extra) for name, extra in EXTRAS.items()} == wanted


@pytest.mark.parametrize(("name", "extra"), [("torch", "train"), ("torch.distributed", "train"), ("diffusers", "models")])
def test_the_command_that_installs_it(name: str, extra: str) -> None:
    error = missing_extra(ModuleNotFoundError(f"No module named '{name}'", name=name))
    assert f"Run: pip install 'headway[{extra}]'" in str(error)


@pytest.mark.parametrize("name", [None, "torchvision", "headway.spec.nothing"])
def test_what_no_extra_brings_is_not_ours_to_explain(name: str | None) -> None:
    assert missing_extra(ModuleNotFoundError("?", name=name)) is None
