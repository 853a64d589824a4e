"""What a span says of its collective: in its arguments, or (a host operator) by its name and shapes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final

from headway.trace.classify import collective
from headway.trace.read.columns import as_whole
from headway.trace.read.kineto_json import Span
from headway.trace.table import Collective

_BYTES: Final = {
    8: ("double", "long", "float64", "int64", "complexfloat"),
    4: ("int", "float", "int32", "float32"),
    2: ("half", "bfloat16", "short", "float16", "int16"),
    1: ("byte", "char", "bool", "int8", "uint8"),
}
_SIZES: Final = {name: size for size, names in _BYTES.items() for name in names}


def said(event: Span) -> Collective:
    """The collective of a span that has one."""
    args = event.args
    if args.collective is None:
        return Collective(name=collective(str(event.name)), bytes=_shaped(bytes(args.dims), bytes(args.types)))
    size = _counted(args.size)
    return Collective(
        name=collective(str(args.collective)),
        group=None if args.group is None else str(args.group),
        text="" if args.text in (None, "undefined") else str(args.text),
        ranks=_members(args.ranks, size),
        size=size,
        bytes=_message(args.sent, args.received, args.dtype),
        number=_counted(args.number),
        peer=_counted(args.from_rank if args.to_rank is None else args.to_rank),
    )


def _counted(value: Any) -> int | None:
    number = as_whole(value)
    return number if number >= 0 else None


def _members(text: Any, size: int | None) -> tuple[int, ...]:
    """'[0, 1]' -> (0, 1); () if it was shortened."""
    try:
        ranks = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return ()
    if not isinstance(ranks, list) or not all(as_whole(r) >= 0 for r in ranks) or (size is not None and len(ranks) != size):
        return ()
    return tuple(map(as_whole, ranks))


def _message(sent: Any, received: Any, dtype: Any) -> int | None:
    size = _element(dtype)
    counts = [n for n in map(_counted, (sent, received)) if n is not None]
    return _counted(max(counts) * size) if counts and size else None


def _element(dtype: Any) -> int | None:
    name = str(dtype).removeprefix("c10::").lower()
    return 1 if name.startswith("float8") else _SIZES.get(name)


@lru_cache(1 << 14)
def _shaped(dims: bytes, types: bytes) -> int | None:
    """Bytes of the largest tensor (or list of tensors) of a host operator with recorded shapes."""
    try:
        shapes, kinds = json.loads(dims), json.loads(types)
        first = next((s for k in kinds if (s := _element(k))), None)
        return _counted(max(_count(s) for s in shapes) * first) or None if first else None
    except (ValueError, TypeError, RecursionError):
        return None


def _count(shape: Sequence[Any]) -> int:
    if not shape:
        return 0
    return sum(_count(s) for s in shape) if isinstance(shape[0], list) else prod(shape)
