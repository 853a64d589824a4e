"""The global order: which sample stands at which position, as a pure function.

Positions count samples seen since the start of the run. Position p belongs to epoch p // num_samples (the *visit* of its sample);
epochs run on into each other, and each epoch holds every sample exactly once. Inside an epoch:

    samples   0 ........ W-1 | W ........ 2W-1 | 2W ... n-1        windows of W neighbours, the last one may be short
    order     window 2 (short) | window 0 | window 1               a keyed permutation of the windows,
              shuffled inside  | shuffled inside | ...             and a keyed permutation inside each

A position is found without building the epoch: the permutation of windows is a keyed bijection that is evaluated one window at a
time, so memory is O(window), for any number of samples. No numpy Generator is involved: keys are BLAKE2b, bits are raw Philox counters.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def batch(position: int, count: int, num_samples: int, window: int, seed: int, fingerprint: str) -> tuple[Ints, Ints]:
    """Indices [count] and visits [count] of the samples at positions [position, position + count).

    Raises ValueError for numbers out of range.
    """
    if position < 0 or count < 0 or num_samples < 1 or window < 1:
        raise ValueError(f"no such batch: {position=} {count=} {num_samples=} {window=}")
    indices, visits = np.empty(count, np.int64), np.empty(count, np.int64)
    done = 0
    while done < count:
        epoch, offset = divmod(position + done, num_samples)
        key = _key(f"{fingerprint}/{epoch}", seed)
        slot, start = _slot(offset, num_samples, window, key)
        order = _window(slot, num_samples, window, key)
        part = order[start : start + count - done]
        indices[done : done + len(part)] = part
        visits[done : done + len(part)] = epoch
        done += len(part)
    return indices, visits


def _slot(offset: int, num_samples: int, window: int, key: bytes) -> tuple[int, int]:
    """The slot of the epoch in which `offset` lies, and how far in. All slots hold `window` samples but the one of the short window."""
    short_slot, short = _short(num_samples, window, key)
    if offset >= short_slot * window + short:
        offset += window - short  # as if the short window were full
    return divmod(offset, window)


@lru_cache(maxsize=8)
def _short(num_samples: int, window: int, key: bytes) -> tuple[int, int]:
    """Slot and length of the last window, the one that may be short."""
    num_windows = -(-num_samples // window)
    return permute(num_windows - 1, num_windows, key, inverse=True), num_samples - (num_windows - 1) * window


@lru_cache(maxsize=8)
def _window(slot: int, num_samples: int, window: int, key: bytes) -> Ints:
    """Samples of the window in `slot`, in order; read-only."""
    number = permute(slot, -(-num_samples // window), key)
    first = number * window
    size = min(window, num_samples - first)
    bits = np.random.Philox(key=_hash(key, b"inside", number)).random_raw(size)
    order: Ints = np.argsort(bits, kind="stable") + first
    order.setflags(write=False)
    return order


def permute(x: int, n: int, key: bytes, *, inverse: bool = False) -> int:
    """A keyed bijection of [0, n), evaluated at x in O(log n).

    Swap-or-not (Hoang, Morris, Rogaway, "An enciphering scheme based on a card shuffle", 2012): round i pairs x with K_i - x mod n,
    and swaps the pair if its bit is set. Each round undoes itself, so the inverse is the rounds in reverse.
    """
    rounds = range(6 * n.bit_length()) if n > 1 else range(0)
    for i in reversed(rounds) if inverse else rounds:
        partner = (_hash(key, b"pair", i) - x) % n
        if _hash(key, b"swap", i, max(x, partner)) & 1:
            x = partner
    return x


@lru_cache(maxsize=8)
def _key(text: str, seed: int) -> bytes:
    return blake2b(f"order/{seed}/{text}".encode(), digest_size=16).digest()


def _hash(key: bytes, purpose: bytes, *words: int) -> int:
    """64 bits."""
    message = struct.pack(f"<{len(words)}Q", *words)
    return int.from_bytes(blake2b(message, key=key, person=purpose, digest_size=8).digest(), "little")
