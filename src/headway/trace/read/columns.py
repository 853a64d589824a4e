"""Lists of decoded values as integer columns: whole numbers, and codes of what is equal."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from typing import Any, Final

import numpy as np

from headway.trace.sweep import Ints

_MOST: Final = 1 << 62


class Codes(dict[Any, int]):
    """Value -> code; a value that is new gets the next one when it is looked up."""

    def __missing__(self, value: Any) -> int:
        self[value] = code = len(self)
        return code


def coded(values: Collection[Any], codes: Codes) -> Ints:
    """Codes of `values`; `codes` grows by those that are new."""
    return np.fromiter(map(codes.__getitem__, values), np.int64, len(values))


def whole(values: list[Any], least: int | None = 0) -> Ints:
    """Integers of up to 62 bits; -1 for anything else: missing, text that is no number, fractions, larger or below `least`.

    `least` None: negative ones too, and 0 for anything else.
    """
    none = -1 if least is not None else 0
    try:
        out = np.frombuffer(array("q", values), np.int64) if values else np.zeros(0, np.int64)
    except (TypeError, OverflowError):
        out = np.array([as_whole(v, none) for v in values], np.int64)
    return np.where((out < (-_MOST if least is None else least)) | (out >= _MOST), none, out)


def as_whole(value: Any, none: int = -1) -> int:
    """An integer of up to 62 bits, or the one that a text spells; else `none`."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        value = int(value)
    return value if value.__class__ is int and -_MOST < value < _MOST else none
