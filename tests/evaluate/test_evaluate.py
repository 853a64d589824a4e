"""Each judgement on cases whose answer is known: real data, wrong labels, copies, one image for ever."""

from __future__ import annotations

import builtins
import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headway.data.dataset import ArrayDataset
from headway.data.digits import digits
from headway.diffusion import path
from headway.evaluate.agreement import class_agreement
from headway.evaluate.diversity import diversity, nearest
from headway.evaluate.losses import loss_by_timestep
from headway.evaluate.real import features, take
from headway.spec.errors import DataError


@pytest.fixture(scope="module")
def data() -> ArrayDataset:
    return digits()


@pytest.fixture(scope="module")
def real(data: ArrayDataset) -> tuple[np.ndarray, np.ndarray]:
    rows = data.load_batch(np.arange(200))
    return rows["image"], rows["label"]


def test_take_gives_different_samples_cut_from_the_middle(data: ArrayDataset) -> None:
    x, labels, ids = take(data, 700, seed=3)
    assert x.shape == (700, 64)
    assert len(set(ids.tolist())) == 700
    rows = data.load_batch(ids)
    np.testing.assert_array_equal(x, rows["image"].reshape(700, 64))
    np.testing.assert_array_equal(labels, rows["label"])
    assert len(take(data, 10**6, seed=0)[1]) == 1797


def test_features_of_large_images_are_means() -> None:
    x = torch.linspace(-1, 1, 3 * 64 * 64).view(1, 3, 64, 64)
    out = features(x)
    assert out.shape == (1, 3 * 16 * 16)
    np.testing.assert_allclose(out[0, 0], x[0, 0, :4, :4].double().mean())
    bad = torch.tensor([[[[torch.nan, torch.inf], [3.0, 0.5]]]])
    np.testing.assert_array_equal(features(bad), [[np.nan, np.nan, 1, 0.5]])


# ---- agreement ----


def test_real_digits_agree_and_wrong_labels_do_not(data: ArrayDataset, real: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = real
    good = class_agreement(images, labels, dataset=data)
    assert good.classifier_accuracy > 0.98
    assert good.agree / good.n > 0.98
    assert good.interval.low < good.agree / good.n <= good.interval.high
    assert sum(n for _, n in good.per_class.values()) == good.n == 200
    wrong = class_agreement(images, (labels + 1) % 10, dataset=data)
    assert wrong.agree / wrong.n < 0.02
    half = class_agreement(torch.tensor(images), torch.tensor(np.where(np.arange(200) % 2, labels, (labels + 3) % 10)), dataset=data)
    assert 0.45 < half.agree / half.n < 0.55
    assert half.classifier_accuracy == good.classifier_accuracy


def test_the_accuracy_is_that_on_samples_the_classifier_has_not_seen(data: ArrayDataset) -> None:
    """Labels without meaning can be learnt by heart, not guessed: 1 of 10 is right."""
    rows = data.load_batch(np.arange(1000))
    random = ArrayDataset("random", rows["image"], np.random.default_rng(0).integers(10, size=1000))
    assert class_agreement(rows["image"], rows["label"], dataset=random).classifier_accuracy < 0.2


def test_noise_and_samples_that_are_not_finite_agree_by_chance_or_not_at_all(data: ArrayDataset) -> None:
    labels = np.arange(200) % 10
    noise = np.random.default_rng(0).standard_normal((200, 1, 8, 8))
    assert class_agreement(noise, labels, dataset=data).agree < 50
    nan = class_agreement(np.full((200, 1, 8, 8), np.nan), labels, dataset=data)
    assert (nan.agree, nan.n) == (0, 200)


def test_what_cannot_be_judged(data: ArrayDataset, real: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = real
    one = ArrayDataset("one", images, labels * 0)
    with pytest.raises(DataError, match="data set 'one': class agreement needs at least two classes"):
        class_agreement(images, labels * 0, dataset=one)
    with pytest.raises(DataError, match="at least 5 samples"):
        class_agreement(images, labels, dataset=ArrayDataset("few", images[:10], np.arange(10)))
    with pytest.raises(DataError, match=r"samples must be \[n, 1, 8, 8\] with n labels, got \[200, 1, 8, 8\] and \[199\]"):
        class_agreement(images, labels[1:], dataset=data)
    with pytest.raises(DataError, match=r"got .*4, 8"):
        diversity(images[:, :, :4], labels, dataset=data)
    with pytest.raises(DataError, match=r"labels must lie in \[0, 10\), got 1 to 10"):
        class_agreement(images, labels + 1, dataset=data)
    real_import = builtins.__import__

    def no_sklearn(name: str, *args: Any) -> Any:
        if name.startswith("sklearn"):
            raise ModuleNotFoundError(name)
        return real_import(name, *args)

    for name in [n for n in sys.modules if n.startswith("sklearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", no_sklearn)
    with pytest.raises(DataError, match=r"not installed. pip install 'headway\[train\]'"):
        class_agreement(images, labels, dataset=data)


# ---- losses ----


class Guess(nn.Module):
    """v = x_t, remembered; one parameter, so that it has a device."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.calls: list[tuple[Tensor, Tensor, dict[str, Tensor]]] = []

    def forward(self, x: Tensor, t: Tensor, condition: dict[str, Tensor]) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        self.calls.append((x, t, condition))
        return x * self.scale


def test_loss_by_timestep_is_the_loss_of_each_bin(data: ArrayDataset) -> None:
    """v = x_t: the error is x_t - (eps - x0) = (2 - t) x0 - (1 - t) eps, so its mean square is (2 - t)^2 E x0^2 + (1 - t)^2."""
    network = Guess()
    out = loss_by_timestep(network, data, bins=4, num_samples=1000, batch=300)
    assert network.training
    square = float((data.load_batch(np.arange(1797))["image"] ** 2).mean())
    for b, part in enumerate(out):
        t = np.linspace(b / 4, (b + 1) / 4, 1001)
        want = ((2 - t) ** 2 * square + (1 - t) ** 2).mean()
        assert (part.low, part.high, part.loss.n) == (b / 4, (b + 1) / 4, 1000)
        assert part.loss.estimate == pytest.approx(want, rel=0.02)
        assert part.loss.low < part.loss.estimate < part.loss.high
    for k, (_, t, condition) in enumerate(network.calls):
        assert ((k % 4) / 4 <= t.min()) & (t.max() <= (k % 4 + 1) / 4)
        assert set(condition) == {"label"}


def test_loss_by_timestep_never_changes_and_does_not_depend_on_the_batch(data: ArrayDataset) -> None:
    a = loss_by_timestep(Guess(), data, num_samples=100, batch=100)
    b = loss_by_timestep(Guess(), data, num_samples=100, batch=7)
    assert [x.loss.estimate for x in a] == pytest.approx([x.loss.estimate for x in b], rel=1e-6)
    assert a == loss_by_timestep(Guess(), data, num_samples=100, batch=100)
    assert a != loss_by_timestep(Guess(), data, num_samples=100, seed=1)


def test_the_best_network_has_no_loss() -> None:
    """With one image in the data set, v = (x_t - x0) / t is exact."""
    image = np.full((1, 1, 4, 4), 0.5, np.float32)

    class Exact(Guess):
        def forward(self, x: Tensor, t: Tensor, condition: dict[str, Tensor]) -> Tensor:
            return (x - 0.5) / path.per_sample(t, x)

    for part in loss_by_timestep(Exact(), ArrayDataset("one", image.repeat(8, 0), np.zeros(8, np.int64)), bins=2):
        assert part.loss.estimate < 1e-6


# ---- diversity ----


def test_nearest_is_the_nearest() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((700, 5)), rng.random((40, 5))
    brute = np.sqrt(((a[:, None] - b[None]) ** 2).mean(2))
    distance, index = nearest(a, b)
    np.testing.assert_allclose(distance, brute.min(1))
    np.testing.assert_array_equal(index, brute.argmin(1))
    a -= 0.5
    brute = np.sqrt(((a[:, None] - a[None]) ** 2).mean(2)) + np.diag(np.full(700, np.inf))
    own, index = nearest(a, a, same=True)
    np.testing.assert_allclose(own, brute.min(1))
    np.testing.assert_array_equal(index, brute.argmin(1))


def split(data: ArrayDataset) -> tuple[ArrayDataset, np.ndarray, np.ndarray]:
    """All but 200 digits as the training set, and those 200: as new as samples can be."""
    rows = data.load_batch(np.random.default_rng(0).permutation(1797))
    rest = ArrayDataset("digits", rows["image"][200:], rows["label"][200:], class_names=data.class_names)
    return rest, rows["image"][:200], rows["label"][:200]


def test_new_images_are_neither_copies_nor_collapsed(data: ArrayDataset) -> None:
    train, images, labels = split(data)
    out = diversity(images, labels, dataset=train)
    assert out.near_copies.contains(0.05)
    assert out.median_distance == pytest.approx(out.median_distance_real, rel=0.1)
    assert out.median_variance_ratio == pytest.approx(1, abs=0.15)
    assert len(out.variance_ratio) == 10


def test_copies_are_seen(data: ArrayDataset) -> None:
    train, _, _ = split(data)
    rows = train.load_batch(np.arange(100))
    noise = np.random.default_rng(0).normal(0, 0.01, (100, 1, 8, 8))
    out = diversity(rows["image"] + noise, rows["label"], dataset=train)
    assert out.near_copies.low > 0.9
    assert out.nearest_index.tolist() == list(range(100))
    assert out.median_distance < 0.02 < out.threshold < out.median_distance_real


def test_collapse_is_seen(data: ArrayDataset) -> None:
    rows = data.load_batch(np.arange(10))
    out = diversity(rows["image"].repeat(20, 0), rows["label"].repeat(20), dataset=data)
    assert out.median_variance_ratio < 1e-6


def test_diversity_without_enough(data: ArrayDataset) -> None:
    rows = data.load_batch(np.arange(3))
    assert math.isnan(diversity(rows["image"], np.arange(3), dataset=data).median_variance_ratio)
    with pytest.raises(DataError, match="3 of 3 samples are not finite"):
        diversity(rows["image"] * np.nan, np.arange(3), dataset=data)
    with pytest.raises(DataError, match="at least two real images"):
        diversity(rows["image"][:1], np.zeros(1), dataset=ArrayDataset("one", rows["image"][:1], np.zeros(1, np.int64)))
