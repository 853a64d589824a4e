"""Real samples to compare with, and the pixels in which samples are compared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from headway.data.dataset import Dataset
from headway.data.loader import Batch, Loader
from headway.spec.errors import DataError
from headway.spec.parts import DataSpec

MOST_REAL = 20_000  # real samples that a figure uses at most
EDGE = 16  # larger images are compared at this many pixels an edge


def batches(dataset: Dataset, num: int, *, seed: int, batch: int = 256) -> Iterator[Batch]:
    """`num` different samples (all, if there are fewer) in keyed order, cut from the middle, never mirrored; at most `batch` at once."""
    num = min(num, len(dataset))
    batch = min(num, batch)
    spec = DataSpec(crop="center", flip=False, workers=4, prefetch=1)
    with Loader(dataset, spec, seed=seed, global_batch=batch) as loader:
        for seen, (part,) in zip(range(0, num, batch), loader, strict=False):  # the loader has no end
            yield {k: v[: num - seen] for k, v in part.items()}


def take(dataset: Dataset, num: int, *, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """The same samples as (features [n, d], labels [n], sample ids [n])."""
    parts = [(features(b["image"]), b["label"].numpy(), b["sample_id"].numpy()) for b in batches(dataset, num, seed=seed)]
    x, labels, ids = zip(*parts, strict=True)
    return np.concatenate(x), np.concatenate(labels), np.concatenate(ids)


def features(images: Float[Tensor, "n c s s"]) -> NDArray[np.float64]:
    """Pixels [n, d] of `images`, clipped to [-1, 1], averaged down to at most EDGE an edge; nan where a pixel is not finite."""
    x = images.detach().to("cpu", torch.float64)
    x = torch.where(x.isfinite(), x.clamp(-1, 1), torch.nan)
    return (adaptive_avg_pool2d(x, EDGE) if x.shape[-1] > EDGE else x).flatten(1).numpy()


def generated(images: Tensor | ArrayLike, labels: Tensor | ArrayLike, dataset: Dataset) -> tuple[Tensor, NDArray[np.int64]]:
    """Samples of a model as (images [n, C, S, S], labels [n]). Raises DataError if they are not of the kind that `dataset` holds."""
    x, y = torch.as_tensor(images), torch.as_tensor(labels).cpu().numpy().astype(np.int64)
    want = (dataset.channels, dataset.size, dataset.size)
    if x.dim() != 4 or tuple(x.shape[1:]) != want or y.shape != x.shape[:1] or not len(y):
        raise DataError(f"samples must be [n, {', '.join(map(str, want))}] with n labels, got {list(x.shape)} and {list(y.shape)}")
    if y.min() < 0 or y.max() >= dataset.num_classes:
        raise DataError(f"labels must lie in [0, {dataset.num_classes}), got {y.min()} to {y.max()}")
    return x, y
