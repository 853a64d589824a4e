"""The global order: a pure function, complete, windowed, and cheap at any size."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data import plan

sizes = st.integers(1, 300)
windows = st.integers(1, 320)
seeds = st.integers(0, 2**63 - 1)


@given(n=st.integers(1, 70), seed=seeds)
@settings(max_examples=30)
def test_permute_is_a_bijection_and_inverse_undoes_it(n: int, seed: int) -> None:
    key = seed.to_bytes(8, "little")
    image = [plan.permute(x, n, key) for x in range(n)]
    assert sorted(image) == list(range(n))
    assert [plan.permute(y, n, key, inverse=True) for y in image] == list(range(n))


@given(n=sizes, window=windows, seed=seeds, epoch=st.integers(0, 10**9))
@settings(max_examples=50)
def test_every_sample_once_an_epoch(n: int, window: int, seed: int, epoch: int) -> None:
    indices, visits = plan.batch(epoch * n, n, n, window, seed, "f")
    assert sorted(indices.tolist()) == list(range(n))
    assert set(visits.tolist()) == {epoch}


@given(n=sizes, window=windows, position=st.integers(0, 5000), cuts=st.lists(st.integers(0, 120), min_size=1, max_size=8))
@settings(max_examples=50)
def test_any_cut_of_the_stream_is_the_same_stream(n: int, window: int, position: int, cuts: list[int]) -> None:
    whole = plan.batch(position, sum(cuts), n, window, 7, "f")
    starts = position + np.cumsum([0, *cuts])
    parts = [plan.batch(int(s), c, n, window, 7, "f") for s, c in zip(starts[:-1], cuts, strict=True)]
    for a, b in zip(whole, zip(*parts, strict=True), strict=True):
        np.testing.assert_array_equal(a, np.concatenate(b))


@given(n=st.integers(2, 300), window=st.integers(1, 64), seed=seeds)
@settings(max_examples=30)
def test_a_window_is_finished_before_the_next_begins(n: int, window: int, seed: int) -> None:
    indices, _ = plan.batch(0, n, n, window, seed, "f")
    number = indices // window
    changes = int((np.diff(number) != 0).sum())
    assert changes == -(-n // window) - 1


def test_order_depends_on_seed_epoch_and_fingerprint_only() -> None:
    def order(seed: int = 0, epoch: int = 0, fingerprint: str = "f") -> list[int]:
        return plan.batch(epoch * 1000, 1000, 1000, 128, seed, fingerprint)[0].tolist()

    orders = [order(), order(seed=1), order(epoch=1), order(fingerprint="g")]
    assert len({tuple(o) for o in orders}) == 4
    assert order() == orders[0]


def test_order_is_pinned() -> None:
    """A run of yesterday resumes tomorrow: the order is a format, and this is its golden value."""
    indices, visits = plan.batch(8, 12, 10, 4, 3, "golden")
    assert (indices.tolist(), visits.tolist()) == ([8, 9, 9, 8, 2, 3, 0, 1, 7, 4, 5, 6], [0] * 2 + [1] * 10)
    assert plan.batch(10**13 + 5, 4, 10**10, 8192, 3, "golden")[0].tolist() == [2307645993, 2307650587, 2307649492, 2307647072]


def test_places_are_uniform() -> None:
    """Over 800 epochs sample 0 of 12 stands at each place equally often: chi square, 11 degrees of freedom, p = 1e-4."""
    counts = np.zeros(12)
    for epoch in range(800):
        counts[plan.batch(epoch * 12, 12, 12, 3, 0, "f")[0].tolist().index(0)] += 1
    assert ((counts - 800 / 12) ** 2 / (800 / 12)).sum() < 37.4


def test_permutations_of_three_windows_are_uniform() -> None:
    """All 6 orders of 3 windows, 1,800 keys: chi square, 5 degrees of freedom, p = 1e-4."""
    seen: dict[tuple[int, ...], int] = {}
    for k in range(1800):
        order = tuple(plan.permute(x, 3, k.to_bytes(4, "little")) for x in range(3))
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    assert sum((c - 300) ** 2 / 300 for c in seen.values()) < 25.7


def test_ten_billion_samples_in_a_second_and_little_memory() -> None:
    tracemalloc.start()
    begin = time.process_time()
    indices, visits = plan.batch(69 * 10**10 + 987654321, 4096, 10**10, 8192, 3, "f")
    seconds, peak_bytes = time.process_time() - begin, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(indices.tolist())) == 4096
    assert set(visits.tolist()) == {69}
    assert seconds < 1
    assert peak_bytes < 200e6


def test_a_step_of_a_small_set_is_cheap() -> None:
    plan.batch(0, 128, 1797, 8192, 0, "f")
    begin = time.process_time()
    for step in range(200):
        plan.batch(step * 128, 128, 1797, 8192, 0, "f")
    assert (time.process_time() - begin) / 200 < 5e-4


@pytest.mark.parametrize("bad", [dict(position=-1), dict(count=-1), dict(num_samples=0), dict(window=0)])
def test_numbers_out_of_range_are_refused(bad: dict[str, int]) -> None:
    args = dict(position=0, count=1, num_samples=4, window=2) | bad
    with pytest.raises(ValueError, match="no such batch"):
        plan.batch(**args, seed=0, fingerprint="f")
