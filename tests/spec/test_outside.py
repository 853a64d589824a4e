"""Errors from outside become one paragraph; bugs of ours stay what they are."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.spec.outside import from_outside


def test_memory_that_is_not_there() -> None:
    for ask in (lambda: torch.empty(1 << 50), lambda: np.empty(1 << 58)):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            ask()
        said = str(from_outside(caught.value))
        assert said.startswith("out of memory: ") and "--mesh.dp-shard" in said and "\n" not in said
    cuda = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nProcess 7 has 70 GiB in use.")
    assert "Tried to allocate 2.00 GiB" in str(from_outside(cuda))


def test_files_that_cannot_be_used() -> None:
    with pytest.raises(OSError) as caught:
        Path("x" * 5000).read_bytes()
    said = str(from_outside(caught.value))
    assert "File name too long" in said and len(said) < 400
    assert "/dev/full: No space left" in str(from_outside(OSError(errno.ENOSPC, "No space left on device", "/dev/full")))


@pytest.mark.parametrize("bug", [ValueError("x"), RuntimeError("shape mismatch"), KeyError("x"), OSError("no number"), AssertionError()])
def test_a_bug_is_no_message_for_the_user(bug: Exception) -> None:
    assert from_outside(bug) is None


def test_a_package_of_an_extra() -> None:
    assert "pip install 'headway[train]'" in str(from_outside(ModuleNotFoundError("no torch", name="torch.nn")))
    assert from_outside(ModuleNotFoundError("no mine", name="mine")) is None
