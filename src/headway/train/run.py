"""A run from its spec to its end, on one rank: folder, data, resume, networks, loop, last words."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import torch

from headway.data.dataset import Dataset
from headway.data.loader import Loader
from headway.data.registry import open_data
from headway.parallel.mesh import build_mesh
from headway.report.progress import Progress
from headway.runtime import build, ceilings, fits, flops, folder, graph, launch, lock, manifest, peak, ranges
from headway.runtime.checkpoint import Checkpoints
from headway.runtime.folder import Run
from headway.runtime.launch import Place
from headway.runtime.manifest import Found
from headway.spec.codec import encode
from headway.spec.errors import RunError
from headway.spec.event import SCHEMA, events_file
from headway.spec.graph import OpGraph, to_json
from headway.spec.parts import RoleSpec
from headway.spec.run import RunSpec, injections
from headway.trace.emit import Emitter
from headway.train import inject
from headway.train.guard import Guard
from headway.train.hooks import Home, Profile, Save, Stages
from headway.train.loop import Running, loop
from headway.train.observe import Observe, write_status
from headway.train.signals import Signals
from headway.train.trackers import Tracker, open_trackers


def train(spec: RunSpec, path: Path, place: Place, *, fresh: bool = False) -> int:
    """Train or resume the run in `path`; returns the exit code (0, or 128 + signal). Raises HeadwayError."""
    try:
        return _train(spec, path, place, fresh=fresh)
    except RuntimeError as error:
        if lost := launch.lost_peer(error, place.rank):
            raise lost from error
        raise


def _train(spec: RunSpec, path: Path, place: Place, *, fresh: bool) -> int:
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        device = stack.enter_context(launch.process_group(place, spec.mesh))
        changed = launch.on_first(place, lambda: prepare(stack, path, spec, fresh=fresh))
        words = stack.enter_context(LastWords(path, place))
        data = open_dataset(spec, path, place)
        require_memory(spec, data, place, device)
        words.emit = emit = Emitter(
            path / events_file(place.rank),
            rank=place.rank,
            ranges=ranges.factory(device, spec.observe.nvtx),
            on_phase=inject.on_phase(injections(spec), place.rank),
        )
        stack.callback(emit.flush)
        progress = Progress(spec.last_sample, spec.observe.progress) if place.rank == 0 else None
        tell = teller(emit, progress, signals)
        mesh = build_mesh(spec.mesh, device.type)
        checkpoints = Checkpoints(path / "checkpoints", spec.checkpoint, rank=place.rank, world=place.world, notify=tell)
        stack.callback(checkpoints.wait)
        found = newest(checkpoints)
        launch.on_first(place, lambda: same_data(path, data, found))
        state = build.build(spec, data, mesh, device, load_role=None if found else load_role)
        if found is not None:
            checkpoints.load(found, build.saved(state))  # into the live tensors
            state.samples = found.samples
        info = launch.on_first(place, lambda: describe(spec, path, data, device, place, tell))
        say_start(tell, state, found, changed, data, info, place)
        loader = Loader(
            data, spec.data, seed=spec.seed, global_batch=spec.global_batch, data_rank=mesh.data_rank, data_parallel=mesh.data_parallel,
            accumulate=spec.accumulate, start_samples=state.samples, pin=device.type == "cuda",
        )  # fmt: skip
        stack.callback(loader.close)
        trackers: list[Tracker] = []
        launch.on_first(
            place, lambda: trackers.extend(open_trackers(path, spec, tell))
        )  # one that is missing ends all ranks, not rank 0 alone
        for tracker in trackers:
            stack.callback(tracker.close)
        guard = Guard()
        observe = Observe(
            spec,
            place,
            progress=progress,
            trackers=trackers,
            signals=signals,
            guard=guard,
            flops=info["flops_per_sample"] or 0.0,
            hardware_flops=info["hardware_flops_per_sample"] or 0.0,
            peak=info["peak_flops"],
        )
        for net in state.roles.values():
            ranges.mark_modules(net, emit.range)
        words.run = run = Running(state=state, batches=iter(loader), emit=emit, path=path, place=place, tell=tell)
        about = {"spec": encode(spec), "data_fingerprint": data.fingerprint, "num_samples": len(data)}
        save = Save(spec, checkpoints, guard, about=about, last=found.samples if found else -1)
        home = Home(Run(path=path, spec=spec, info=info))
        loop(run, [Stages(), guard, observe, home, Profile(spec, signals), save])
        return finish(run, progress, signals)


class LastWords(AbstractContextManager["LastWords"]):
    """While a run is ours: what ends it by an error, at its start too, stands in status.json and, as far as it came, in its events."""

    def __init__(self, path: Path, place: Place) -> None:
        self._path, self._first = path, place.rank == 0
        self.emit: Emitter | None = None
        self.run: Running | None = None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Write them, on rank 0."""
        if error is None or not self._first:
            return
        text = str(error) or type(error).__name__
        if self.emit is not None:
            self.emit.event("end", reason="error", text=text)
            self.emit.flush()
        write_status(self._path, "failed", self.run, error=text)


def prepare(held: ExitStack, path: Path, spec: RunSpec, *, fresh: bool) -> list[tuple[str, Any, Any]]:
    """On rank 0: the folder is there, can be written and is ours while `held` is open; an old run in it is resumed or set aside.

    Returns what a resume changes. Raises SpecError if it would be another run, RunError if somebody else runs it.
    """
    if fresh:
        with lock.hold(path):
            folder.set_aside(path)
    changed = folder.compatible(path, spec)
    folder.make_folder(path)
    held.enter_context(lock.hold(path))
    for what in ("stop", "profile"):
        folder.answered(path, what)  # asked of an earlier life of the run
    write_status(path, "starting")
    return changed


def open_dataset(spec: RunSpec, path: Path, place: Place) -> Dataset:
    """The data set; rank 0 looks at its files first, the others read what it found. Raises DataError."""
    first = launch.on_first(place, lambda: open_data(spec.data, cache=path / "data").fingerprint)
    data = open_data(spec.data, cache=path / "data")
    if data.fingerprint != first:
        raise RunError(
            f"rank {place.rank} sees other data than rank 0", where=f"data set {data.name}", fix="Give every node the same files."
        )
    return data


def newest(checkpoints: Checkpoints) -> Found | None:
    """The checkpoint to go on from, None for a run that begins. Raises RunError if there are some and all are damaged."""
    found = checkpoints.newest()
    if found is None and manifest.folders(checkpoints.folder):
        raise RunError(
            "none of its checkpoints can be used (see the warnings above), and it would begin again from zero",
            where=f"run {checkpoints.folder.parent}",
            fix="Bring a good checkpoint back, or start over with --fresh, which sets this run aside.",
        )
    return found


def load_role(role: RoleSpec) -> Mapping[str, Any]:
    """EMA (else plain) weights of another run, for a role that starts from them."""
    from headway.runtime.load import load_weights

    return load_weights(folder.open_run(role.init))


def count_parameters(spec: RunSpec, data: Dataset) -> int:
    """Parameters of the student."""
    with torch.device("meta"):
        return sum(p.numel() for p in build.bare_network(spec, data).parameters())


def require_memory(spec: RunSpec, data: Dataset, place: Place, device: torch.device) -> None:
    """Raises RunError for a run that cannot fit into this machine or the device."""
    need = fits.floors(spec, channels=data.channels, size=data.size, num_parameters=count_parameters(spec, data))
    total = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
    fits.require(need, ranks=place.local_world, host=fits.host_memory(), device=total)


def same_data(path: Path, data: Dataset, found: Found | None) -> None:
    """On rank 0: raises RunError if a run is to go on with other data than it began with."""
    old = folder.open_run(str(path)).info if (path / "run.json").is_file() else found.meta if found else {}
    if old.get("data_fingerprint", data.fingerprint) != data.fingerprint:
        then = f"{old['num_samples']} samples then, {len(data)} now" if "num_samples" in old else f"{len(data)} samples now"
        raise RunError(
            f"the data set '{data.name}' is not the one this run began with ({then})",
            where=f"run {path.name}",
            fix="Bring the old files back, or start another run with --run NAME.",
        )


def describe(
    spec: RunSpec, path: Path, data: Dataset, device: torch.device, place: Place, tell: Callable[[str, str], None]
) -> dict[str, Any]:
    """On rank 0: what there is to know of the run at its start, written to run.json and graph.json."""
    flops_peak, peak_source = peak.peak_flops(spec.observe.peak, device, spec.precision.compute)
    ops = record_graph(spec, data)
    work = count_flops(spec, data, ops, tell)
    info = {
        "num_samples": len(data),
        "num_classes": data.num_classes,
        "class_names": list(data.class_names),
        "channels": data.channels,
        "size": data.size,
        "data_name": data.name,
        "data_fingerprint": data.fingerprint,
        "num_parameters": count_parameters(spec, data),
        "flops_per_sample": work.model if work else None,
        "hardware_flops_per_sample": work.hardware if work else None,
        "peak_flops": flops_peak,
        "peak_source": peak_source,
        "ceilings": measured_ceilings(spec, device, flops_peak, peak_source),
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)",
        "world": place.world,
        "versions": {"headway": _version(), "torch": torch.__version__, "python": platform.python_version()},
        "git": _git(),
        "command": sys.argv[1:],
    }
    try:
        if ops is not None:
            folder.write_json(path / "graph.json", to_json(ops))
        folder.write_run(Run(path=path, spec=spec, info=info))
    except OSError as error:
        raise RunError(
            f"cannot write to the run folder {path}: {error.strerror}", fix="Free space there, or choose another with --run PATH."
        ) from error
    return info


def measured_ceilings(spec: RunSpec, device: torch.device, flops_peak: float, source: str) -> dict[str, Any] | None:
    """What floors of this run's traces are counted against; None where the peak is a named device's and nothing was measured."""
    if spec.observe.peak != "measured":
        return None
    compute = spec.precision.compute
    tensor = device.type == "cuda" and compute == "fp32" and torch.get_float32_matmul_precision() != "highest"
    return ceilings.ceilings(device, {"tf32" if tensor else compute: flops_peak}, source)


def record_graph(spec: RunSpec, data: Dataset) -> OpGraph | None:
    """The operations of a micro-batch; None for a network that cannot run on the meta device (`count_flops` says why)."""
    with torch.device("meta"):
        net = build.bare_network(spec, data)
    try:
        return graph.record(net, batch=spec.micro_batch, channels=data.channels, size=data.size, num_classes=data.num_classes)
    except graph.NeedsValues:
        return None


def count_flops(spec: RunSpec, data: Dataset, ops: OpGraph | None, tell: Callable[[str, str], None]) -> flops.Flops | None:
    """FLOPs of a sample under the whole objective; of the student alone if the objective cannot run on the meta device."""
    try:
        return flops.flops_per_sample(spec, data)
    except graph.NeedsValues as error:
        why = str(error).splitlines()[0]
        tell("warning", f"MFU counts the student alone: {why}" if ops else f"no FLOPs and no MFU: {why}")
        return flops.Flops(model=ops.flops_per_sample, hardware=ops.flops_per_sample) if ops else None


def teller(emit: Emitter, progress: Progress | None, signals: Signals) -> Callable[..., None]:
    """`tell(kind, text, **fields)`: a line for people (on rank 0) and an event. After Ctrl-C the last line speaks of the checkpoint."""

    def tell(kind: str, text: str, **fields: Any) -> None:
        emit.event(kind, text=text, **fields)
        emit.flush()
        if progress is not None and not (kind == "checkpoint" and signals.number):
            progress.note(text if kind not in ("warning", "error") else f"{kind}: {text}")

    return tell


def say_start(
    tell: Callable[..., None],
    state: build.TrainState,
    found: Found | None,
    changed: list[tuple[str, Any, Any]],
    data: Dataset,
    info: Mapping[str, Any],
    place: Place,
) -> None:
    """Events and lines of the start: what runs where, what is resumed, what has changed, what the data set has to say."""
    spec = state.spec
    what = f"{info['num_parameters']:,} parameters, {len(data):,} samples of {data.name}, {spec.mesh}, {info['device']}"
    about = {"schema": SCHEMA, "rank": place.rank, "world": place.world, "samples": state.samples, "versions": info["versions"]}
    tell("run", f"{spec.name}: {what}", **about)
    if found is not None:
        tell("resume", f"resumed at {state.samples:,} samples (step {state.step}) from {found.path.name}")
    for name, old, new in changed:
        tell("stage", f"changed on resume: {name} {old!r} -> {new!r}")
    for note in getattr(data, "notes", ()):
        tell("warning", note)


def finish(run: Running, progress: Progress | None, signals: Signals) -> int:
    """The last words of a run that ended cleanly; the exit code."""
    state = run.state
    text = (
        f"done: {state.samples:,} samples, {state.step} steps"
        if run.done
        else f"stopped by {run.reason} at {state.samples:,} samples (step {state.step})"
    )
    saved = manifest.name_of(state.samples) in (p.name for p in manifest.folders(run.path / "checkpoints"))
    if run.done and not saved:
        text += ", but the end could not be saved (see the warnings); the same command goes on from the last checkpoint"
    elif not run.done:
        text += ", checkpoint saved; the same command goes on" if saved else "; the same command goes on from the last checkpoint"
    run.emit.event("end", reason="done" if run.done else run.reason, text=text, samples=state.samples)
    run.emit.flush()
    if run.emit.failed:
        run.tell("warning", run.emit.failed)
    if run.first:
        write_status(run.path, "stopped" if not run.done else "ended" if saved else "failed", run)
    if progress is not None:
        progress.close(text)
    if run.done:
        return 0 if saved else 2
    return 128 + signals.number if signals.number else 0


def _version() -> str:
    from headway import __version__

    return __version__


def _git() -> str:
    """Commit of the working directory, with + if it has changes; '' outside git."""
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        ).stdout.strip()
        dirty = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit + ("+" if dirty else "")
