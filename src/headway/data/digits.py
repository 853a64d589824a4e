"""scikit-learn's digits: 1,797 scans of handwritten digits, 8 x 8, 17 levels of grey. Nothing to download."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.data.dataset import ArrayDataset
from headway.spec.errors import DataError


def digits() -> ArrayDataset:
    """The digits, 0..16 scaled to [-1, 1]. Raises DataError if scikit-learn is not installed."""
    table = _table()
    images = (table[:, :64] / 8 - 1).astype(np.float32).reshape(-1, 1, 8, 8)
    return ArrayDataset("digits", images, table[:, 64].astype(np.int64), class_names=tuple("0123456789"))


def _table() -> NDArray[np.float64]:
    """[1797, 65]: 64 pixels and the label. Read from the wheel's file: importing scikit-learn takes a CPU second in every process."""
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise DataError("the digits come with scikit-learn, which is not installed", fix="pip install 'headway[train]'")
    path = Path(next(iter(found.submodule_search_locations)), "datasets", "data", "digits.csv.gz")
    if path.is_file():
        return np.loadtxt(path, delimiter=",")
    from sklearn.datasets import load_digits  # another layout of the wheel

    data, target = load_digits(return_X_y=True)
    return np.column_stack([data, target])
