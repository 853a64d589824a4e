"""The run folder: `runs/NAME/` with run.json, status.json, control/, events, traces, checkpoints. No torch.

A run is a folder. Small files are written atomically (temporary name, then rename), so that a reader never sees half of one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from headway.runtime import manifest
from headway.spec import record
from headway.spec.codec import decode, encode
from headway.spec.errors import RunError
from headway.spec.event import events_file
from headway.spec.info import SCHEMA, spec_and_info
from headway.spec.run import RunSpec, countable, resume_changes

RUNS = Path("runs")
_TEXTS = ("schema", "state", "host", "pid_started", "job", "error")  # of status.json; all else are numbers
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run on disk: its folder, its resolved spec, and what was found out when it started."""

    path: Path
    spec: RunSpec
    info: Mapping[str, Any] = field(default_factory=dict)


def place(name: str) -> Path:
    """The folder that `name` means: a path if it has a slash or exists as a run, else runs/NAME. Raises RunError if it means none."""
    path = Path(name)
    if not (path / "run.json").is_file() and (path.name in ("", "..") or os.path.realpath(path) == os.path.realpath(RUNS)):
        fix = "Give a name (it becomes runs/NAME), or the path of a folder of its own."
        raise RunError(f"'{name}' names no run", fix=fix)
    return path if len(path.parts) > 1 or (path / "run.json").is_file() else RUNS / name


def open_run(name: str) -> Run:
    """The run called `name` (or at that path). Raises RunError if there is none."""
    path = place(name)
    file = path / "run.json"
    if not file.is_file() and manifest.folders(path / "checkpoints"):
        fix = "Its checkpoints are there: the `headway train` command that began it writes the file anew and goes on."
        raise RunError(f"{file} does not exist", where=f"run {path}", fix=fix)
    if not file.is_file():
        others = sorted(p.parent.name for p in RUNS.glob("*/run.json"))
        known = f"Runs here: {', '.join(others)}." if others else "There is no run in ./runs yet; start one with `headway train digits`."
        raise RunError(f"no run '{name}' ({file} does not exist)", fix=known)
    try:
        told, info = spec_and_info(record.load(file.read_bytes()))
        spec = countable(decode(RunSpec, told, source=str(file)))
    except (OSError, ValueError) as error:
        fix = "Use that version." if isinstance(error, record.Newer) else "Restore it from a copy, or start again with --fresh."
        raise RunError(f"cannot read {file}: {error}", fix=fix) from error
    return Run(path=path, spec=spec, info=info)


def write_run(run: Run) -> None:
    """Write run.json."""
    write_json(run.path / "run.json", {"schema": SCHEMA, "spec": encode(run.spec), "info": encode(run.info)})


def make_folder(path: Path) -> None:
    """Create the folder of a run, and see that it can be written. Raises RunError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".write-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise RunError(
            f"cannot write to the run folder {path}: {error.strerror}",
            fix="Free space or permissions there, or choose another place with --run PATH.",
        ) from error


def compatible(path: Path, spec: RunSpec) -> list[tuple[str, Any, Any]]:
    """What a resume of the run in `path` with `spec` changes. Raises SpecError if it would be another run, RunError if it is running."""
    _refuse_live(path)
    old = open_run(str(path)).spec if (path / "run.json").is_file() else _spec_of_checkpoint(path)
    return resume_changes(dataclasses.replace(old, name=spec.name), spec) if old else []


def _spec_of_checkpoint(path: Path) -> RunSpec | None:
    """The spec that the newest checkpoint was saved under, for a run whose run.json is gone; None if none can be read."""
    for saved in reversed(manifest.folders(path / "checkpoints")):
        meta = (read_json(saved / manifest.MANIFEST) or {}).get("meta")
        if isinstance(meta, dict) and "spec" in meta:
            return countable(decode(RunSpec, meta["spec"], source=str(saved / manifest.MANIFEST)))
    return None


def _refuse_live(path: Path) -> None:
    """Raises RunError if another process runs it. An earlier life in the same Slurm job is over: the job was queued again."""
    now, job = status(path), os.environ.get("SLURM_JOB_ID")
    other = now.get("pid") not in (None, os.getpid()) and not (job and now.get("job") == job)
    if other and now["state"] in ("running", "starting"):
        raise RunError(
            f"it is running already (process {now.get('pid')} on {now.get('host')})",
            where=f"run {path.name}",
            fix=f"Stop it first: headway stop {path}",
        )


def set_aside(path: Path) -> Path | None:
    """Move an old run out of the way (NAME.1, NAME.2, ...); nothing is deleted. Returns where it went. Raises RunError if it is running."""
    if not path.exists():
        return None
    _refuse_live(path)
    for n in range(1, 10_000):
        other = path.with_name(f"{path.name}.{n}")
        if not other.exists():
            path.rename(other)
            return other
    raise RunError(f"too many old runs beside {path}", fix="Delete some of them.")


def write_json(path: Path, data: Any) -> None:
    """Write `data` as JSON: all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(data, indent=1, default=str) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`; None if it is not there, torn or no object."""
    try:
        data = record.load(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def read_events(path: Path, rank: int = 0) -> Iterator[dict[str, Any]]:
    """The events of one rank; lines that are torn (a killed process) are left out."""
    file = path / events_file(rank)
    if not file.is_file():
        return
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row = record.load(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row


# ---- control: what a user asks of a live run ----


def ask(path: Path, what: str, **fields: Any) -> Path:
    """Ask a live run for `what` (stop, profile); the run takes it up at its next log line and removes the file."""
    file = path / "control" / f"{what}.json"
    write_json(file, {"time_ns": time.time_ns(), **fields})
    return file


def asked(path: Path, what: str) -> dict[str, Any] | None:
    """What was asked, or None."""
    file = path / "control" / f"{what}.json"
    return read_json(file) if file.exists() else None


def answered(path: Path, what: str) -> None:
    """Take a request away once it is carried out."""
    (path / "control" / f"{what}.json").unlink(missing_ok=True)


def status(path: Path) -> dict[str, Any]:
    """status.json with the state corrected: a run whose process is gone, or silent for long, is dead. What makes no sense is left out."""
    told = read_json(path / "status.json") or {}
    data: dict[str, Any] = {"state": "starting"} | {k: v for k, v in told.items() if _sound(k, v)}
    data["age_s"] = round(time.time() - data.get("time_ns", time.time_ns()) / 1e9, 1)
    if data["state"] in ("running", "starting") and not _alive(data):
        data["state"] = "dead"
    return data


def _sound(name: str, value: Any) -> bool:
    """Whether a field of status.json holds what it should: text, or a number that can be counted with."""
    return isinstance(value, str) if name in _TEXTS else isinstance(value, (int, float)) and abs(value) < 1 << 63


def ended(path: Path) -> bool:
    """Whether nothing more can come of a run."""
    return bool(status(path)["state"] not in ("running", "starting"))


def require_live(path: Path) -> None:
    """Raises RunError if the run is not running."""
    state = status(path)["state"]
    if state != "running":
        raise RunError(f"it is not running (state: {state})", where=f"run {path}", fix="Start it with `headway train`.")


def new_traces(path: Path, before: set[Path], world: int) -> list[Path]:
    """Traces that were not there before, once every rank has written its own."""
    files = sorted(set((path / "traces").glob("*.json.gz")) - before)
    return files if len(files) >= world else []


def _alive(data: Mapping[str, Any]) -> bool:
    if "host" not in data or "time_ns" not in data:
        return False
    if data["host"] != os.uname().nodename:
        return float(data.get("age_s", 0.0)) < 20 * max(30.0, float(data.get("period_s", 30.0)))
    try:
        os.kill(int(data["pid"]), 0)
    except PermissionError:
        return True
    except (KeyError, ValueError, OSError):
        return False
    started = _started(int(data["pid"]))
    return bool(started == data.get("pid_started", started))


def _started(pid: int) -> str:
    """When a process started, to tell a reused process id; "dead" if it only waits to be reaped (Linux; empty elsewhere)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "dead" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


def identity() -> dict[str, Any]:
    """Who writes status.json: process, host, when the process started, and the Slurm job."""
    job = {"job": os.environ["SLURM_JOB_ID"]} if "SLURM_JOB_ID" in os.environ else {}
    return {"pid": os.getpid(), "host": os.uname().nodename, "pid_started": _started(os.getpid()), **job}


def summary(run: Run) -> dict[str, Any]:
    """Where a run stands, for people: its status with the last checkpoint and the last warning."""
    data = {"name": run.spec.name, "steps": run.spec.steps, "total_samples": run.spec.last_sample} | status(run.path)
    if "left_s" in data:
        data["time_left_s"] = data.pop("left_s")
    saved = manifest.folders(run.path / "checkpoints")
    data["last_checkpoint"] = saved[-1].name if saved else None
    warnings = [(e["text"], e["time_ns"]) for e in read_events(run.path) if e.get("kind") == "warning" and _said(e)]
    data["last_warning"] = {"text": warnings[-1][0], "age_s": time.time() - warnings[-1][1] / 1e9} if warnings else None
    return data


def _said(event: Mapping[str, Any]) -> bool:
    return isinstance(event.get("text"), str) and isinstance(event.get("time_ns"), int)


def wait_for(ready: Callable[[], T], timeout_s: float, over: Callable[[], bool] = lambda: False) -> T:
    """What `ready` answers as soon as it is true, or when time is up, or when nothing more can come."""
    end = time.monotonic() + timeout_s
    while True:
        answer, last = ready(), over() or time.monotonic() > end
        if answer or last:
            return answer if answer else ready()
        time.sleep(0.2)
