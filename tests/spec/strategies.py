"""Random specs by their field types: any value that the type allows, sensible or not."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Union

from hypothesis import strategies as st

WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789./-_", min_size=1, max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(1 << 62), 1 << 62)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {bool: st.booleans(), int: INTEGERS, float: FLOATS, str: WORDS, Any: WORDS}


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """A strategy for one field type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return of_class(hint)
    if hint is type(None):
        return st.none()
    if origin in (Union, types.UnionType):
        return st.one_of([of_type(a) for a in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(of_type(args[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(WORDS, of_type(args[1]), max_size=3)
    return SCALARS[hint]


def of_class(kind: type) -> st.SearchStrategy[Any]:
    """A strategy for a dataclass."""
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{f.name: of_type(hints[f.name]) for f in dataclasses.fields(kind)})
