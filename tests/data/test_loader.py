"""The loader: one stream of samples on any layout, with any number of threads, from any start."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

from headway.data.dataset import ArrayDataset, Sample
from headway.data.digits import digits
from headway.data.loader import Loader
from headway.spec.errors import DataError
from headway.spec.parts import DataSpec

NUM = 50


class Wide:
    """Images that are wider or higher than the sample, numbered in every pixel; optionally slow or broken."""

    name, fingerprint, num_classes, class_names, channels, size = "wide", "w", 5, tuple("abcde"), 3, 4

    def __init__(self, sleep_s: float = 0.0, broken: int = -1) -> None:
        self.sleep_s, self.broken, self.running, self.most = sleep_s, broken, 0, 0
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return NUM

    def sample_id(self, index: int) -> int:
        return 10**12 + index

    def load(self, index: int) -> Sample:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(self.sleep_s)
        with self.lock:
            self.running -= 1
        if index == self.broken:
            raise ZeroDivisionError("one over nothing")
        h, w = (4, 4 + index % 3) if index % 2 else (4 + index % 5, 4)
        image = np.arange(3 * h * w, dtype=np.uint8).reshape(3, h, w) + np.uint8(index)
        return {"image": image, "label": index % 5, "text": np.full(2, index, np.float64)}


def take(dataset: Any, num: int, *, workers: int = 0, **args: Any) -> list[list[dict[str, torch.Tensor]]]:
    spec = DataSpec(size=4, channels=3, crop="random", flip=True, window=16, workers=workers, prefetch=args.pop("prefetch", 2))
    with Loader(dataset, spec, **{"seed": 3, "global_batch": 16, **args}) as loader:
        return list(itertools.islice(loader, num))


def flat(steps: list[list[dict[str, torch.Tensor]]]) -> dict[str, torch.Tensor]:
    return {k: torch.cat([m[k] for step in steps for m in step]) for k in steps[0][0]}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for key in a:
        assert a[key].dtype == b[key].dtype
        assert torch.equal(a[key], b[key]), key


def test_shapes_types_and_range() -> None:
    micro = take(Wide(), 1, accumulate=2)[0][0]
    assert {k: (tuple(v.shape), v.dtype) for k, v in micro.items()} == {
        "image": ((8, 3, 4, 4), torch.float32),
        "label": ((8,), torch.int64),
        "sample_id": ((8,), torch.int64),
        "visit": ((8,), torch.int64),
        "text": ((8, 2), torch.float32),
    }
    assert torch.equal(micro["text"][:, 0].long() + 10**12, micro["sample_id"])
    assert torch.equal(micro["label"], micro["text"][:, 0].long() % 5)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_every_layout_trains_on_the_same_samples(ranks: int, accumulate: int) -> None:
    want = take(Wide(), 8)  # 128 samples: more than two epochs
    got = [take(Wide(), 8, data_rank=r, data_parallel=ranks, accumulate=accumulate) for r in range(ranks)]
    for k in range(8):
        assert all(len(g[k]) == accumulate for g in got)
        assert_same(flat([want[k]]), flat([g[k] for g in got]))
    assert set(flat(want)["visit"].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("start", [0, 16, 48, 112, 16 * 1001, 7])
@pytest.mark.parametrize("workers", [0, 3])
def test_a_resume_goes_on_as_if_never_stopped(start: int, workers: int) -> None:
    whole = take(Wide(), 4, start_samples=start)
    later = take(Wide(), 3, start_samples=start + 16, workers=workers)
    assert_same(flat(whole[1:]), flat(later))


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("prefetch", [1, 5])
def test_threads_change_nothing(workers: int, prefetch: int) -> None:
    assert_same(flat(take(Wide(), 7, accumulate=2)), flat(take(Wide(), 7, accumulate=2, workers=workers, prefetch=prefetch)))


def test_crop_and_flip_are_cuts_of_the_image_and_differ_by_visit() -> None:
    data = Wide()
    out = flat(take(data, 40))
    seen: dict[int, set[bytes]] = {}
    for image, ident in zip(out["image"], out["sample_id"].tolist(), strict=True):
        whole = data.load(ident - 10**12)["image"]
        pixels = ((image.numpy() + 1) * 127.5).round().astype(np.uint8)
        _, h, w = whole.shape
        cuts = [whole[:, y : y + 4, x : x + 4] for y in range(h - 3) for x in range(w - 3)]
        assert any(np.array_equal(pixels, c) or np.array_equal(pixels, c[..., ::-1]) for c in cuts)
        seen.setdefault(ident, set()).add(pixels.tobytes())
    assert max(len(s) for s in seen.values()) > 4  # places times mirrored or not
    assert min(len(s) for s in seen.values()) >= 2  # 12 visits: mirrored at least once, and not always


def test_a_random_crop_comes_from_every_place_as_often() -> None:
    class Ramp(Wide):
        size = 1

        def load(self, index: int) -> Sample:
            return {"image": np.arange(5, dtype=np.uint8).reshape(1, 1, 5).repeat(3, 0), "label": 0}

    with Loader(Ramp(), DataSpec(crop="random"), seed=0, global_batch=2000) as loader:
        places = ((loader.step(0)[0]["image"][:, 0, 0, 0] + 1) * 127.5).round().long()
    assert torch.bincount(places, minlength=5).tolist() == pytest.approx([400] * 5, abs=90)  # 5 standard deviations
    with Loader(Ramp(), DataSpec(crop="center"), seed=0, global_batch=20) as loader:
        assert (((loader.step(0)[0]["image"][:, 0, 0, 0] + 1) * 127.5).round() == 2).all()


def test_flip_mirrors_half_of_the_visits() -> None:
    images = np.zeros((1, 1, 2, 2), np.uint8)
    images[..., 0] = 255
    data = ArrayDataset("one", images, np.zeros(1, np.int64))
    with Loader(data, DataSpec(size=2, flip=True), seed=0, global_batch=1000) as loader:
        share = (loader.step(0)[0]["image"][:, 0, 0, 0] < 0).float().mean().item()
    assert 0.42 < share < 0.58  # 5 standard deviations


def test_pixels_map_exactly() -> None:
    images = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    with Loader(ArrayDataset("ramp", images, np.zeros(1, np.int64)), DataSpec(size=16), seed=0, global_batch=1) as loader:
        out = loader.step(0)[0]["image"].flatten()
    assert (out[0].item(), out[255].item()) == (-1.0, 1.0)
    assert torch.equal(out, torch.arange(256) / 127.5 - 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failing_sample_is_named_where_its_step_is_taken(workers: int) -> None:
    data = Wide(broken=11)
    with Loader(data, DataSpec(size=4, channels=3, window=16, workers=workers), seed=3, global_batch=10) as loader:
        steps = iter(loader)
        with pytest.raises(
            DataError, match=r"data set 'wide', sample 11 \(id 1000000000011\): .*ZeroDivisionError: one over nothing"
        ) as caught:
            for _ in range(5):
                next(steps)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_closing_ends_the_threads_soon() -> None:
    before = set(threading.enumerate())
    loader = Loader(Wide(sleep_s=0.05), DataSpec(size=4, channels=3, workers=4, prefetch=3), seed=0, global_batch=48)
    next(iter(loader))
    begin = time.perf_counter()
    loader.close()
    loader.close()
    assert time.perf_counter() - begin < 5
    assert set(threading.enumerate()) == before
    with pytest.raises(RuntimeError, match="closed"):
        next(iter(loader))


def test_no_more_than_prefetch_steps_are_read_ahead() -> None:
    class Counted(Wide):
        loads = 0

        def load(self, index: int) -> Sample:
            with self.lock:
                Counted.loads += 1
            return super().load(index)

    with Loader(Counted(), DataSpec(size=4, channels=3, workers=2, prefetch=3), seed=0, global_batch=10) as loader:
        steps = iter(loader)
        for k in range(1, 4):
            next(steps)
            time.sleep(0.2)
            assert Counted.loads == 1 + 10 * (k + 3)  # 1: the first sample is looked at for its fields


def test_slow_reads_overlap_with_each_other_and_with_the_step() -> None:
    data = Wide(sleep_s=0.01)
    with Loader(data, DataSpec(size=4, channels=3, workers=4, prefetch=2), seed=0, global_batch=16) as loader:
        steps = iter(loader)
        next(steps)
        assert data.most == 4
        time.sleep(0.4)  # a step of training: two batches of 16 reads over 4 threads take 0.08 s of it
        begin = time.perf_counter()
        next(steps), next(steps)
        assert time.perf_counter() - begin < 0.04


def test_digits_cost_well_under_a_millisecond() -> None:
    with Loader(digits(), DataSpec(), seed=0, global_batch=128) as loader:
        steps = iter(loader)
        next(steps)
        costs = []
        for _ in range(100):
            begin = time.thread_time()
            next(steps)
            costs.append(time.thread_time() - begin)
    assert np.median(costs) < 1e-3  # 0.06 ms without the type checks of the tests


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs a GPU")
def test_pinned_batches_are_the_same() -> None:
    with Loader(digits(), DataSpec(workers=2), seed=0, global_batch=64, pin=True) as loader:
        pinned = next(iter(loader))[0]
    with Loader(digits(), DataSpec(), seed=0, global_batch=64) as loader:
        assert_same(pinned, loader.step(0)[0])
    assert all(v.is_pinned() for v in pinned.values())
