"""A data set of the user's own, checked: what it is at the start, and every sample it gives."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.dataset import BatchDataset, Dataset, Sample, describe, pixel_problem
from headway.spec.errors import DataError, joined

_MEMBERS = ("name", "fingerprint", "num_classes", "class_names", "channels", "size", "__len__", "sample_id", "load")


class OwnDataset:
    """Passes `inner` through. Raises DataError that names the sample and says what is wrong with it."""

    def __init__(self, inner: Dataset) -> None:
        self._inner = inner
        self.name, self.fingerprint = inner.name, inner.fingerprint
        self.num_classes, self.class_names = inner.num_classes, tuple(inner.class_names)
        self.channels, self.size = inner.channels, inner.size
        self.notes = list(getattr(inner, "notes", ()))
        self._like: Sample = {}
        self._like = self.load(0)

    def __len__(self) -> int:
        return len(self._inner)

    def sample_id(self, index: int) -> int:
        """The inner data set's."""
        return self._inner.sample_id(index)

    def load(self, index: int) -> Sample:
        """One sample, checked."""
        sample = self._inner.load(index)
        if problem := self._problem(sample):
            raise DataError(problem, where=describe(self, index))
        return sample

    def _problem(self, sample: Any) -> str:
        """Why `sample` cannot be used; empty if it can."""
        if not isinstance(sample, Mapping) or not {"image", "label"} <= sample.keys():
            return f"load must return a mapping with 'image' and 'label', got {_short(sample)}"
        image, label = sample["image"], sample["label"]
        if not isinstance(image, np.ndarray):
            return f"'image' must be a numpy array, got {type(image).__name__}"
        if image.ndim != 3 or image.shape[0] != self.channels or min(image.shape[1:]) < self.size:
            return f"'image' must be [{self.channels}, H, W] with H and W at least {self.size}, got {list(image.shape)}"
        if problem := pixel_problem(image):
            return problem
        if not isinstance(label, (int, np.integer)) or isinstance(label, bool) or not 0 <= label < self.num_classes:
            return f"'label' must be a whole number in [0, {self.num_classes}), got {label!r}"
        return self._unlike(sample)

    def _unlike(self, sample: Sample) -> str:
        """How `sample` differs from the first one where all must be alike."""
        like = self._like
        if not like:
            return ""
        if sample.keys() != like.keys():
            return f"all samples must have the same keys: the first has {sorted(like)}, this one {sorted(sample)}"
        if sample["image"].dtype != like["image"].dtype:
            return f"all images must be of one type: the first is {like['image'].dtype}, this one {sample['image'].dtype}"
        for key in like.keys() - {"image", "label"}:
            if np.shape(sample[key]) != np.shape(like[key]):
                return f"'{key}' must have one shape: the first has {np.shape(like[key])}, this one {np.shape(sample[key])}"
        return ""


class OwnBatchDataset(OwnDataset):
    """The same for a data set that reads many samples at once."""

    _inner: BatchDataset

    def load_batch(self, indices: NDArray[np.int64]) -> Mapping[str, NDArray[Any]]:
        """Many samples, checked together."""
        rows = self._inner.load_batch(indices)
        where = f"data set '{self.name}', load_batch of {len(indices)} samples"
        if rows.keys() != self._like.keys() or any(len(v) != len(indices) for v in rows.values()):
            raise DataError(f"must return {len(indices)} rows of each of {sorted(self._like)}", where=where)
        images, labels = rows["image"], np.asarray(rows["label"])
        want = (len(indices), self.channels, self.size, self.size)
        if images.shape != want:
            raise DataError(f"'image' must be {list(want)}, got {list(images.shape)}", where=where)
        problem = pixel_problem(images)
        if not problem and (labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= self.num_classes):
            problem = f"'label' must be whole numbers in [0, {self.num_classes}), got {labels.dtype}, {labels.min()} to {labels.max()}"
        if problem:
            raise DataError(problem, where=where)
        return rows


def own(inner: Any, source: str) -> OwnDataset:
    """`inner`, checked now and at every sample. Raises DataError with all that is wrong with its members; `source` names it."""
    missing = [m for m in _MEMBERS if not hasattr(inner, m)]
    if missing:
        fix = "See headway/data/dataset.py: a data set has the members of Dataset; ArrayDataset(...) is one."
        raise DataError(f"returned {_short(inner)}, which is no data set: it has no {', '.join(missing)}", where=source, fix=fix)
    num, names = inner.num_classes, list(inner.class_names)
    ids = [inner.sample_id(i) for i in islice(range(len(inner)), 1000)]
    whole = all(isinstance(i, (int, np.integer)) and 0 <= i < 1 << 63 for i in ids)
    rules = {
        "name must be text": isinstance(inner.name, str) and inner.name,
        "fingerprint must be text that changes when content or order change": isinstance(inner.fingerprint, str) and inner.fingerprint,
        f"num_classes must be a whole number of at least 1, got {num!r}": isinstance(num, int) and num >= 1,
        f"class_names must be {num} names, got {len(names)}": len(names) == num,
        f"channels must be 1 or 3, got {inner.channels!r}": inner.channels in (1, 3),
        f"size must be a whole number of at least 1, got {inner.size!r}": isinstance(inner.size, int) and inner.size >= 1,
        "it has no samples": len(inner) >= 1,
        "sample_id must be a whole number in [0, 2**63)": whole,
        "sample_id must differ from sample to sample": not whole or len(set(ids)) == len(ids),
    }
    if broken := [rule for rule, holds in rules.items() if not holds]:
        raise DataError(joined(broken, "the data set is not usable"), where=source)
    return OwnBatchDataset(inner) if isinstance(inner, BatchDataset) else OwnDataset(inner)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a mapping with {sorted(map(str, value))}"
    return f"a {type(value).__name__}"
