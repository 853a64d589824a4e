"""Which dim of a parameter is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.parallel.rules import PADDING, fsdp_dim, padded


def test_worked_cases() -> None:
    assert fsdp_dim((512, 128), ("mlp", "embed"), 4) == 0
    assert fsdp_dim((1, 64, 128), ("none", "token", "embed"), 128) == 2  # a position table: not all on rank 0, gathered 128 times
    assert fsdp_dim((11, 128), ("class", "embed"), 4) == 0  # 12 / 11 is little padding
    assert fsdp_dim((5, 128), ("class", "embed"), 4) == 1
    assert fsdp_dim((3,), ("channel",), 4) == 0  # nothing better: FSDP pads it
    assert fsdp_dim((1, 64, 130), ("none", "token", "embed"), 128) == 0
    assert fsdp_dim((1, 64), ("none", "patch"), 4) == 0
    assert fsdp_dim((1, 64), (), 4) == 1  # axes are not named
    assert fsdp_dim((1, 64), (), 1) == 0
    assert fsdp_dim((), (), 4) == 0


@given(st.lists(st.integers(0, 40), max_size=4), st.integers(1, 16))
def test_the_choice_is_one_that_fsdp_takes(shape: list[int], ranks: int) -> None:
    dim = fsdp_dim(shape, (), ranks)
    assert dim == 0 or shape[dim] % ranks == 0
    even = [n for n in shape[1:] if n and n % ranks == 0]
    if shape and shape[0] and even:
        kept = padded(shape[dim], ranks) / shape[dim]
        assert kept <= PADDING
