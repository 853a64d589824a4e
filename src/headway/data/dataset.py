"""What a data set is, and the one that lives in memory.

A data set of your own is any object with the members of `Dataset`; usually `ArrayDataset(...)` is enough:

    def flowers(spec: DataSpec) -> Dataset:
        return ArrayDataset("flowers", images, labels, class_names=("rose", "tulip"))

and `headway train RECIPE --data.name my_data.py:flowers`. No torch here: samples are numpy arrays until the loader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from headway.spec.errors import DataError, HeadwayError, failure

Sample = Mapping[str, Any]


@runtime_checkable
class Dataset(Protocol):
    """Samples that can be read in any order, from several threads at once.

    Everything about a sample is a function of its index; what is random (crop, flip, noise) is drawn by its id, outside.
    """

    @property
    def name(self) -> str:
        """Stable name; draws are keyed by it, so samples keep their draws when others are added."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash of all that determines content and order. Another fingerprint is another data set (and another order)."""
        ...

    @property
    def num_classes(self) -> int:
        """Labels are in [0, num_classes)."""
        ...

    @property
    def class_names(self) -> Sequence[str]:
        """One name a class."""
        ...

    @property
    def channels(self) -> int:
        """1 or 3."""
        ...

    @property
    def size(self) -> int:
        """Edge of a sample as the network sees it, in pixels."""
        ...

    def __len__(self) -> int: ...

    def sample_id(self, index: int) -> int:
        """A stable number in [0, 2**63) that does not depend on the other samples."""
        ...

    def load(self, index: int) -> Sample:
        """One sample: "image" and "label" (int), and any other arrays of one fixed shape, such as a "text" vector.

        "image" is uint8 [C, H, W], or float32 [C, H, W] in [-1, 1]; H and W are at least `size`, the loader cuts what is over.
        Raises DataError that names the sample if it cannot be read.
        """
        ...


@runtime_checkable
class BatchDataset(Dataset, Protocol):
    """A data set that reads many samples at once, faster than one by one."""

    def load_batch(self, indices: NDArray[np.int64]) -> Mapping[str, NDArray[Any]]:
        """`load` of each index, stacked along a first dim."""
        ...


class ArrayDataset:
    """Images and labels in memory.

    `images` [n, C, H, W]: uint8, or float32 in [-1, 1], square; `labels` [n] int; `extra` name -> [n, ...], e.g. {"text": vectors}.
    The id of a sample is its index, so append, do not insert. Raises DataError if the arrays do not fit each other.
    """

    def __init__(
        self,
        name: str,
        images: NDArray[Any],
        labels: NDArray[Any],
        *,
        class_names: Sequence[str] = (),
        extra: Mapping[str, NDArray[Any]] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        images, labels = np.ascontiguousarray(images), np.asarray(labels)
        where = f"data set '{name}'"
        if images.ndim != 4 or images.shape[0] == 0 or images.shape[1] not in (1, 3) or images.shape[2] != images.shape[3]:
            raise DataError(f"images must be [n, 1 or 3, size, size] with n >= 1, got {list(images.shape)}", where=where)
        if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
            raise DataError(f"labels must be {len(images)} whole numbers, got {labels.dtype} {list(labels.shape)}", where=where)
        num_classes = len(class_names) or int(labels.max()) + 1
        if labels.min() < 0 or labels.max() >= num_classes:
            raise DataError(f"labels run from {labels.min()} to {labels.max()}, outside [0, {num_classes})", where=where)
        if problem := pixel_problem(images):
            raise DataError(problem, where=where)
        self._arrays = {"image": images, "label": labels.astype(np.int64)}
        for key, value in (extra or {}).items():
            if key in self._arrays or len(value) != len(images):
                raise DataError(f"extra '{key}' must be a new name with {len(images)} rows, got {len(value)}", where=where)
            self._arrays[key] = np.asarray(value)
        self.name = name
        self.class_names = tuple(class_names) or tuple(str(c) for c in range(num_classes))
        self.num_classes = num_classes
        self.channels, self.size = int(images.shape[1]), int(images.shape[2])
        self.notes = list(notes)
        self.fingerprint = hash_arrays(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays["label"])

    def sample_id(self, index: int) -> int:
        """The index itself."""
        return index

    def load(self, index: int) -> Sample:
        """One sample, as views."""
        return {**{k: v[index] for k, v in self._arrays.items()}, "label": int(self._arrays["label"][index])}

    def load_batch(self, indices: NDArray[np.int64]) -> Mapping[str, NDArray[Any]]:
        """Many samples, copied."""
        return {k: v[indices] for k, v in self._arrays.items()}


def pixel_problem(image: NDArray[Any]) -> str:
    """Why the pixels of `image` cannot be used; empty if they can."""
    if image.dtype == np.uint8:
        return ""
    if image.dtype != np.float32:
        return f"images must be uint8, or float32 in [-1, 1], got {image.dtype}"
    low, high = float(image.min()), float(image.max())
    if not (low >= -1 and high <= 1):  # also true for NaN
        return f"float images must lie in [-1, 1], got {low:.6g} to {high:.6g}; uint8 is scaled for you"
    return ""


def hash_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Names, types, shapes and bytes of `arrays`, as 32 hex digits."""
    state = blake2b(digest_size=16)
    for key in sorted(arrays):
        value = np.ascontiguousarray(arrays[key])
        state.update(f"{key} {value.dtype.str} {value.shape}\n".encode())
        state.update(value.tobytes())
    return state.hexdigest()


def load(dataset: Dataset, index: int) -> Sample:
    """One sample of `dataset`. Raises DataError that names the sample, whatever goes wrong in a user's own data set."""
    try:
        return dataset.load(index)
    except HeadwayError:
        raise
    except Exception as error:  # code of the user's own: any kind may come
        raise DataError(f"cannot be loaded: {failure(error)}", where=describe(dataset, index)) from error


def describe(dataset: Dataset, index: int) -> str:
    """How a message names a sample."""
    return f"data set '{dataset.name}', sample {index} (id {dataset.sample_id(index)})"
