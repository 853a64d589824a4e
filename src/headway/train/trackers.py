"""Trackers: TensorBoard, Weights & Biases (offline unless told otherwise), MLflow. Each is imported here and nowhere else.

A run that is resumed goes on in the same run of the tracker.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from headway.spec.codec import encode
from headway.spec.errors import RunError
from headway.spec.run import RunSpec, describe


class Tracker(Protocol):
    """Someone who hears of every log line."""

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """Take the scalars of a step."""

    def close(self) -> None:
        """Write what is left."""


class TensorBoard:
    """Event files under runs/NAME/tensorboard."""

    def __init__(self, path: Path, spec: RunSpec) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard") from error
        self._writer = SummaryWriter(str(path / "tensorboard"))
        self._writer.add_text("spec", "\n".join(f"    {n} = {v[0]}" for n, v in describe(spec).items()))

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """Take the scalars of a step."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class Wandb:
    """A W&B run under runs/NAME/wandb; offline unless WANDB_MODE says otherwise."""

    def __init__(self, path: Path, spec: RunSpec) -> None:
        try:
            import wandb
        except ImportError as error:
            raise _missing("wandb") from error
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        known = _known(path, "wandb") or _keep(path, "wandb", secrets.token_hex(8))
        self._run = wandb.init(project="headway", name=spec.name, dir=str(path), config=encode(spec), mode=mode, id=known, resume="allow")

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """Take the scalars of a step."""
        self._run.log(dict(scalars), step=step)

    def close(self) -> None:
        """Write what is left."""
        self._run.finish()


class MLflow:
    """An MLflow run under runs/NAME/mlflow, or at MLFLOW_TRACKING_URI."""

    def __init__(self, path: Path, spec: RunSpec) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise _missing("mlflow") from error
        if "MLFLOW_TRACKING_URI" not in os.environ:
            (path / "mlflow").mkdir(exist_ok=True)
            mlflow.set_tracking_uri(f"sqlite:///{(path / 'mlflow' / 'mlflow.db').resolve()}")
        mlflow.set_experiment("headway")
        if known := _known(path, "mlflow"):
            mlflow.start_run(run_id=known)
        else:
            _keep(path, "mlflow", mlflow.start_run(run_name=spec.name).info.run_id)
            mlflow.log_params({n: str(v[0])[:250] for n, v in describe(spec).items()})  # once: it refuses a changed one
        self._mlflow = mlflow

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """Take the scalars of a step."""
        self._mlflow.log_metrics(dict(scalars), step=step)

    def close(self) -> None:
        """Write what is left."""
        self._mlflow.end_run()


_KINDS: dict[str, Callable[[Path, RunSpec], Tracker]] = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": MLflow}


class Sheltered:
    """A tracker whose errors do not end the run: the first is told, and then it hears no more."""

    def __init__(self, name: str, tracker: Tracker, tell: Callable[[str, str], None]) -> None:
        self._name, self._tracker, self._tell = name, tracker, tell
        self._failed = False

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """Take the scalars of a step."""
        self._try(lambda: self._tracker.log(scalars, step))

    def close(self) -> None:
        """Write what is left."""
        self._try(self._tracker.close)

    def _try(self, action: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            action()
        except Exception as error:  # whatever a package of others raises, the training is worth more than its curve
            self._failed = True
            self._tell("warning", f"tracker {self._name} failed and hears no more: {type(error).__name__}: {error}")


def open_trackers(path: Path, spec: RunSpec, tell: Callable[[str, str], None]) -> list[Tracker]:
    """The trackers of `observe.trackers`. Raises RunError if one is not installed."""
    return [Sheltered(name, _KINDS[name](path, spec), tell) for name in spec.observe.trackers]


def _known(path: Path, name: str) -> str:
    """The id under which the tracker has the earlier lives of this run; "" for a new one."""
    file = path / f"{name}.id"
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def _keep(path: Path, name: str, known: str) -> str:
    (path / f"{name}.id").write_text(known + "\n", encoding="utf-8")
    return known


def _missing(name: str) -> RunError:
    return RunError(f"--observe.trackers {name}: the package {name} is not installed", fix=f"pip install {name}")
