"""JSON that a run keeps of itself, read within bounds: a file that was edited, damaged or made by another version is no crash."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

DEEPEST: Final = 64  # levels of a record; the settings of a run have five
_MOST: Final = 1 << 63  # what numpy and a clock in nanoseconds can hold
_SCHEMA: Final = re.compile(r"(.+)/(\d{1,9})")


class Newer(ValueError):
    """A record of a later schema than this version knows."""


def load(data: bytes | str) -> Any:
    """The value of a JSON text. Raises ValueError if it is none, is nested deeper than DEEPEST, or has an integer beyond 64 bits."""
    try:
        value = json.loads(data, parse_int=_integer)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


def check_schema(data: Mapping[str, Any], known: str) -> None:
    """Raises Newer if `data` says that it has a later version of the schema `known` ("headway.run/1"), ValueError if another schema."""
    said = data.get("schema")
    if said == known:
        return
    (name, version), match = known.rsplit("/", 1), _SCHEMA.fullmatch(str(said))
    if match and match[1] == name and int(match[2]) > int(version):
        raise Newer(f"it was made by a newer version of Headway (schema {said}; this one reads {known})")
    raise ValueError(f"schema {str(said)[:80]!r}, expected {known}")


_TOO_DEEP: Final = f"it is nested deeper than {DEEPEST} levels"


def _inside(value: Any) -> list[Any]:
    """The containers in a container."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [v for v in inner if isinstance(v, (dict, list))]


def _integer(text: str) -> int:
    if len(text) > 21 or abs(number := int(text)) >= _MOST:
        raise ValueError(f"the number {text[:24]}{'...' * (len(text) > 24)} does not fit into 64 bits")
    return number
