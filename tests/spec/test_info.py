"""run.json: what its parts must be to be counted with."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import pytest

from headway.spec.info import GROUPS, MOST_RANKS, SCHEMA, spec_and_info
from headway.spec.run import RunSpec


def test_the_groups_are_those_of_a_run() -> None:
    hints = get_type_hints(RunSpec)
    assert {f.name for f in fields(RunSpec) if is_dataclass(hints[f.name])} == GROUPS


def test_what_a_run_writes_is_taken_as_it_stands() -> None:
    spec, info = {"name": "a", "model": {"depth": 2}}, {"world": 2, "peak_flops": None, "device": "cpu", "my_own": [1]}
    assert spec_and_info({"schema": SCHEMA, "spec": spec, "info": info}) == (spec, info)
    assert spec_and_info({"schema": SCHEMA, "spec": spec}) == (spec, {})


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("spec", "x"),
        ("spec", [1]),
        ("info", [1]),
        ("spec.mesh", 3),
        ("spec.model", "dit"),
        ("info.world", 0),
        ("info.world", True),
        ("info.world", 2.0),
        ("info.world", MOST_RANKS + 1),
        ("info.num_parameters", "many"),
        ("info.peak_flops", "fast"),
        ("info.flops_per_sample", float("inf")),
        ("info.flops_per_sample", -1.0),
        ("info.versions", ["torch"]),
        ("info.device", None),
    ],
)
def test_a_part_that_cannot_be_is_named(part: str, value: Any) -> None:
    data: dict[str, Any] = {"schema": SCHEMA, "spec": {"name": "a"}, "info": {"world": 2}}
    group, _, name = part.partition(".")
    if name:
        data[group][name] = value
    else:
        data[group] = value
    with pytest.raises(ValueError, match=rf"^{part.replace('.', '[.]')} is "):
        spec_and_info(data)
