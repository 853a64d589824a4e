from __future__ import annotations

import dataclasses

import pytest

from headway.spec import parts
from headway.spec.codec import apply_overrides
from headway.spec.errors import SpecError
from headway.spec.field import IDENTITY, LAYOUT, STAGE, changes, walk
from headway.spec.parts import DataSpec, MeshSpec, OptimSpec, RoleSpec, StageSpec
from headway.spec.run import Injection, RunSpec, at_samples, describe, injections, profile_window, renamed, resume_changes

CLASSES = [RunSpec, *(c for n, c in vars(parts).items() if n.endswith("Spec"))]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_every_field_says_what_it_means_and_what_a_change_does(kind: type) -> None:
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    for field in dataclasses.fields(kind):
        assert field.kw_only, field.name
        assert field.metadata["kind"] in (IDENTITY, LAYOUT, STAGE), field.name
        assert len(field.metadata["doc"]) >= 4, field.name
        assert field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING, field.name


def test_describe_lists_every_leaf() -> None:
    table = describe(RunSpec())
    assert table["mesh.dp_shard"] == (1, LAYOUT, "ranks that share the parameters (FSDP)")
    assert {"seed", "optim.lr", "guard.inject", "stages", "roles"} <= set(table)
    assert not any(dataclasses.is_dataclass(value) for value, _, _ in table.values())


def test_derived_counts() -> None:
    spec = RunSpec(global_batch=24, samples=100, accumulate=2, mesh=MeshSpec(dp_replicate=2, dp_shard=3, tp=2, pp=2))
    assert (spec.steps, spec.micro_batch, spec.mesh.world, spec.mesh.data_parallel) == (5, 2, 24, 6)
    assert renamed(spec, "other") == dataclasses.replace(spec, name="other")


def test_stages_apply_in_order_from_their_sample_on() -> None:
    spec = RunSpec(
        samples=100,
        stages=(StageSpec(at=60, set={"optim.lr": 0.25}), StageSpec(at=20, set={"optim.lr": 0.5, "guard.nonfinite": "skip"})),
    )
    seen = {n: (s.optim.lr, s.guard.nonfinite) for n in (0, 19, 20, 59, 60, 100) for s in [at_samples(spec, n)]}
    assert seen == {0: (1e-3, "stop"), 19: (1e-3, "stop"), 20: (0.5, "skip"), 59: (0.5, "skip"), 60: (0.25, "skip"), 100: (0.25, "skip")}


def test_a_stage_may_use_dashes() -> None:
    spec = RunSpec(stages=(StageSpec(at=1, set={"optim.weight-decay": -0.0}),))
    assert at_samples(spec, 1).optim.weight_decay == 0


def test_resume_logs_layout_and_stage_and_refuses_identity() -> None:
    old = RunSpec(name="demo")
    new = apply_overrides(old, ["--mesh.dp-shard", "2", "--optim.lr", "0.5"])
    assert sorted(resume_changes(old, new)) == [("mesh.dp_shard", 1, 2), ("optim.lr", 1e-3, 0.5)]
    with pytest.raises(SpecError) as caught:
        resume_changes(old, apply_overrides(new, ["--seed", "5", "--model.mlp-ratio", "2"]))
    assert str(caught.value) == (
        "run demo: a resume cannot change what makes the run itself: --seed was 0, now 5; --model.mlp-ratio was 4.0, now 2.0. "
        "Set them back, give the run another --run NAME, or start over with --fresh."
    )


def test_resume_compares_roles_part_by_part() -> None:
    old = RunSpec(roles=(RoleSpec(name="old"), RoleSpec(name="new", trained=True)))
    assert resume_changes(old, dataclasses.replace(old, roles=(RoleSpec(name="old"), RoleSpec(name="new", trained=True, lr=0.5)))) == [
        ("roles[1].lr", None, 0.5)
    ]
    for roles in [(RoleSpec(name="old"),), (RoleSpec(name="old"), RoleSpec(name="new"))]:
        with pytest.raises(SpecError, match="roles"):
            resume_changes(old, dataclasses.replace(old, roles=roles))


def test_changes_of_nothing() -> None:
    assert changes(RunSpec(), RunSpec()) == []
    assert walk(DataSpec(), "data.")["data.size"][0] == 8


def test_injections() -> None:
    spec = apply_overrides(RunSpec(), ["--guard.inject", "input:50,optimizer:2.5@20-24,checkpoint:1@3-3:rank1,sync:7:rank0"])
    assert injections(spec) == [
        Injection(site="input", ms=50.0),
        Injection(site="optimizer", ms=2.5, first=20, last=24),
        Injection(site="checkpoint", ms=1.0, first=3, last=3, rank=1),
        Injection(site="sync", ms=7.0, rank=0),
    ]


@pytest.mark.parametrize("text", ["input", "input:", "input:-5", "input:5@3", "input:5:rank", "oven:5", "input:5@4-3", " input:5"])
def test_injections_that_cannot_be_read(text: str) -> None:
    spec = dataclasses.replace(RunSpec(), guard=parts.GuardSpec(inject=(text,)))
    with pytest.raises(SpecError, match=r"--guard\.inject"):
        injections(spec)


def test_profile_window() -> None:
    windows = {text: profile_window(apply_overrides(RunSpec(), [f"--observe.profile-steps={text}"])) for text in ("", "7", "7-7", "20-24")}
    assert windows == {"": None, "7": (7, 7), "7-7": (7, 7), "20-24": (20, 24)}


@pytest.mark.parametrize("text", ["a", "5-", "-5", "5-4", "5-6-7", "5 - 6"])
def test_profile_windows_that_cannot_be_read(text: str) -> None:
    with pytest.raises(SpecError, match=r"--observe\.profile-steps"):
        profile_window(apply_overrides(RunSpec(), [f"--observe.profile-steps={text}"]))


def test_specs_are_values() -> None:
    spec = RunSpec(optim=OptimSpec(lr=1.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.seed = 1  # type: ignore[misc]
    assert RunSpec() == RunSpec()
    with pytest.raises(TypeError):
        RunSpec(0)  # type: ignore[call-arg, misc]
