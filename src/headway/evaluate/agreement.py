"""Do samples show what was asked for? A classifier that knows the real data says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from headway.data.dataset import Dataset
from headway.evaluate.real import MOST_REAL, features, generated, take
from headway.spec.errors import DataError
from headway.stats.intervals import Interval, wilson

HELD_OUT = 5  # every fifth sample of a class is kept from the fit


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """`agree` of `n` samples are assigned to their class; the classifier is right on `classifier_accuracy` of held-out real samples."""

    agree: int
    n: int
    interval: Interval
    classifier_accuracy: float
    per_class: Mapping[str, tuple[int, int]]  # class -> (agree, n), for the classes that were asked for


def class_agreement(images: Tensor | ArrayLike, labels: Tensor | ArrayLike, *, dataset: Dataset, seed: int = 0) -> Agreement:
    """The share of `images` [n, C, S, S] in [-1, 1] that a classifier fitted on `dataset` assigns to their `labels` [n].

    The classifier is a support vector machine with an RBF kernel on pixels: exact for digits and the like, a rough guide for photographs;
    its own accuracy bounds what agreement can mean. A sample that is not finite agrees with nothing. Raises DataError if there are fewer
    than two classes, or scikit-learn is missing.
    """
    try:
        from sklearn.svm import SVC
    except ModuleNotFoundError as error:
        raise DataError("class agreement needs scikit-learn, which is not installed", fix="pip install 'headway[train]'") from error
    x, asked = generated(images, labels, dataset)
    known, truth, _ = take(dataset, MOST_REAL, seed=seed)
    if len(np.unique(truth)) < 2:
        raise DataError("class agreement needs at least two classes", where=f"data set '{dataset.name}'")
    held = _held_out(truth)
    if not held.any():
        what = f"class agreement needs a class with at least {HELD_OUT} samples, to measure the classifier on some"
        raise DataError(what, where=f"data set '{dataset.name}'")
    classifier = SVC(C=10.0, kernel="rbf", gamma="scale").fit(known[~held], truth[~held])
    accuracy = float((classifier.predict(known[held]) == truth[held]).mean())
    seen = features(x)
    finite = np.isfinite(seen).all(1)
    agree = np.zeros(len(asked), bool)
    if finite.any():
        agree[finite] = classifier.predict(seen[finite]) == asked[finite]
    per_class = {dataset.class_names[c]: (int(agree[asked == c].sum()), int((asked == c).sum())) for c in np.unique(asked).tolist()}
    return Agreement(
        agree=int(agree.sum()),
        n=len(asked),
        interval=wilson(int(agree.sum()), len(asked)),
        classifier_accuracy=accuracy,
        per_class=per_class,
    )


def _held_out(truth: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Every HELD_OUT-th sample of each class, so that no class is missing from the fit."""
    held = np.zeros(len(truth), bool)
    for c in np.unique(truth):
        held[np.flatnonzero(truth == c)[HELD_OUT - 1 :: HELD_OUT]] = True
    return held
