"""`Reward`: how good a sample is, as a user's own function says. It comes in by name: path.py:fn or pkg.mod:fn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Reward(Protocol):
    """`reward(images, asked) -> scores`; higher is better.

    `images` is a float32 array [n, C, S, S] in [-1, 1]; `asked` holds what the network was told of each: {"label": int64 [n]},
    {"text": float32 [n, d]} or {}. The scores are n finite numbers.
    """

    def __call__(self, images: Any, asked: Mapping[str, Any], /) -> Any:
        """The score of each image."""
        ...
