"""The digits and the data set in memory."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from headway.data import digits as module
from headway.data.dataset import ArrayDataset, BatchDataset, Dataset
from headway.data.digits import digits
from headway.spec.errors import DataError


def test_digits_are_those_of_scikit_learn() -> None:
    data, real = digits(), load_digits()
    assert isinstance(data, Dataset) and isinstance(data, BatchDataset)
    assert (data.name, len(data), data.num_classes, data.channels, data.size) == ("digits", 1797, 10, 1, 8)
    batch = data.load_batch(np.arange(1797))
    np.testing.assert_array_equal((batch["image"][:, 0] + 1) * 8, real.images)
    np.testing.assert_array_equal(batch["label"], real.target)
    assert batch["image"].dtype == np.float32
    assert (batch["image"].min(), batch["image"].max()) == (-1, 1)


def test_another_layout_of_the_wheel_is_read_by_its_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    want = digits().fingerprint
    monkeypatch.setattr(Path, "is_file", lambda self: False)
    assert module.digits().fingerprint == want


def test_no_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"not installed. pip install 'headway\[train\]'"):
        digits()


IMAGES, LABELS = np.zeros((3, 1, 2, 2), np.float32), np.array([0, 1, 2])


@pytest.mark.parametrize(
    ("images", "labels", "names", "message"),
    [
        (IMAGES[:, :, :1], LABELS, (), r"\[n, 1 or 3, size, size\] with n >= 1, got \[3, 1, 1, 2\]"),
        (IMAGES[:0], LABELS[:0], (), "n >= 1"),
        (np.zeros((3, 2, 2, 2), np.uint8), LABELS, (), "1 or 3"),
        (IMAGES, LABELS[:2], (), "3 whole numbers, got int64"),
        (IMAGES, LABELS * 1.0, (), "whole numbers, got float64"),
        (IMAGES, LABELS, ("a", "b"), r"labels run from 0 to 2, outside \[0, 2\)"),
        (IMAGES, LABELS - 1, (), "labels run from -1"),
        (IMAGES.astype(np.float64), LABELS, (), "uint8, or float32"),
        (IMAGES + 2, LABELS, (), r"lie in \[-1, 1\], got 2 to 2"),
        (IMAGES * np.nan, LABELS, (), r"lie in \[-1, 1\], got nan"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(images: np.ndarray, labels: np.ndarray, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        ArrayDataset("mine", images, labels, class_names=names)


def test_extra_arrays_travel_along() -> None:
    data = ArrayDataset("mine", IMAGES, LABELS, extra={"text": np.arange(6.0).reshape(3, 2)})
    assert data.load(1)["text"].tolist() == [2, 3]
    assert data.load(1)["label"] == 1
    assert data.load_batch(np.array([2, 0]))["text"].tolist() == [[4, 5], [0, 1]]
    with pytest.raises(DataError, match="extra 'text' must be a new name with 3 rows, got 2"):
        ArrayDataset("mine", IMAGES, LABELS, extra={"text": np.zeros(2)})


def test_fingerprint_follows_every_array() -> None:
    base = ArrayDataset("mine", IMAGES, LABELS).fingerprint
    assert base == ArrayDataset("mine", IMAGES.copy(), LABELS.astype(np.int32)).fingerprint
    changed = IMAGES.copy()
    changed[2, 0, 1, 1] = 0.5
    others = [
        ArrayDataset("mine", changed, LABELS),
        ArrayDataset("mine", IMAGES, LABELS[::-1]),
        ArrayDataset("mine", IMAGES, LABELS, extra={"text": LABELS}),
    ]
    assert len({base, *(o.fingerprint for o in others)}) == 4
