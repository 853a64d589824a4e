"""A user's own reward: found by name, checked, with the same of real images beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.data.digits import digits
from headway.evaluate.reward import score
from headway.spec.errors import SpecError

REWARDS = """
import numpy as np
def ink(images, asked): return (images.mean((1, 2, 3)) + 1) / 2
def right(images, asked): return (asked["label"] == 3).astype(float)
def short(images, asked): return images.mean((1, 2, 3))[:-1]
def bad(images, asked): return np.full(len(images), np.nan)
def none(images, asked): return None
def words(images, asked): return ["good"] * len(images)
def fails(images, asked): return asked["nothing"]
def lonely(images): return images.mean((1, 2, 3))
number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "rewards.py"
    path.write_text(REWARDS)
    return str(path)


def test_means_of_samples_and_of_real_images(file: str) -> None:
    data = digits()
    rows = data.load_batch(np.arange(40))
    bright = np.full_like(rows["image"], 1.0)
    found = score(f"{file}:ink", bright, {}, dataset=data)
    assert found.samples.estimate == 1.0
    every = data.load_batch(np.arange(len(data)))["image"]
    assert found.real.low < (every.mean() + 1) / 2 < found.real.high


def test_a_reward_hears_what_was_asked(file: str) -> None:
    data = digits()
    images = data.load_batch(np.arange(10))["image"]
    found = score(f"{file}:right", images, {"label": np.array([3, 3, 3, 3, 3, 0, 1, 2, 4, 5])}, dataset=data)
    assert found.samples.estimate == 0.5
    assert 0.05 < found.real.estimate < 0.16  # a tenth of real digits are threes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("short", "returned shape"),
        ("bad", "not finite"),
        ("none", "not finite|returned shape"),
        ("words", "gave no scores"),
        ("lonely", "gave no scores"),
        ("fails", r"gave no scores: KeyError: 'nothing' \(.*rewards.py, line"),
        ("number", "is not a function"),
        ("inc", "did you mean 'ink'"),
    ],
)
def test_what_is_no_reward_is_refused(file: str, name: str, text: str) -> None:
    data = digits()
    with pytest.raises(SpecError, match=text):
        score(f"{file}:{name}", data.load_batch(np.arange(4))["image"], {}, dataset=data)
