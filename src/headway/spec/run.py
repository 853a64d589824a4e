"""A run: everything that makes one training run what it is.

A recipe is a function that returns a `RunSpec`; the command line overrides fields; the resolved spec is written to `run.json`, which is
accepted back in place of a recipe. `check` finds all problems at once without torch.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headway.spec import hardware
from headway.spec.codec import apply_overrides, flag_names, unknown
from headway.spec.errors import SpecError, joined
from headway.spec.field import IDENTITY, STAGE, changes, identity, layout, stage, walk
from headway.spec.parts import (
    CheckpointSpec,
    DataSpec,
    EmaSpec,
    EncoderSpec,
    GuardSpec,
    MeshSpec,
    ModelSpec,
    ObjectiveSpec,
    ObserveSpec,
    OptimSpec,
    PrecisionSpec,
    RematSpec,
    RoleSpec,
    StageSpec,
)

INJECT_SITES = ("input", "forward", "backward", "reduce", "clip", "optimizer", "ema", "checkpoint", "sync")
_INJECT = re.compile(r"(?P<site>[a-z]+):(?P<ms>\d+(\.\d+)?)(@(?P<first>\d+)-(?P<last>\d+))?(:rank(?P<rank>\d+))?")
_NOT_YET = {  # knob honesty: degrees that no network here implements are refused, not ignored
    "pp": "pipeline parallelism",
    "cp_ring": "ring context parallelism",
    "cp_ulysses": "Ulysses context parallelism",
    "tp": "tensor parallelism",
    "ep": "expert parallelism",
}


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run."""

    name: str = layout("run", "run name; the run is the folder runs/NAME")
    seed: int = identity(0, "seed of every draw and of the data order")
    global_batch: int = identity(128, "samples of one optimizer step, over all ranks")
    accumulate: int = layout(1, "micro-batches of a step on each rank")
    samples: int = stage(100_000, "duration: samples seen at the end")
    stages: tuple[StageSpec, ...] = stage((), "later stages (in a recipe or run.json)")
    model: ModelSpec = identity(ModelSpec, "network")
    roles: tuple[RoleSpec, ...] = identity((), "networks beside the student (in a recipe or run.json)")
    data: DataSpec = identity(DataSpec, "data")
    objective: ObjectiveSpec = identity(ObjectiveSpec, "loss")
    encoders: EncoderSpec = identity(EncoderSpec, "frozen encoders")
    mesh: MeshSpec = layout(MeshSpec, "parallel layout")
    precision: PrecisionSpec = identity(PrecisionSpec, "number formats")
    remat: RematSpec = layout(RematSpec, "activation checkpointing")
    optim: OptimSpec = identity(OptimSpec, "optimizer")
    ema: EmaSpec = identity(EmaSpec, "weight average")
    checkpoint: CheckpointSpec = layout(CheckpointSpec, "checkpoints")
    observe: ObserveSpec = layout(ObserveSpec, "measurement")
    guard: GuardSpec = layout(GuardSpec, "faults")

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run: samples / global_batch, rounded up."""
        return -(-self.samples // self.global_batch)

    @property
    def last_sample(self) -> int:
        """Samples seen at the end of the last step: `samples` rounded up to whole batches."""
        return self.steps * self.global_batch

    @property
    def micro_batch(self) -> int:
        """Samples of one forward pass on one rank."""
        return self.global_batch // (self.mesh.data_parallel * self.accumulate)


@dataclass(frozen=True, kw_only=True)
class Injection:
    """A planted delay: `ms` milliseconds in the phase `site`, steps [first, last] of `rank` (None: all ranks).

    The site sync is a blocking wait in the forward.
    """

    site: str
    ms: float
    first: int = 0
    last: int = 1 << 62
    rank: int | None = None


def check(spec: RunSpec) -> list[str]:
    """Every problem of `spec`, each naming its field and the fix; an empty list means that it can start."""
    return [p for rule in (*_RULES, _stages) for p in rule(spec)]


def countable(spec: RunSpec) -> RunSpec:
    """`spec` itself, as it was read. Raises ValueError if a count in it is none, so that steps and batches cannot be counted."""
    if problems := _positive(spec):
        raise ValueError(joined(problems))
    return spec


def require(spec: RunSpec, *, source: str = "") -> RunSpec:
    """`spec` itself. Raises SpecError with all problems of `check`."""
    if problems := check(spec):
        raise SpecError(joined(problems), where=source)
    return spec


def at_samples(spec: RunSpec, seen: int) -> RunSpec:
    """`spec` as it is after `seen` samples: the stages that have begun are applied in order."""
    for part in sorted(spec.stages, key=lambda s: s.at):
        if part.at <= seen:
            spec = apply_overrides(spec, [f"--{name}={value}" for name, value in part.set.items()])
    return spec


def resume_changes(old: RunSpec, new: RunSpec) -> list[tuple[str, Any, Any]]:
    """What a resume changes, to be logged: (field, old, new). Raises SpecError if an identity field differs."""
    differ = changes(old, new)
    refused = [(n, a, b) for n, kind, a, b in differ if kind == IDENTITY]
    if refused:
        rows = "; ".join(f"--{n.replace('_', '-')} was {a!r}, now {b!r}" for n, a, b in refused)
        fix = "Set them back, give the run another --run NAME, or start over with --fresh."
        raise SpecError(f"a resume cannot change what makes the run itself: {rows}", where=f"run {old.name}", fix=fix)
    return [(n, a, b) for n, _, a, b in differ]


def injections(spec: RunSpec) -> list[Injection]:
    """The planted delays of `guard.inject`. Raises SpecError if one cannot be read."""
    return [_injection(text) for text in spec.guard.inject]


def _injection(text: str) -> Injection:
    m = _INJECT.fullmatch(text)
    if not m or m["site"] not in INJECT_SITES:
        raise SpecError(
            f"--guard.inject: cannot read '{text}'",
            fix=f"Write SITE:MS[@A-B][:rankR], e.g. input:50@20-24:rank1; sites: {', '.join(INJECT_SITES)}",
        )
    first, last = (int(m["first"]), int(m["last"])) if m["first"] else (0, 1 << 62)
    if last < first:
        raise SpecError(f"--guard.inject: '{text}' ends before it begins", fix="Write the first step, then the last: @20-24.")
    rank = int(m["rank"]) if m["rank"] else None
    return Injection(site=m["site"], ms=float(m["ms"]), first=first, last=last, rank=rank)


def profile_window(spec: RunSpec) -> tuple[int, int] | None:
    """First and last step of `observe.profile_steps`, inclusive; None if there is no window. Raises SpecError."""
    text = spec.observe.profile_steps
    if not text:
        return None
    if text == "auto":  # past the warm-up where the run is long enough
        first = min(20, max(0, spec.steps - 5)) if spec.global_batch >= 1 else 0
        return first, first + 4
    m = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if not m or (m[2] and int(m[2]) < int(m[1])):
        raise SpecError(
            f"--observe.profile-steps: cannot read '{text}'", fix='Write the first and the last step (20-24), auto, or nothing ("").'
        )
    return int(m[1]), int(m[2] or m[1])


# ---- rules: each takes the spec and yields problems ----


_AT_LEAST_ONE = (
    "global_batch", "accumulate", "samples", "model.depth", "model.width", "model.heads", "model.patch", "data.size", "data.window",
    "data.prefetch", "checkpoint.keep", "observe.log_every", "observe.timestep_bins", "mesh.pp", "mesh.dp_replicate", "mesh.dp_shard",
    "mesh.cp_ring", "mesh.cp_ulysses", "mesh.tp", "mesh.ep",
)  # fmt: skip
_NOT_NEGATIVE = (
    "data.workers", "optim.lr", "optim.weight_decay", "optim.warmup", "optim.decay_samples", "optim.clip", "ema.half_life",
    "checkpoint.every",
)  # fmt: skip
_MOST_BINS = 1000  # of the timestep: more have no sample in most steps


def _positive(spec: RunSpec) -> list[str]:
    leaves = walk(spec)
    out = [f"--{_flag(n)} must be at least 1, got {leaves[n][0]}" for n in _AT_LEAST_ONE if not leaves[n][0] >= 1]
    out += [f"--{_flag(n)} must not be negative, got {leaves[n][0]}" for n in _NOT_NEGATIVE if not leaves[n][0] >= 0]
    out += [f"role '{r.name}': lr must not be negative, got {r.lr}" for r in spec.roles if r.lr is not None and not r.lr >= 0]
    if not 0 <= spec.seed < 1 << 63:
        out.append(f"--seed must be in [0, 2**63), got {spec.seed}")
    return out


def _ranges(spec: RunSpec) -> list[str]:
    out = []
    for name in ("optim.beta1", "optim.beta2", "objective.condition_dropout"):
        value = walk(spec)[name][0]
        if not 0 <= value < 1:
            out.append(f"--{_flag(name)} must be in [0, 1), got {value}")
    if not spec.objective.shift > 0:
        out.append(f"--objective.shift must be above 0, got {spec.objective.shift}")
    if not spec.objective.logit_std > 0:
        out.append(f"--objective.logit-std must be above 0, got {spec.objective.logit_std}")
    if not 0 <= spec.optim.final_lr <= 1:
        out.append(f"--optim.final-lr is a share of lr in [0, 1], got {spec.optim.final_lr}")
    if spec.observe.timestep_bins > _MOST_BINS:
        out.append(f"--observe.timestep-bins must be at most {_MOST_BINS}, got {spec.observe.timestep_bins}")
    if not spec.optim.eps > 0:
        out.append(f"--optim.eps must be above 0, got {spec.optim.eps}")
    return out


def _batch(spec: RunSpec) -> list[str]:
    parts = spec.mesh.data_parallel * spec.accumulate
    if parts >= 1 and spec.global_batch % parts:
        up = -(-spec.global_batch // parts) * parts
        down = max(parts, up - parts)
        return [
            f"--global-batch {spec.global_batch} does not divide by mesh.dp-replicate x mesh.dp-shard x accumulate = "
            f"{spec.mesh.dp_replicate} x {spec.mesh.dp_shard} x {spec.accumulate} = {parts}; "
            f"use {down if down == up else f'{down} or {up}'}"
        ]
    return []


def _mesh(spec: RunSpec) -> list[str]:
    return [
        f"--mesh.{_flag(axis)} {getattr(spec.mesh, axis)}: {what} is not implemented for network '{spec.model.name}'; set it to 1"
        for axis, what in _NOT_YET.items()
        if getattr(spec.mesh, axis) > 1
    ]


def _model(spec: RunSpec) -> list[str]:
    m = spec.model
    if m.name != "dit":
        return [] if ":" in m.name else [f"--model.name '{m.name}' is not known; use dit, or your own as path.py:fn"]
    out = []
    if m.heads >= 1 and m.width % m.heads:
        out.append(f"--model.width {m.width} does not divide by --model.heads {m.heads}")
    elif m.heads >= 1 and (m.width // m.heads) % 4:
        out.append(f"--model.width {m.width} / --model.heads {m.heads} must be a multiple of 4 (2-D rotary positions)")
    if m.patch >= 1 and spec.data.size % m.patch:
        out.append(f"--data.size {spec.data.size} does not divide by --model.patch {m.patch}")
    if m.condition == "text" and m.text_dim < 1:
        out.append("--model.text-dim must be at least 1 when --model.condition is text")
    if m.options:
        out.append(f"--model.options are for your own network; dit has none ({', '.join(m.options)})")
    if m.mlp_ratio * m.width < 1:
        out.append(f"--model.mlp-ratio {m.mlp_ratio} leaves no hidden channel")
    return out


def _names(spec: RunSpec) -> list[str]:
    out = []
    for field, name, known in (("data", spec.data.name, ("digits", "folder")), ("objective", spec.objective.name, ("flow",))):
        if name not in known and ":" not in name:
            out.append(f"--{field}.name '{name}' is not known; use {' or '.join(known)}, or your own as path.py:fn")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", spec.name):
        out.append(f"--name '{spec.name}' must be letters, digits, '.', '_' or '-' (it names a folder)")
    for field, where, known in (("data", spec.data, ("digits", "folder")), ("objective", spec.objective, ("flow",))):
        if where.options and where.name in known:
            out.append(f"--{field}.options are for your own {field}; '{where.name}' has none ({', '.join(where.options)})")
    roles = [r.name for r in spec.roles]
    out += [f"role '{r}' is named twice" for r in sorted({r for r in roles if roles.count(r) > 1})]
    out += ["role 'student' is the model itself; name the other role otherwise"] * ("student" in roles)
    if spec.roles and ":" not in spec.objective.name:
        out.append(f"objective '{spec.objective.name}' uses no role beside the student; drop roles {roles}")
    return out


def _data(spec: RunSpec) -> list[str]:
    d = spec.data
    if d.name == "folder" and not d.path:
        return ["--data.path is needed: the folder that holds the images"]
    if d.name != "folder" and d.path and ":" not in d.name:
        return [f"--data.path is for --data.name folder; '{d.name}' reads no folder"]
    if d.name == "digits" and (d.size, d.channels) != (8, 1):
        return [f"digits are 8 x 8 grey: set --data.size 8 --data.channels 1 (got {d.size}, {d.channels})"]
    if d.name in ("digits", "folder") and spec.model.condition == "text":
        return [f"--model.condition text needs a data set with text vectors; '{d.name}' has none: bring your own as --data.name path.py:fn"]
    if d.name == "digits" and d.flip:
        return ["--data.flip makes other digits of digits; leave it off"]
    return []


def _precision(spec: RunSpec) -> list[str]:
    p = spec.precision
    if (p.compute == "fp64") != (p.reduce == "fp64"):
        return ["--precision.compute and --precision.reduce are fp64 together or not at all"]
    if p.compute == "fp32" and p.reduce == "bf16":
        return ["--precision.reduce bf16 needs --precision.compute bf16"]
    return []


# A field that acts only together with another: (field, whether it acts, what makes it act).
_ACTS: tuple[tuple[str, Callable[[RunSpec], bool], str], ...] = (
    ("optim.final_lr", lambda s: s.optim.decay != "constant", "--optim.decay cosine or linear"),
    ("optim.decay_samples", lambda s: s.optim.decay != "constant", "--optim.decay cosine or linear"),
    ("objective.logit_mean", lambda s: s.objective.schedule == "logit_normal", "--objective.schedule logit_normal"),
    ("objective.logit_std", lambda s: s.objective.schedule == "logit_normal", "--objective.schedule logit_normal"),
    ("objective.condition_dropout", lambda s: s.model.condition != "none" or ":" in s.model.name, "--model.condition class or text"),
    ("model.text_dim", lambda s: s.model.condition == "text" or ":" in s.model.name, "--model.condition text"),
)


def _unused(spec: RunSpec) -> list[str]:
    leaves, plain = walk(spec), walk(RunSpec())
    return [
        f"--{_flag(name)} {leaves[name][0]} would change nothing: it needs {need}; or set it back to {plain[name][0]}"
        for name, acts, need in _ACTS
        if leaves[name][0] != plain[name][0] and not acts(spec)
    ]


def _observe(spec: RunSpec) -> list[str]:
    out = []
    o = spec.observe
    if o.peak != "measured" and o.peak not in hardware.DEVICES:
        out.append(f"--observe.peak '{o.peak}' is not known; use measured or one of {', '.join(hardware.DEVICES)}")
    out += [
        f"--observe.trackers '{t}' is not known; use tensorboard, wandb or mlflow"
        for t in o.trackers
        if t not in ("tensorboard", "wandb", "mlflow")
    ]
    for read in (profile_window, injections):
        try:
            read(spec)
        except SpecError as error:
            out.append(str(error))
    if not out and (window := profile_window(spec)) and min(spec.global_batch, spec.samples) >= 1 and window[0] >= spec.steps:
        out.append(
            f"--observe.profile-steps {o.profile_steps} lies after the last step of the run ({spec.steps - 1}, the first is 0); use auto"
        )
    return out


def _stages(spec: RunSpec) -> list[str]:
    out = []
    kinds = {n: kind for n, (_, kind, _) in walk(spec).items()}
    names = flag_names(spec)
    for i, part in enumerate(spec.stages):
        if not 0 < part.at < spec.samples:
            out.append(f"stages[{i}].at {part.at} must lie inside the run (0 < at < samples = {spec.samples})")
        for key in part.set:
            name = key.replace("-", "_")
            if name not in names:
                out.append(f"stages[{i}]: {unknown(name, names)}")
            elif name in ("samples", "stages"):
                out.append(f"stages[{i}]: {name} belongs to the whole run; set it once, outside of the stages")
            elif kinds[name] != STAGE:
                out.append(f"stages[{i}]: {name} is {kinds[name]}; only stage fields may change during a run")
    if out:
        return out
    own = {p for rule in _RULES for p in rule(spec)}
    for i, part in enumerate(spec.stages):
        try:
            later = at_samples(spec, part.at)
        except SpecError as error:
            out.append(f"stages[{i}]: {error}")
        else:
            out += [f"stages[{i}]: {p}" for rule in _RULES for p in rule(later) if p not in own]
    return out


_RULES = (_positive, _ranges, _batch, _mesh, _model, _names, _data, _precision, _unused, _observe)  # of one moment of the run


def _flag(name: str) -> str:
    return name.replace("_", "-")


def describe(spec: RunSpec) -> Mapping[str, tuple[Any, str, str]]:
    """Every field as (value, kind, doc), for `--help`."""
    return walk(spec)


def renamed(spec: RunSpec, name: str) -> RunSpec:
    """`spec` under another run name."""
    return dataclasses.replace(spec, name=name)
