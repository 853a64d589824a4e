"""Fields of a spec: each says what it means and what a change of it does to a run.

- identity: the run would be another run; a change is refused on resume.
- layout: how the same run is laid out; free to change.
- stage: may change during a run; the change is logged.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

IDENTITY: Final = "identity"
LAYOUT: Final = "layout"
STAGE: Final = "stage"


def identity(default: Any, doc: str) -> Any:
    """A field whose change makes another run."""
    return _field(default, IDENTITY, doc)


def layout(default: Any, doc: str) -> Any:
    """A field that is free to change on resume."""
    return _field(default, LAYOUT, doc)


def stage(default: Any, doc: str) -> Any:
    """A field that may change during a run; the change is logged."""
    return _field(default, STAGE, doc)


def _field(default: Any, kind: str, doc: str) -> Any:
    metadata = {"kind": kind, "doc": doc}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def walk(spec: Any, prefix: str = "") -> dict[str, tuple[Any, str, str]]:
    """Every leaf of a nested spec: dotted name -> (value, kind, doc)."""
    leaves: dict[str, tuple[Any, str, str]] = {}
    for f in dataclasses.fields(spec):
        value = getattr(spec, f.name)
        name = f"{prefix}{f.name}"
        if dataclasses.is_dataclass(value):
            leaves |= walk(value, f"{name}.")
        else:
            leaves[name] = (value, f.metadata["kind"], f.metadata["doc"])
    return leaves


def changes(old: Any, new: Any) -> list[tuple[str, str, Any, Any]]:
    """Leaves that differ between two specs of one type: (dotted name, kind, old, new).

    A tuple of specs is compared part by part as long as its length stays: roles[0].lr; otherwise it is one leaf.
    """
    before, after = walk(old), walk(new)
    differ: list[tuple[str, str, Any, Any]] = []
    for name, (value, kind, _) in after.items():
        was = before[name][0]
        if was == value:
            continue
        if _is_specs(value) and _is_specs(was) and len(value) == len(was):
            for i, (a, b) in enumerate(zip(was, value, strict=True)):
                differ += [(f"{name}[{i}].{part}", *rest) for part, *rest in changes(a, b)]
        else:
            differ.append((name, kind, was, value))
    return differ


def _is_specs(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(map(dataclasses.is_dataclass, value))
