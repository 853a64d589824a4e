"""Draws: the published vectors, the same numbers in any layout, and the right distributions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.kernels import draw as draws
from headway.kernels.draw import Draw, key_schedule, philox_numpy, philox_torch

ONES = 0xFFFFFFFF
VECTORS = [  # Random123, kat_vectors, philox4x32 10: counter, key, result
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
int64s = st.integers(-(1 << 63), (1 << 63) - 1)


def batch(ids: list[int], visits: list[int] | None = None, **changes: object) -> Draw:
    fields = {"seed": 7, "data": "digits"} | changes
    visit = torch.tensor(visits if visits is not None else [0] * len(ids), dtype=torch.int64)
    return Draw(sample_id=torch.tensor(ids, dtype=torch.int64), visit=visit, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("counter", "key", "result"), VECTORS)
def test_published_vectors(counter: tuple[int, ...], key: tuple[int, int], result: tuple[int, ...]) -> None:
    schedule = key_schedule(*key)
    c = np.array(counter, np.uint64)[:, None]
    even, odd = philox_numpy(c[0::2], c[1::2], schedule)
    assert (int(even[0, 0]), int(odd[0, 0]), int(even[1, 0]), int(odd[1, 0])) == result
    t = torch.tensor(counter)[:, None]
    even_t, odd_t = philox_torch(t[0::2], t[1::2], schedule)
    assert (int(even_t[0]), int(odd_t[0]), int(even_t[1]), int(odd_t[1])) == result


@given(st.lists(st.tuples(int64s, st.integers(0, ONES)), min_size=0, max_size=5), st.integers(0, 2**31), st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_both_paths_give_equal_bits(rows: list[tuple[int, int]], start: int, n: int) -> None:
    d = batch([r[0] for r in rows], [r[1] for r in rows])
    first, last = start // 4, -(-(start + n) // 4)
    schedule = draws._key_schedule(d.seed, "p", d.data)
    by_torch = draws._blocks_torch(d.sample_id, d.visit, first, last, schedule)
    by_numpy = draws._blocks_numpy(d.sample_id.numpy(), d.visit.numpy(), first, last, schedule)
    assert np.array_equal(by_torch.numpy(), by_numpy.view(np.int64))
    assert torch.equal(d.bits("p", n, start), by_torch[:, start - 4 * first :][:, :n])


def test_many_chunks_are_one_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    d = batch([1, 2, 3])
    whole = d.bits("noise", 1000)
    monkeypatch.setattr(draws, "_CHUNK", 7)
    assert torch.equal(whole, d.bits("noise", 1000))


def test_both_paths_give_equal_normals() -> None:
    bits = batch(list(range(64))).bits("noise", 4096)
    by_numpy, by_torch = draws._normal_numpy(bits), draws._normal_torch(bits)
    assert by_numpy.dtype == by_torch.dtype == torch.float32
    assert torch.allclose(by_numpy, by_torch, rtol=2**-23, atol=1e-12)  # at most one unit in the last place
    assert (by_numpy != by_torch).sum() <= 1  # float64 differs by an ulp; the rounding to float32 hides all but 2^-29 of it


@given(st.lists(int64s, min_size=1, max_size=9), st.data())
@settings(max_examples=40, deadline=None)
def test_any_split_of_a_batch_draws_the_same(ids: list[int], data: st.DataObject) -> None:
    d = batch(ids, [i % 5 for i in range(len(ids))])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=3)))
    edges = [0, *cuts, len(ids)]
    parts = [d.take(slice(a, b)) for a, b in itertools.pairwise(edges)]
    assert torch.equal(d.uniform("timestep"), torch.cat([p.uniform("timestep") for p in parts]))
    assert torch.equal(d.normal("noise", (3, 5)), torch.cat([p.normal("noise", (3, 5)) for p in parts]))
    order = torch.tensor(data.draw(st.permutations(range(len(ids)))))
    assert torch.equal(d.bits("crop", 6)[order], d.take(order).bits("crop", 6))


@given(st.integers(0, 50), st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_start_gives_a_slice_of_the_same_draw(start: int, n: int) -> None:
    d = batch([3, 1 << 40])
    assert torch.equal(d.bits("noise", n, start), d.bits("noise", 100)[:, start : start + n])
    assert torch.equal(d.uniform("noise", (n,), start=start), d.uniform("noise", (100,))[:, start : start + n])
    assert torch.equal(d.normal("noise", (n,), start=start), d.normal("noise", (100,))[:, start : start + n])


def test_every_part_of_the_key_changes_the_draw() -> None:
    one = batch([5], [1])
    others = [batch([5], [1], seed=8), batch([5], [1], data="folder"), batch([6], [1]), batch([5 + (1 << 32)], [1]), batch([5], [2])]
    drawn = [one.bits("noise", 8), one.bits("timestep", 8), *[o.bits("noise", 8) for o in others]]
    assert len({tuple(d.flatten().tolist()) for d in drawn}) == len(drawn)


def test_the_parts_of_the_key_do_not_run_together() -> None:
    assert not torch.equal(batch([1], data="ab").bits("c", 4), batch([1], data="a").bits("bc", 4))


def test_a_stream_once_drawn_never_changes() -> None:
    """A change here makes every run another run: the numbers of old runs could not be drawn again."""
    d = batch([0, 1796, -1], [0, 3, 1])
    assert d.bits("noise", 5).tolist() == GOLDEN


GOLDEN = [
    [1104220701, 2785829248, 875700417, 1781739901, 1337065493],
    [1800982858, 1931146866, 771241802, 1674801360, 1602424450],
    [1218154161, 3660666982, 2677665199, 3785236932, 4071921468],
]


def test_uniforms_are_open_exact_and_even() -> None:
    d = batch(list(range(256)))
    u = d.uniform("timestep", (1024,))
    assert u.min() > 0 and u.max() < 1
    assert torch.equal(u.double(), d.uniform("timestep", (1024,), dtype=torch.float64))
    counts = torch.histc(u, 64, 0, 1).double()
    mean = u.numel() / 64
    assert ((counts - mean) ** 2 / mean).sum() < 63 + 5 * math.sqrt(2 * 63)  # chi squared, 5 sigma


def test_the_ends_of_the_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    d = batch([0])
    monkeypatch.setattr(Draw, "bits", lambda self, purpose, n, start=0: torch.tensor([[0, ONES]]))
    assert d.uniform("t", (2,)).tolist() == [[2.0**-24, 1 - 2.0**-24]]
    assert torch.isfinite(d.normal("noise", (2,))).all()


def test_normals_have_the_moments_of_a_normal() -> None:
    z = batch(list(range(256))).normal("noise", (4, 32, 32), dtype=torch.float64)
    n = z.numel()
    assert z.shape == (256, 4, 32, 32)
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - moment) < 5 * math.sqrt(variance / n)
    cosine, sine = z.flatten(1)[:, 0::2], z.flatten(1)[:, 1::2]
    assert abs((cosine * sine).mean()) < 5 / math.sqrt(n / 2)
    assert abs((z[:-1] * z[1:]).mean()) < 5 / math.sqrt(n)
    assert torch.equal(z.float().double(), z)  # float32 values in any dtype


def test_empty_draws() -> None:
    assert batch([]).normal("noise", (2, 3)).shape == (0, 2, 3)
    assert batch([1, 2]).uniform("crop", (0,)).shape == (2, 0)
    assert batch([1, 2]).uniform("timestep").shape == (2,)


def test_short_uniforms_are_refused() -> None:
    with pytest.raises(AssertionError, match="round to 1"):
        batch([1]).uniform("timestep", dtype=torch.bfloat16)


def test_draws_have_shapes_on_the_meta_device() -> None:
    ids = torch.zeros(3, dtype=torch.int64, device="meta")
    d = Draw(0, "digits", ids, ids)
    assert d.normal("noise", (2, 5)).shape == (3, 2, 5)
    assert d.uniform("timestep").device.type == "meta"
