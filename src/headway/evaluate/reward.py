"""What a user's own reward says of samples, with the same reward of real images beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.dataset import Dataset
from headway.evaluate.real import batches
from headway.spec.errors import DataError, SpecError, failure
from headway.spec.locate import locate
from headway.spec.reward import Reward
from headway.stats.intervals import Interval, mean_interval

NUM_REAL = 256


@dataclass(frozen=True, kw_only=True)
class Score:
    """Mean reward of the samples and of real images, with intervals over images."""

    name: str
    samples: Interval
    real: Interval


def score(name: str, images: NDArray[np.float32], asked: Mapping[str, NDArray[Any]], *, dataset: Dataset, seed: int = 0) -> Score:
    """The reward `name` (path.py:fn or pkg.mod:fn) of `images` [n, C, S, S], which were asked for by `asked`, and of real ones.

    Raises SpecError if there is no such function, or it does not return n finite numbers; DataError for a single image (no interval).
    """
    reward = find(name)
    if min(len(images), len(dataset)) < 2:
        raise DataError("an interval needs at least two samples and two real images", where=f"--reward {name}")
    made = scores(reward, name, images, asked)
    real = []
    for rows in batches(dataset, NUM_REAL, seed=seed, batch=NUM_REAL):
        told = {key: rows[key].numpy() for key in asked}
        real.append(scores(reward, name, rows["image"].numpy(), told))
    return Score(name=name, samples=mean_interval(made), real=mean_interval(np.concatenate(real)))


def find(name: str) -> Reward:
    """The reward that `name` means. Raises SpecError if there is none."""
    reward = locate(name)
    if not callable(reward):
        fix = "It takes images [n, C, S, S] and what was asked for, and returns n scores."
        raise SpecError(f"{type(reward).__name__} is not a function", where=f"--reward {name}", fix=fix)
    return reward  # type: ignore[no-any-return]


def scores(reward: Reward, name: str, images: NDArray[np.float32], asked: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """The scores of `images`, checked: float64 [n]. Raises SpecError."""
    try:
        found = np.asarray(reward(images, asked), np.float64)
    except Exception as error:  # code of the user's own: any kind may come
        fix = "It takes (images, asked) and returns n numbers."
        raise SpecError(f"gave no scores: {failure(error)}", where=f"--reward {name}", fix=fix) from error
    if found.shape != (len(images),):
        raise SpecError(f"returned shape {list(found.shape)} for {len(images)} images", where=f"--reward {name}", fix="Return [n].")
    if not np.isfinite(found).all():
        raise SpecError(f"{int((~np.isfinite(found)).sum())} of {len(found)} scores are not finite", where=f"--reward {name}")
    return found
