"""Keyed random draws: Philox4x32-10 as a pure function of (seed, purpose, data set, sample, visit, element).

A training step needs noise, a timestep, a crop for each sample. Drawn from a generator they depend on the rank, the batch and the
order; drawn here they depend on the sample alone:

    key     = blake2b(seed, purpose, data set)                64 bits
    counter = (element // 4, visit, sample low, sample high)  4 x 32 bits
    words   = philox(counter, key)                            4 x 32 bits: elements 4i .. 4i + 3

So one rank or a thousand, any batch, any accumulation and any resume draw the same numbers, and a rank that holds a part of a sample
draws that part only (`start`). Bits and uniforms are equal on every device; normals on every layout of one kind of device.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Random123).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int64
from torch import Tensor

_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)  # the key grows by these from round to round
_ROUNDS: Final = 10
_MASK: Final = 0xFFFFFFFF
_CHUNK: Final = 1 << 13  # counters of one numpy pass: the work stays in the cache

_U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Draw:
    """The draws of one micro-batch: `sample_id` and `visit` (how often the sample was seen before), both [b] int64 on one device."""

    seed: int
    data: str
    sample_id: Int64[Tensor, " b"]
    visit: Int64[Tensor, " b"]

    def take(self, index: slice | Tensor) -> Draw:
        """The draws of a part of the batch."""
        return Draw(self.seed, self.data, self.sample_id[index], self.visit[index])

    def bits(self, purpose: str, n: int, start: int = 0) -> Int64[Tensor, "b n"]:
        """Elements [start, start + n) of the draw `purpose` of each sample: uint32 values held in int64."""
        first, last = start // 4, -(-(start + n) // 4)
        assert n >= 0 and start >= 0 and last <= 1 << 32, f"elements {start} .. {start + n} are outside of a draw"
        schedule = _key_schedule(self.seed, purpose, self.data)
        if self.sample_id.device.type == "cpu":
            words = torch.from_numpy(_blocks_numpy(self.sample_id.numpy(), self.visit.numpy(), first, last, schedule).view(np.int64))
        else:
            words = _blocks_torch(self.sample_id, self.visit, first, last, schedule)
        return words[:, start - 4 * first : start - 4 * first + n]

    def uniform(
        self, purpose: str, shape: Sequence[int] = (), *, start: int = 0, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "b ..."]:
        """Uniform numbers of the open interval (0, 1), [b, *shape]: the odd multiples of 2^-24, exact in float32 and float64."""
        assert dtype in (torch.float32, torch.float64), f"uniform draws are float32 or float64, not {dtype}: shorter ones round to 1"
        odd = (self.bits(purpose, math.prod(shape), start) >> 9) * 2 + 1
        return (odd.to(dtype) * 2.0**-24).view(len(self.sample_id), *shape)

    def normal(self, purpose: str, shape: Sequence[int], *, start: int = 0, dtype: torch.dtype = torch.float32) -> Float[Tensor, "b ..."]:
        """Standard normal numbers, [b, *shape], |z| <= 6.7: computed in float64, rounded to float32, then cast to `dtype`."""
        n = math.prod(shape)
        first = start - start % 2  # numbers come in pairs
        bits = self.bits(purpose, n + (start - first) + (n + start - first) % 2, first)
        z = _normal_numpy(bits) if bits.device.type == "cpu" else _normal_torch(bits)
        return z[:, start - first : start - first + n].to(dtype).reshape(len(self.sample_id), *shape)


@lru_cache(maxsize=1024)
def _key_schedule(seed: int, purpose: str, data: str) -> tuple[tuple[int, int], ...]:
    """Key words of each round."""
    digest = blake2b(json.dumps([seed, purpose, data]).encode(), digest_size=8).digest()
    return key_schedule(int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little"))


def key_schedule(key0: int, key1: int) -> tuple[tuple[int, int], ...]:
    """Key words of each round of Philox4x32-10 for the key (key0, key1)."""
    return tuple(((key0 + r * _WEYL[0]) & _MASK, (key1 + r * _WEYL[1]) & _MASK) for r in range(_ROUNDS))


# A round: (c0, c1, c2, c3) -> (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)).
# With even = (c0, c2) and odd = (c1, c3) stacked, and p = M * even: even' = flip(p >> 32) ^ odd ^ k, odd' = flip(p & mask).


def philox_numpy(even: _U64, odd: _U64, schedule: tuple[tuple[int, int], ...]) -> tuple[_U64, _U64]:
    """Words (0, 2) and (1, 3) of each counter from its words (0, 2) and (1, 3): arrays [2, n] of uint32 values held in uint64."""
    multipliers = np.array(_MULTIPLIERS, np.uint64)[:, None]
    keys = np.array(schedule, np.uint64)[:, :, None]
    mask, half = np.uint64(_MASK), np.uint64(32)
    for key in keys:
        product = even * multipliers  # < 2^64: exact
        even = product[::-1] >> half
        even ^= odd
        even ^= key
        product &= mask
        odd = product[::-1]
    return even, odd


def philox_torch(even: Tensor, odd: Tensor, schedule: tuple[tuple[int, int], ...]) -> tuple[Tensor, Tensor]:
    """As `philox_numpy` on int64 tensors of any device: the product wraps, and shift and mask recover its halves."""
    for k0, k1 in schedule:
        p0, p1 = even[0] * _MULTIPLIERS[0], even[1] * _MULTIPLIERS[1]
        even = torch.stack((((p1 >> 32) & _MASK) ^ odd[0] ^ k0, ((p0 >> 32) & _MASK) ^ odd[1] ^ k1))
        odd = torch.stack((p1 & _MASK, p0 & _MASK))
    return even, odd


def _blocks_numpy(
    sample_id: npt.NDArray[np.int64], visit: npt.NDArray[np.int64], first: int, last: int, schedule: tuple[tuple[int, int], ...]
) -> _U64:
    """Words of the counters [first, last) of each sample, [b, 4 (last - first)]."""
    num, width = len(sample_id), last - first
    sample, seen = sample_id.astype(np.uint64), visit.astype(np.uint64)
    mask, half = np.uint64(_MASK), np.uint64(32)
    words = np.empty((num, width, 4), np.uint64)
    step = max(1, _CHUNK // max(num, 1))
    for a in range(first, last, step):
        b = min(a + step, last)
        even, odd = np.empty((2, num, b - a), np.uint64), np.empty((2, num, b - a), np.uint64)
        even[0] = np.arange(a, b, dtype=np.uint64)
        even[1] = (sample & mask)[:, None]
        odd[0] = (seen & mask)[:, None]
        odd[1] = (sample >> half)[:, None]
        even, odd = philox_numpy(even.reshape(2, -1), odd.reshape(2, -1), schedule)
        part = words[:, a - first : b - first]
        part[..., 0::2] = even.reshape(2, num, b - a).transpose(1, 2, 0)
        part[..., 1::2] = odd.reshape(2, num, b - a).transpose(1, 2, 0)
    return words.reshape(num, 4 * width)


def _blocks_torch(sample_id: Tensor, visit: Tensor, first: int, last: int, schedule: tuple[tuple[int, int], ...]) -> Tensor:
    """As `_blocks_numpy`, on the device of `sample_id`."""
    num, width = sample_id.shape[0], last - first
    block = torch.arange(first, last, dtype=torch.int64, device=sample_id.device).expand(num, width)
    sample, seen = sample_id[:, None].expand(num, width), visit[:, None].expand(num, width)
    even, odd = torch.stack((block, sample & _MASK)), torch.stack((seen & _MASK, (sample >> 32) & _MASK))
    even, odd = philox_torch(even, odd, schedule)
    return torch.stack((even[0], odd[0], even[1], odd[1]), dim=-1).reshape(num, 4 * width)


# Box and Muller 1958: u, v uniform -> sqrt(-2 ln u) (cos 2 pi v, sin 2 pi v). u = (w + 1/2) 2^-32 is exact in float64 and never 0.


def _normal_numpy(bits: Tensor) -> Tensor:
    """[b, 2n] uint32 values -> [b, 2n] float32 normals."""
    u = bits.numpy().reshape(len(bits), bits.shape[1] // 2, 2).transpose(2, 0, 1).astype(np.float64, order="C")
    u += 0.5
    u *= 2.0**-32
    radius = np.sqrt(-2.0 * np.log(u[0]))
    angle = (2.0 * math.pi) * u[1]
    z = np.empty((*radius.shape, 2), np.float32)
    np.multiply(radius, np.cos(angle), out=z[..., 0], casting="same_kind")
    np.multiply(radius, np.sin(angle), out=z[..., 1], casting="same_kind")
    return torch.from_numpy(z).view(bits.shape)


def _normal_torch(bits: Tensor) -> Tensor:
    """As `_normal_numpy`, on the device of `bits`."""
    u, v = ((bits.to(torch.float64) + 0.5) * 2.0**-32).reshape(len(bits), bits.shape[1] // 2, 2).unbind(-1)
    radius, angle = torch.sqrt(-2.0 * torch.log(u)), (2.0 * math.pi) * v
    return torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), -1).to(torch.float32).flatten(1)
