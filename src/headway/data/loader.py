"""The loader: from the global order to micro-batches of this rank, decoded ahead by threads.

It holds no state: which samples a step trains on is `plan.batch` of how many samples were seen before it. The global batch is formed
first; ranks and micro-batches are slices of it:

    global batch   [ rank 0                  | rank 1                  ]     positions seen .. seen + global_batch
    micro-batches  [ micro 0    | micro 1    | micro 0    | micro 1    ]     accumulate = 2

so any layout trains on the same samples, and a resume is a start at another count. Crop and flip are keyed by sample and visit.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.data import plan
from headway.data.dataset import BatchDataset, Dataset, Sample, load
from headway.kernels.draw import Draw
from headway.spec.parts import DataSpec

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class _Micro:
    """A micro-batch being filled: which samples, and the tensors with their numpy views."""

    indices: plan.Ints
    tensors: Batch
    arrays: dict[str, NDArray[Any]]


class Loader:
    """Iterates over the steps of one data rank, from `start_samples` on, without end.

    A step is a list of `accumulate` micro-batches {"image" [b, C, S, S] float32 in [-1, 1], "label" [b] int64, "sample_id" [b] int64,
    "visit" [b] int64, and what else the data set gives}, with b = global_batch / (data_parallel * accumulate).

    `spec.workers` threads decode at most `spec.prefetch` steps ahead; 0 decodes in the calling thread. An error of a sample is raised where
    its step is taken. `pin`: page-locked memory, for asynchronous copies to a GPU. Use as a context manager, or `close()` it.
    """

    def __init__(
        self,
        dataset: Dataset,
        spec: DataSpec,
        *,
        seed: int,
        global_batch: int,
        data_rank: int = 0,
        data_parallel: int = 1,
        accumulate: int = 1,
        start_samples: int = 0,
        pin: bool = False,
    ) -> None:
        assert global_batch % (data_parallel * accumulate) == 0, "the run's check refuses a batch that does not divide"
        assert 0 <= data_rank < data_parallel and start_samples >= 0
        self.dataset, self.spec, self.seed, self.pin = dataset, spec, seed, pin
        self.global_batch, self.accumulate, self.start_samples = global_batch, accumulate, start_samples
        self.local_batch = global_batch // data_parallel
        self.first = data_rank * self.local_batch  # of the global batch
        self._fields = fields(dataset)
        self._pool = ThreadPoolExecutor(spec.workers, "headway-data") if spec.workers else None
        self._closed = False

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the threads; a sample that is being decoded is finished first, nothing else is begun."""
        self._closed = True
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def __iter__(self) -> Iterator[list[Batch]]:
        """Steps from `start_samples` on. Each call starts there again."""
        steps = itertools.count(self.start_samples, self.global_batch)
        if self._pool is None:
            yield from map(self.step, steps)
        ahead: deque[tuple[list[_Micro], list[Future[None]]]] = deque()
        try:
            while True:
                while len(ahead) <= self.spec.prefetch:  # the step that is due, and those ahead of it
                    ahead.append(self._begin(next(steps)))
                micros, futures = ahead.popleft()
                for future in futures:
                    future.result()
                yield [micro.tensors for micro in micros]
        finally:
            for _, futures in ahead:
                for future in futures:
                    future.cancel()

    def step(self, seen: int) -> list[Batch]:
        """The micro-batches of the step that `seen` samples precede, decoded in the calling thread."""
        micros = self._plan(seen)
        for micro in micros:
            self._fill(micro, 0, len(micro.indices))
        return [micro.tensors for micro in micros]

    def _begin(self, seen: int) -> tuple[list[_Micro], list[Future[None]]]:
        """The same step, handed to the threads: each micro-batch in one part a thread."""
        assert self._pool is not None
        micros = self._plan(seen)
        b = len(micros[0].indices)
        part = -(-b // self.spec.workers)
        return micros, [self._pool.submit(self._fill, micro, lo, min(lo + part, b)) for micro in micros for lo in range(0, b, part)]

    def _plan(self, seen: int) -> list[_Micro]:
        """Empty micro-batches of this rank, with their samples named."""
        if self._closed:
            raise RuntimeError("the loader is closed")
        data, spec = self.dataset, self.spec
        args = (len(data), spec.window, self.seed, data.fingerprint)
        indices, visits = plan.batch(seen + self.first, self.local_batch, *args)
        micros = []
        for index, visit in zip(np.split(indices, self.accumulate), np.split(visits, self.accumulate), strict=True):
            tensors = {k: torch.empty((len(index), *shape), dtype=dtype, pin_memory=self.pin) for k, (shape, dtype) in self._fields.items()}
            arrays = {k: v.numpy() for k, v in tensors.items()}
            arrays["visit"][:] = visit
            arrays["sample_id"][:] = [data.sample_id(i) for i in index.tolist()]
            micros.append(_Micro(index, tensors, arrays))
        return micros

    def _fill(self, micro: _Micro, lo: int, hi: int) -> None:
        """Reads samples [lo, hi) of `micro` into its tensors."""
        out = {k: v[lo:hi] for k, v in micro.arrays.items()}
        indices = micro.indices[lo:hi]
        draw = Draw(self.seed, self.dataset.name, micro.tensors["sample_id"][lo:hi], micro.tensors["visit"][lo:hi])
        if isinstance(self.dataset, BatchDataset):
            rows: Any = self.dataset.load_batch(indices)
            images = rows["image"]
        else:
            samples = [self._load(i) for i in indices.tolist()]
            rows = {k: [s[k] for s in samples] for k in out if k not in ("sample_id", "visit")}
            images = self._cut([s["image"] for s in samples], draw)
        for key, value in rows.items():
            if key != "image":
                out[key][:] = value
        if self.spec.flip:
            mirrored = draw.uniform("flip").numpy() < 0.5
            images = np.where(mirrored[:, None, None, None], images[..., ::-1], images)
        if images.dtype == np.uint8:
            np.divide(images, np.float32(127.5), out=out["image"])  # 0..255 -> 0..2
            out["image"] -= 1
        else:
            out["image"][:] = images

    def _cut(self, images: list[NDArray[Any]], draw: Draw) -> NDArray[Any]:
        """Squares of the data set's size, [b, C, S, S]: from the middle, or from where the draw says (a copy)."""
        size = self.dataset.size
        spare = np.array([image.shape[1:] for image in images]) - size  # [b, 2]
        if self.spec.crop == "random" and spare.any():
            corner = (draw.uniform("crop", (2,)).numpy() * (spare + 1)).astype(np.int64)  # 0 .. spare, each as likely
        else:
            corner = spare // 2
        out = np.empty((len(images), *images[0].shape[:1], size, size), images[0].dtype)
        for row, image, (y, x) in zip(out, images, corner.tolist(), strict=True):
            row[:] = image[:, y : y + size, x : x + size]
        return out

    def _load(self, index: int) -> Sample:
        if self._closed:  # the rest of a part that nobody waits for
            raise RuntimeError("the loader is closed")
        return load(self.dataset, index)


def fields(dataset: Dataset) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape and type of each key of a micro-batch without its first dim, learnt from the first sample."""
    fields: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "image": ((dataset.channels, dataset.size, dataset.size), torch.float32),
        "label": ((), torch.int64),
        "sample_id": ((), torch.int64),
        "visit": ((), torch.int64),
    }
    for key, value in load(dataset, 0).items():
        if key not in fields:
            array = np.asarray(value)
            fields[key] = (array.shape, {"f": torch.float32, "b": torch.bool}.get(array.dtype.kind, torch.int64))
    return fields
