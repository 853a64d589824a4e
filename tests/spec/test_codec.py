from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.spec.breakdown import Breakdown
from headway.spec.codec import apply_overrides, at, decode, encode, flag_names
from headway.spec.errors import SpecError
from headway.spec.field import walk
from headway.spec.graph import OpGraph
from headway.spec.parts import DataSpec, ModelSpec, ObserveSpec, OptimSpec, RoleSpec, StageSpec
from headway.spec.run import RunSpec
from tests.spec.strategies import of_class

SPEC = RunSpec()


@pytest.mark.parametrize("kind", [RunSpec, Breakdown, OpGraph], ids=lambda k: k.__name__)
@settings(max_examples=40)
@given(data=st.data())
def test_plain_data_gives_the_spec_back(kind: type, data: st.DataObject) -> None:
    spec = data.draw(of_class(kind))
    text = json.dumps(encode(spec))
    again = decode(kind, json.loads(text))
    assert again == spec
    assert json.dumps(encode(again)) == text  # also the types: 1 stays 1, not 1.0


def as_text(value: Any) -> str:
    """A field's value as a person types it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(as_text, value))
    if isinstance(value, dict):
        return ",".join(f"{k}={as_text(v)}" for k, v in value.items())
    return str(value)


@settings(max_examples=40)
@given(of_class(RunSpec))
def test_the_command_line_can_say_every_field(spec: RunSpec) -> None:
    """Every leaf but lists of specs and free mappings (whose text "1" is a number) can be typed."""
    leaves = {n: v for n, (v, _, _) in walk(spec).items() if n not in ("roles", "stages") and not isinstance(v, dict)}
    got = apply_overrides(SPEC, [f"--{n.replace('_', '-')}={as_text(v)}" for n, v in leaves.items()])
    assert {n: v for n, (v, _, _) in walk(got).items() if n in leaves} == leaves


def test_overrides_keep_what_they_do_not_name() -> None:
    base = RunSpec(seed=7, model=ModelSpec(depth=9), optim=OptimSpec(lr=0.5, clip=2.0))
    got = apply_overrides(base, ["--optim.lr", "3e-4", "--model.width=64"])
    assert got == replace(base, model=ModelSpec(depth=9, width=64), optim=OptimSpec(lr=3e-4, clip=2.0))


def test_partial_data_keeps_the_base() -> None:
    base = RunSpec(seed=7, optim=OptimSpec(clip=2.0))
    assert decode(RunSpec, {"optim": {"lr": 1}}, base=base) == replace(base, optim=OptimSpec(lr=1.0, clip=2.0))
    assert decode(RunSpec, {"optim": {"lr": 1}}) == RunSpec(optim=OptimSpec(lr=1.0))


@pytest.mark.parametrize(
    ("args", "field", "value"),
    [
        (["--data.flip"], "data.flip", True),
        (["--data.flip", "--seed", "1"], "data.flip", True),
        (["--data.flip", "no"], "data.flip", False),
        (["--mesh.no-reshard"], "mesh.reshard", False),
        (["--no-mesh.reshard"], "mesh.reshard", False),
        (["--mesh.reshard=off"], "mesh.reshard", False),
        (["--mesh.dp-shard", "2"], "mesh.dp_shard", 2),
        (["--mesh.dp_shard", "2"], "mesh.dp_shard", 2),
        (["--samples", "20k"], "samples", 20_000),
        (["--samples", "1.5M"], "samples", 1_500_000),
        (["--samples", "4.1k"], "samples", 4_100),
        (["--samples", "4Mi"], "samples", 4 << 20),
        (["--samples", "10_000"], "samples", 10_000),
        (["--samples", "1e6"], "samples", 1_000_000),
        (["--samples", "1", "--samples", "2"], "samples", 2),
        (["--optim.lr", "-1"], "optim.lr", -1.0),
        (["--optim.lr", "3"], "optim.lr", 3.0),
        (["--data.channels", "3"], "data.channels", 3),
        (["--observe.trackers", "wandb, mlflow"], "observe.trackers", ("wandb", "mlflow")),
        (["--observe.trackers="], "observe.trackers", ()),
        (["--model.options", "a=1,b=0.5,c=true,d=text,e=1e-3"], "model.options", {"a": 1, "b": 0.5, "c": True, "d": "text", "e": 1e-3}),
        (["--data.path", "a=b,c"], "data.path", "a=b,c"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_forms_of_an_option(args: list[str], field: str, value: Any) -> None:
    got = walk(apply_overrides(SPEC, args))[field][0]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("data", "spec"),
    [
        ({"model": {"options": {"a": 1, "b": 1.0, "c": "1", "d": True, "e": "none"}}}, None),
        ({"roles": [{"name": "old", "lr": None}, {"lr": 1}]}, RunSpec(roles=(RoleSpec(name="old"), RoleSpec(lr=1.0)))),
        ({"stages": [{"at": 5, "set": {"optim.lr": 1e-4}}]}, RunSpec(stages=(StageSpec(at=5, set={"optim.lr": 1e-4}),))),
        ({"observe": {"trackers": ["wandb"]}}, RunSpec(observe=ObserveSpec(trackers=("wandb",)))),
        ({"data": {"channels": 3}}, RunSpec(data=DataSpec(channels=3))),
    ],
)  # fmt: skip
def test_forms_in_plain_data(data: dict[str, Any], spec: RunSpec | None) -> None:
    got = decode(RunSpec, data)
    if spec is None:
        assert json.dumps(encode(got)["model"]["options"]) == json.dumps(data["model"]["options"])
    else:
        assert got == spec


BAD_ARGS = [
    ["--mesh.dp-shrad", "2"],
    ["--lr", "3e-4"],
    ["--dp-shard", "2"],
    ["--zebra", "2"],
    ["--mesh", "2"],
    ["--model.options.n", "2"],
    ["stray"],
    ["--seed"],
    ["--seed", "--optim.lr", "1"],
    ["--seed", "1.5"],
    ["--seed", "9" * 30],
    ["--seed", "many"],
    ["--seed", "k"],
    ["--optim.lr", "fast"],
    ["--optim.lr", "nan"],
    ["--optim.lr", "1e999"],
    ["--data.flip=maybe"],
    ["--data.channels", "4"],
    ["--objective.schedule", "uniforn"],
    ["--model.options", "a"],
    ["--roles", "reference"],
    ["--no-seed"],
    ["--mesh.dp-shrad", "2", "--optim.lr", "fast", "stray", "--data.channels", "4"],
]
BAD_DATA: list[Any] = [
    {"mesh": {"dp_shrad": 2}},
    {"mesh": 2},
    {"seed": 1.5},
    {"seed": True},
    {"seed": None},
    {"seed": [1]},
    {"name": 3},
    {"data": {"flip": 1, "channels": True}},
    {"optim": {"lr": True}},
    {"observe": {"trackers": "wandb", "peak": ["h200"]}, "roles": [{"nmae": "old"}, 5]},
    {"model": {"options": {"a": [1]}}},
    {"model": {"options": [1]}},
    {"roles": {"name": "old"}},
    [],
]


def message(call: Callable[[], object]) -> str:
    with pytest.raises(SpecError) as caught:
        call()
    return str(caught.value)


def test_messages(golden: Callable[[str, str], None]) -> None:
    """The nearest name, what was expected, and all problems at once, on the command line and in plain data."""
    blocks = [f"$ {' '.join(args)}\n{message(lambda: apply_overrides(SPEC, args))}" for args in BAD_ARGS]  # noqa: B023
    blocks += [f"{json.dumps(data)}\n{message(lambda: decode(RunSpec, data, source='run.json'))}" for data in BAD_DATA]  # noqa: B023
    golden("codec.txt", "\n\n".join(blocks))


@given(st.sampled_from(sorted(flag_names(SPEC))), st.data())
def test_one_wrong_letter_is_answered_with_the_right_name(name: str, data: st.DataObject) -> None:
    last = name.rpartition(".")[2]
    if len(last) < 4:
        return
    at = data.draw(st.integers(len(name) - len(last), len(name) - 1))
    typo = name[:at] + "q" + name[at + 1 :]
    if typo in flag_names(SPEC):
        return
    text = message(lambda: apply_overrides(SPEC, [f"--{typo}", "1"]))
    found = re.fullmatch(rf"unknown field --{re.escape(typo.replace('_', '-'))}; did you mean --(\S+)\?", text)
    assert found, text
    assert sum(a != b for a, b in zip(found[1], typo.replace("_", "-"), strict=True)) == 1  # it, or its twin: beta1 and beta2


@settings(max_examples=300)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["--seed", "--data.flip", "--optim.lr=1", "--no-data.flip", "--", "--=", "=", "-1", "true"]),
            st.text(max_size=8),
        ),
        max_size=5,
    )
)
def test_any_words_give_a_spec_or_a_spec_error(words: list[str]) -> None:
    try:
        assert isinstance(apply_overrides(SPEC, words), RunSpec)
    except SpecError as error:
        assert error.what


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["mesh", "seed", "roles", "stages", "set", "at", "data", "flip", "x"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(["mesh", "seed", "roles", "stages", "data", "optim", "model", "name", "x"]), JSON, max_size=4))
def test_any_json_gives_a_spec_or_a_spec_error(data: dict[str, Any]) -> None:
    try:
        assert isinstance(decode(RunSpec, data), RunSpec)
    except SpecError as error:
        assert error.what


def test_a_number_that_json_lacks_is_none() -> None:
    assert encode({"a": math.nan, "b": [math.inf, 1.5], "c": 0.0}) == {"a": None, "b": [None, 1.5], "c": 0.0}


def test_a_dotted_name_finds_its_value_or_none() -> None:
    data = {"mesh": {"tp": 2, "reshard": False}, "name": "x"}
    assert [at(data, n) for n in ("mesh.tp", "mesh.reshard", "name", "mesh")] == [2, False, "x", data["mesh"]]
    assert [at(data, n) for n in ("mesh.cp", "name.tp", "none.at.all")] == [None] * 3
    assert at(None, "mesh.tp") is None and at([1], "mesh") is None
