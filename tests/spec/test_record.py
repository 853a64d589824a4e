"""JSON that a run keeps of itself: bounds of what is read, versions."""

from __future__ import annotations

import json

import pytest

from headway.spec.record import DEEPEST, Newer, check_schema, load


@pytest.mark.parametrize(
    "text", ['{"a": [1, {"b": 2.5}]}', "[]", "3", "null", '"x"', "[" * DEEPEST + "]" * DEEPEST, str((1 << 63) - 1), "NaN"]
)
def test_what_is_plain_is_read(text: str) -> None:
    assert repr(load(text)) == repr(json.loads(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "deeper than 64"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "deeper than 64"),
        ("1" + "0" * 400, "fit into 64 bits"),
        (str(1 << 63), "fit into 64 bits"),
        ("1" + "0" * 5000, "fit into 64 bits"),
        ("{", "Expecting"),
    ],
)
def test_what_is_not_is_a_value_error(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        load(text)


def test_a_later_version_is_told_from_another_schema() -> None:
    check_schema({"schema": "headway.run/1"}, "headway.run/1")
    with pytest.raises(Newer, match="newer version of Headway"):
        check_schema({"schema": "headway.run/99"}, "headway.run/1")
    for other in ("headway.run/0", "headway.plan/2", "headway.run", 3, None, "x" * 1000):
        with pytest.raises(ValueError, match=r"expected headway\.run/1") as error:
            check_schema({"schema": other}, "headway.run/1")
        assert not isinstance(error.value, Newer)
