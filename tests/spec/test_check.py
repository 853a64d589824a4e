from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings

from headway.spec import run
from headway.spec.codec import apply_overrides
from headway.spec.errors import SpecError
from headway.spec.parts import GuardSpec, ObjectiveSpec, RoleSpec, StageSpec
from headway.spec.run import RunSpec, check, require
from tests.spec.strategies import of_class

# One case for every problem that a rule can name. The texts are in golden/check.txt.
CASES: list[str] = [
    "--global-batch 0",
    "--accumulate 0",
    "--samples 0",
    "--model.depth 0 --model.patch 0 --model.heads 0",
    "--mesh.dp-shard 0",
    "--optim.lr -1 --optim.clip -1 --data.workers -1 --checkpoint.every -1",
    "--seed -1",
    "--optim.beta1 1 --objective.condition-dropout -0.1",
    "--objective.shift 0",
    "--optim.final-lr 0.1 --optim.decay-samples 10",
    "--objective.schedule uniform --objective.logit-mean 1 --objective.logit-std 2",
    "--model.condition none --objective.condition-dropout 0.2",
    "--model.text-dim 8",
    "--objective.logit-std 0",
    "--optim.final-lr 2",
    "--optim.eps 0",
    "--global-batch 10 --mesh.dp-shard 2 --mesh.dp-replicate 2 --accumulate 2",
    "--global-batch 3 --mesh.dp-shard 4",
    "--mesh.tp 2 --mesh.pp 2 --mesh.cp-ring 2 --mesh.cp-ulysses 2 --mesh.ep 2",
    "--model.name unet",
    "--model.width 130",
    "--model.width 24 --model.heads 4",
    "--model.patch 3",
    "--model.condition text",
    "--model.options a=1",
    "--model.mlp-ratio 0",
    "--data.name cifar",
    "--objective.name edm",
    "--name ../up",
    "--data.options a=1 --objective.options b=2",
    "--data.name folder",
    "--data.path images",
    "--data.size 16 --model.patch 4",
    "--data.flip",
    "--precision.compute fp64",
    "--precision.reduce bf16",
    "--observe.peak h300",
    "--observe.trackers wandb,neptune",
    "--observe.profile-steps soon",
    "--observe.profile-steps 9-8",
    "--observe.profile-steps 782-783",
    "--guard.inject nowhere:5",
    "--guard.inject input:5@9-8",
    "--guard.inject input:50@20-24:rank1,launch:x",
]
SPECS: dict[str, RunSpec] = {
    "roles: two of one name": RunSpec(roles=(RoleSpec(name="old"), RoleSpec(name="old"))),
    "roles: lr": RunSpec(roles=(RoleSpec(name="old", trained=True, lr=-1e-3),), objective=ObjectiveSpec(name="mine.py:loss")),
    "roles: student": RunSpec(roles=(RoleSpec(name="student"),)),
    "stages: outside the run": RunSpec(stages=(StageSpec(at=0), StageSpec(at=100_000))),
    "stages: unknown field": RunSpec(stages=(StageSpec(at=5, set={"optim.lrr": 1}),)),
    "stages: not a stage field": RunSpec(
        stages=(StageSpec(at=5, set={"model.depth": 1, "mesh.dp_shard": 2, "stages": "x", "samples": 5}),)
    ),
    "stages: wrong type": RunSpec(stages=(StageSpec(at=5, set={"optim.lr": "fast"}),)),
    "stages: a bad value, with a good one before": RunSpec(
        stages=(StageSpec(at=5, set={"optim.lr": 1}), StageSpec(at=6, set={"optim.lr": -1}))
    ),
}  # fmt: skip


def specs() -> dict[str, RunSpec]:
    return {args: apply_overrides(RunSpec(), args.split()) for args in CASES} | SPECS


def test_problems(golden: Callable[[str, str], None]) -> None:
    blocks = []
    for title, spec in specs().items():
        problems = check(spec)
        assert problems, f"no problem found: {title}"
        blocks.append("\n".join([f"$ {title}", *(f"  - {p}" for p in problems)]))
    golden("check.txt", "\n\n".join(blocks))


def test_every_rule_speaks() -> None:
    silent = {rule.__name__ for rule in (*run._RULES, run._stages)} - {
        rule.__name__ for rule in (*run._RULES, run._stages) for spec in specs().values() if rule(spec)
    }
    assert not silent


def test_the_default_is_sound_and_comes_back() -> None:
    assert check(RunSpec()) == []
    assert require(RunSpec()) == RunSpec()


@pytest.mark.parametrize(
    "args",
    [
        "--global-batch 16 --mesh.dp-shard 2 --mesh.dp-replicate 2 --accumulate 2",
        "--data.name folder --data.path images --data.size 64 --data.channels 3 --data.flip",
        "--data.name mine.py:data --data.options a=1 --data.path somewhere --data.size 12",
        "--model.name mine.py:net --model.options a=1 --model.width 7",
        "--model.condition text --model.text-dim 8 --data.name mine.py:data",
        "--precision.compute fp64 --precision.reduce fp64",
        "--optim.decay linear --optim.final-lr 0.1 --optim.decay-samples 10",
        "--model.condition none",
        "--precision.compute bf16 --precision.reduce bf16",
        "--observe.profile-steps 20-24 --observe.peak h200 --guard.inject input:50@20-24:rank1",
    ],
)
def test_sound_settings_are_not_refused(args: str) -> None:
    assert check(apply_overrides(RunSpec(), args.split())) == []


def test_require_names_all_problems_at_once() -> None:
    spec = apply_overrides(RunSpec(), "--mesh.tp 2 --data.flip --seed -1".split())  # noqa: SIM905
    with pytest.raises(SpecError) as caught:
        require(spec, source="run.json")
    text = str(caught.value)
    assert text.startswith("run.json: the settings are not usable, 3 problems:\n  1. ")
    assert all(field in text for field in ("--mesh.tp", "--data.flip", "--seed"))


def test_suggested_batches_are_accepted() -> None:
    for batch, shard in [(10, 4), (3, 4), (13, 8)]:
        args = ["--mesh.dp-shard", str(shard), "--global-batch"]
        (problem,) = check(apply_overrides(RunSpec(), [*args, str(batch)]))
        for word in problem.rpartition("use ")[2].split(" or "):
            assert check(apply_overrides(RunSpec(), [*args, word])) == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(of_class(RunSpec))
def test_any_spec_is_answered(spec: RunSpec) -> None:
    """Whatever the values, check returns a list of sentences; it never raises."""
    assert all(isinstance(p, str) and p for p in check(spec))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(of_class(GuardSpec))
def test_injections_are_read_or_refused(guard: GuardSpec) -> None:
    spec = RunSpec(guard=guard)
    try:
        read = run.injections(spec)
    except SpecError:
        assert check(spec)
    else:
        assert len(read) == len(guard.inject)
