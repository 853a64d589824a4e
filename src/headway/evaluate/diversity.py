"""Two ways in which good-looking samples are worthless: they are copies of the training set, or they are all alike.

Copies:    distance of a sample to the nearest real image, against the distance of real images to their nearest other real image.
Collapse:  variance of pixels within a class, generated over real: 1 is as it should be, 0 is one image for ever.
"""

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

CLOSE = 0.05  # this share of real images is closer than `threshold` to another one
_CHUNK = 512  # rows of the distance matrix at once

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Diversity:
    """Distances are root mean squares over pixels, whose range is 2.

    `near_copies` is the share of samples within `threshold` of a real image: about CLOSE for samples that are as new as real images are,
    near 1 for copies. `variance_ratio` by class, for the classes with two samples or more; `median_variance_ratio` over them (nan: none).
    """

    n: int
    nearest: Floats  # [n] distance of each sample to the nearest real image
    nearest_index: NDArray[np.int64]  # [n] sample id of that image
    median_distance: float
    median_distance_real: float
    threshold: float
    near_copies: Interval
    variance_ratio: Mapping[str, float]
    median_variance_ratio: float


def diversity(images: Tensor | ArrayLike, labels: Tensor | ArrayLike, *, dataset: Dataset, seed: int = 0) -> Diversity:
    """Compares `images` [n, C, S, S] in [-1, 1] with the real ones of `dataset`.

    Raises DataError if a sample is not finite, or there are fewer than two real images.
    """
    x, asked = generated(images, labels, dataset)
    made = features(x)
    if not np.isfinite(made).all():
        raise DataError(f"{int((~np.isfinite(made).all(1)).sum())} of {len(made)} samples are not finite")
    real, truth, ids = take(dataset, MOST_REAL, seed=seed)
    if len(real) < 2:
        raise DataError("diversity needs at least two real images", where=f"data set '{dataset.name}'")
    distance, index = nearest(made, real)
    among_real, _ = nearest(real, real, same=True)
    threshold = float(np.quantile(among_real, CLOSE))
    ratios = {}
    for c in np.unique(asked).tolist():
        mine, theirs = made[asked == c], real[truth == c]
        if len(mine) > 1 and len(theirs) > 1 and (spread := variance(theirs)) > 0:
            ratios[dataset.class_names[c]] = variance(mine) / spread
    return Diversity(
        n=len(made),
        nearest=distance,
        nearest_index=ids[index],
        median_distance=float(np.median(distance)),
        median_distance_real=float(np.median(among_real)),
        threshold=threshold,
        near_copies=wilson(int((distance < threshold).sum()), len(made)),
        variance_ratio=ratios,
        median_variance_ratio=float(np.median(list(ratios.values()))) if ratios else float("nan"),
    )


def nearest(a: Floats, b: Floats, *, same: bool = False) -> tuple[Floats, NDArray[np.int64]]:
    """For each row of a [n, d] the distance to the nearest row of b [m, d], and which it is.

    `same`: a is b, and a row is not its own neighbour.
    """
    distance, index = np.empty(len(a)), np.empty(len(a), np.int64)
    squares = (b * b).sum(1)
    for first in range(0, len(a), _CHUNK):
        rows = a[first : first + _CHUNK]
        scores = squares - 2 * rows @ b.T  # |a - b|^2 - |a|^2
        if same:
            scores[np.arange(len(rows)), first + np.arange(len(rows))] = np.inf
        best = scores.argmin(1)
        index[first : first + len(rows)] = best
        distance[first : first + len(rows)] = np.sqrt(((rows - b[best]) ** 2).mean(1))  # again, without cancellation
    return distance, index


def variance(x: Floats) -> float:
    """Mean over pixels of the unbiased variance over rows."""
    return float(x.var(0, ddof=1).mean())
