"""The parts of a run: model, roles, data, objective, mesh, precision, optimizer and so on, one frozen dataclass each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from headway.spec.field import identity, layout, stage

Value = str | float | int | bool
MESH_AXES: Final = ("pp", "dp_replicate", "dp_shard", "cp_ring", "cp_ulysses", "tp")  # outermost first: neighbours talk most


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The network. `name` is a network of ours (dit) or your own: path.py:fn or pkg.mod:fn."""

    name: str = identity("dit", "network: dit, or your own as path.py:fn or pkg.mod:fn")
    depth: int = identity(4, "number of blocks")
    width: int = identity(128, "channels of a token")
    heads: int = identity(4, "attention heads")
    patch: int = identity(2, "patch edge in pixels (or latents)")
    mlp_ratio: float = identity(4.0, "hidden channels of the feed-forward over width")
    condition: Literal["class", "text", "none"] = identity("class", "what the network is told: class, text or none")
    text_dim: int = identity(0, "channels of a text vector (condition = text)")
    init: Literal["zero", "perturbed"] = identity(
        "zero", "zero: AdaLN-zero; perturbed: small random values in the zero layers, so that every gradient is non-zero"
    )
    options: Mapping[str, Value] = identity(dict, "settings of your own network, key=value")


@dataclass(frozen=True, kw_only=True)
class RoleSpec:
    """A network beside the student: its name in the objective, where it starts from, whether it is trained."""

    name: str = identity("reference", "name under which the objective gets it")
    init: str = identity("student", "student: a copy of the student's start; or a run folder to load EMA weights from")
    trained: bool = identity(False, "trained with an optimizer of its own, or frozen")
    lr: float | None = stage(None, "peak learning rate of this role; none: optim.lr")


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """The data set and how a sample is read."""

    name: str = identity("digits", "data set: digits, folder, or your own as path.py:fn or pkg.mod:fn")
    path: str = layout("", "folder of images (data.name = folder)")
    size: int = identity(8, "edge of a square sample in pixels")
    channels: Literal[1, 3] = identity(1, "1 grey, 3 colour")
    crop: Literal["center", "random"] = identity("center", "how an image that is not square is cut")
    flip: bool = identity(False, "mirror half of the visits")
    broken: Literal["skip", "refuse"] = identity("skip", "an unreadable image: skip (named, counted) or refuse to start")
    window: int = identity(8192, "samples of one window of the global order")
    workers: int = layout(0, "threads that decode ahead; 0: in the training thread")
    prefetch: int = layout(2, "batches decoded ahead a worker set holds at most")
    options: Mapping[str, Value] = identity(dict, "settings of your own data set, key=value")


@dataclass(frozen=True, kw_only=True)
class ObjectiveSpec:
    """The loss. `name` is an objective of ours or your own."""

    name: str = identity("flow", "objective: flow (flow matching), or your own as path.py:fn or pkg.mod:fn")
    schedule: Literal["uniform", "logit_normal"] = identity("logit_normal", "distribution of timesteps")
    logit_mean: float = identity(0.0, "mean of logit-normal timesteps")
    logit_std: float = identity(1.0, "standard deviation of logit-normal timesteps")
    shift: float = identity(1.0, "resolution shift s: t -> s t / (1 + (s - 1) t)")
    condition_dropout: float = identity(0.1, "share of samples trained without their condition (for guidance)")
    options: Mapping[str, Value] = identity(dict, "settings of your own objective, key=value")


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """Frozen encoders in front of the network."""

    image: Literal["pixels"] = identity("pixels", "what the network sees: pixels")
    text: Literal["none"] = identity("none", "text encoder: none")


@dataclass(frozen=True, kw_only=True)
class MeshSpec:
    """How ranks are laid out. The product of all axes is the number of processes."""

    pp: int = layout(1, "pipeline stages")
    dp_replicate: int = layout(1, "replicas of the sharded model (HSDP)")
    dp_shard: int = layout(1, "ranks that share the parameters (FSDP)")
    cp_ring: int = layout(1, "ring context-parallel ranks")
    cp_ulysses: int = layout(1, "Ulysses context-parallel ranks")
    tp: int = layout(1, "tensor-parallel ranks")
    ep: int = layout(1, "expert-parallel ranks, folded over the data axes")
    reshard: bool = layout(True, "free gathered parameters after the forward (FSDP reshard_after_forward)")
    backend: Literal["auto", "gloo", "nccl"] = layout("auto", "auto: nccl on GPUs, gloo on CPUs")

    @property
    def world(self) -> int:
        """Number of processes."""
        return self.pp * self.data_parallel * self.cp_ring * self.cp_ulysses * self.tp

    @property
    def data_parallel(self) -> int:
        """Ranks that read different samples."""
        return self.dp_replicate * self.dp_shard

    @property
    def used(self) -> dict[str, int]:
        """Axes of more than one rank, outermost first."""
        return {axis: n for axis in MESH_AXES if (n := getattr(self, axis)) > 1}

    def __str__(self) -> str:
        return " x ".join(f"{axis} {n}" for axis, n in self.used.items()) or "1 process"


@dataclass(frozen=True, kw_only=True)
class PrecisionSpec:
    """Number formats."""

    compute: Literal["fp32", "bf16", "fp64"] = identity("fp32", "forward and backward; master weights stay fp32 (fp64 in fp64)")
    reduce: Literal["fp32", "bf16", "fp64"] = identity("fp32", "gradient reduction over ranks (fp64 follows compute)")


@dataclass(frozen=True, kw_only=True)
class RematSpec:
    """Activation checkpointing."""

    mode: Literal["none", "full"] = layout("none", "none: keep all; full: recompute each block in the backward")


@dataclass(frozen=True, kw_only=True)
class OptimSpec:
    """AdamW and its schedule; times are in samples."""

    lr: float = stage(1e-3, "peak learning rate")
    beta1: float = identity(0.9, "AdamW beta 1")
    beta2: float = identity(0.99, "AdamW beta 2")
    eps: float = identity(1e-8, "AdamW epsilon")
    weight_decay: float = stage(0.01, "decay of matrices; vectors, norms and embeddings are never decayed")
    warmup: int = stage(0, "samples of linear warm-up")
    decay: Literal["constant", "cosine", "linear"] = stage("constant", "shape after the warm-up")
    decay_samples: int = stage(0, "samples over which it decays, at the end of the run; 0: all after the warm-up")
    final_lr: float = stage(0.0, "learning rate at the end, as a share of lr")
    clip: float = stage(1.0, "largest gradient norm; 0: no clipping")


@dataclass(frozen=True, kw_only=True)
class EmaSpec:
    """Exponential moving average of the student."""

    half_life: int = identity(2000, "samples after which a weight counts half; 0: no EMA")


@dataclass(frozen=True, kw_only=True)
class CheckpointSpec:
    """When to save and what to keep; times are in samples."""

    every: int = layout(0, "samples between checkpoints; 0: only at the end")
    keep: int = layout(2, "newest checkpoints kept")
    blocking: bool = layout(False, "wait for each save instead of writing beside the training")


@dataclass(frozen=True, kw_only=True)
class ObserveSpec:
    """What is measured and who hears of it."""

    log_every: int = layout(10, "steps between log lines (one flush of scalars); fewer where these would take more than 10 s")
    profile_steps: str = layout("", "steps to trace on every rank: A-B inclusive (20-24), or auto: 20-24, the last five of a shorter run")
    capture: bool = layout(True, "trace a few steps by itself when steps become slower and stay so")
    timestep_bins: int = layout(4, "bins of t for the loss")
    peak: str = layout("measured", "peak FLOP/s for MFU: measured, or a device of spec/hardware.py (h200)")
    trackers: tuple[str, ...] = layout((), "tensorboard, wandb, mlflow")
    progress: Literal["auto", "bar", "lines", "none"] = layout("auto", "progress: auto = a bar on a terminal, else lines")
    nvtx: bool = layout(True, "NVTX ranges beside record_function ones (CUDA only)")


@dataclass(frozen=True, kw_only=True)
class GuardSpec:
    """What happens when something is wrong."""

    nonfinite: Literal["stop", "skip", "off"] = stage(
        "stop", "a loss or gradient that is not finite: stop the run, skip the step's update, or do not look"
    )
    trail: bool = layout(False, "write a hash of every step's draws to the events (debugging: who drew what on which layout)")
    inject: tuple[str, ...] = layout(
        (), "delays on purpose, SITE:MS[@A-B][:rankR], e.g. input:50@20-24:rank1; a site is a phase of the step, or sync"
    )


@dataclass(frozen=True, kw_only=True)
class StageSpec:
    """A later stage of the run: from `at` samples on, the named stage fields have other values."""

    at: int = stage(0, "samples seen when the stage begins")
    set: Mapping[str, Value] = stage(dict, "stage fields and their new values, e.g. optim.lr=1e-4")
