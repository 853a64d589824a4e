"""Checkpoints: written beside the training, renamed when whole, loaded into any layout. Tensors by torch.distributed.checkpoint (DCP).

    save   snapshot to host memory -> return; a thread: write -> fsync -> hash -> manifest -> rename -> remove the oldest
    load   newest whose hashes are right -> each rank reads what its shards need

DCP has no checksums: a flipped bit in one of its files loads silently. Hence the manifest. The thread has a process group of its own:
two threads in one group mix up their messages.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Container, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from headway.runtime import manifest
from headway.runtime.manifest import Found, Notify
from headway.spec.errors import RunError
from headway.spec.parts import CheckpointSpec

T = TypeVar("T")
SEPARATOR: Final = "/"  # between the keys of a tree: student/blocks.0.weight


class Checkpoints:
    """The checkpoints of a run: saves at most one at a time, keeps the newest, never stops the training because a disk is full."""

    def __init__(self, folder: Path, spec: CheckpointSpec, *, rank: int, world: int, notify: Notify) -> None:
        self.folder, self._spec, self._rank = folder, spec, rank
        self._notify: Notify = notify if rank == 0 else lambda kind, text: None
        self._peers = _Peers(rank, world)
        self._stager = DefaultStager(
            StagingOptions(use_pinned_memory=False, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=False)
        )
        self._job: _Job | None = None
        if rank == 0:
            self._clean()

    def save(self, state: Mapping[str, Any], *, samples: int, meta: Mapping[str, Any]) -> None:
        """Save a tree of tensors and plain values. All ranks call it. `state` may be changed as soon as it returns.

        Waits for an earlier save first. A save that fails is told by `notify` in a later `poll` or `wait`. If there is a whole checkpoint
        of these samples already, nothing is written.
        """
        self.wait()
        tensors, values = _split(state)
        error = ""
        try:
            tensors = self._stager.stage(tensors)  # type: ignore[assignment]  # copied to the host before it returns
        except (RuntimeError, MemoryError) as failed:
            error = f"no copy could be made: {failed}"
        self._job = _Job(lambda: self._write(tensors, values, samples, meta, error), samples)
        if self._spec.blocking:
            self.wait()

    def poll(self) -> None:
        """Tell how a save ended, if it did. Cheap: call it every step."""
        if self._job is not None and not self._job.is_alive():
            self.wait()

    def wait(self) -> None:
        """Return when no save is under way."""
        if self._job is None:
            return
        self._job.join()  # an interrupt here leaves all as it is: wait again
        job, self._job = self._job, None
        name = manifest.name_of(job.samples)
        if job.note:
            self._notify("warning", job.note)
        if not job.error:
            self._notify("checkpoint", f"saved {name} in {job.seconds:.1f} s")
            return
        whole = manifest.folders(self.folder)
        rest = f"{whole[-1].name} is intact" if whole else "there is no earlier one"
        self._notify("warning", f"checkpoint {name} could not be saved: {job.error}; {rest}; training goes on")

    def newest(self) -> Found | None:
        """The newest whole checkpoint, the same for all ranks, which all call it. Damaged ones are skipped and told.

        Raises RunError if the folder cannot be read.
        """
        self.wait()
        try:
            return self._peers.from_first(lambda: manifest.newest(self.folder, self._notify))
        except OSError as error:
            raise RunError(f"the checkpoints cannot be read: {error}", where=str(self.folder)) from error

    def load(self, found: Found, state: Mapping[str, Any]) -> None:
        """Read `found` into the tensors of `state`, in place, whatever the layout; plain values are put into its (mutable) mappings.

        All ranks call it. Raises RunError if `state` has something that the checkpoint has not, or in another shape.
        """
        self.wait()
        tensors, _ = _split(state)
        _quiet()
        try:
            load(tensors, storage_reader=FileSystemReader(found.path), process_group=self._peers.group, no_dist=self._peers.world == 1)
        except CheckpointException as error:
            fix = "Resume with the settings it was saved with, or start over with --fresh."
            raise RunError(f"this checkpoint does not fit the run: {_cause(error)}", where=str(found.path), fix=fix) from error
        _put(state, found.values)

    def _write(self, tensors: dict[str, Any], values: dict[str, Any], samples: int, meta: Mapping[str, Any], error: str) -> str:
        """Body of the thread, on every rank: "", or what else should be told. Raises on every rank if one of them fails."""
        self._peers.agree(error)
        final = self.folder / manifest.name_of(samples)
        part = final.with_name(final.name + manifest.INCOMPLETE)
        if self._peers.from_first(lambda: _is_whole(final)):
            return ""
        try:
            self._peers.from_first(lambda: _make_room(final, part))
            _quiet()
            writer = _Writer(part, sync_files=True, overwrite=False)
            save(tensors, storage_writer=writer, process_group=self._peers.group, no_dist=self._peers.world == 1)
            files = self._peers.all(lambda: {p.name: manifest.digest(p) for p in _own_files(part, self._rank)})
            content = {
                "samples": samples,
                "world": self._peers.world,
                "meta": dict(meta),
                "values": values,
                "files": {name: entry for rank in files for name, entry in rank.items()},
            }
            return str(self._peers.from_first(lambda: self._finish(part, samples, content)))
        except (Exception, CheckpointException):
            if self._rank == 0:
                manifest.discard(part)
            raise

    def _finish(self, part: Path, samples: int, content: Mapping[str, Any]) -> str:
        manifest.write(part, content)
        manifest.commit(part)
        try:
            manifest.prune(self.folder, samples, self._spec.keep)
        except OSError as error:
            return f"older checkpoints could not be removed: {error}"
        return ""

    def _clean(self) -> None:
        for path in manifest.leftovers(self.folder):
            manifest.discard(path)
            if path.suffix == manifest.INCOMPLETE:
                self._notify("warning", f"checkpoint {path.name} was cut off while it was written, and is removed")


class _Writer(FileSystemWriter):
    """DCP's writer, which loses why a write failed: the zip layer goes on after a full disk and reports a wrong position instead."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """DCP's, with the first error of the system raised in place of what came of it."""
        try:
            return super().write_data(plan, planner)
        except Exception as error:
            first: BaseException | None = error
            while first is not None and not isinstance(first, OSError):
                first = first.__cause__ or first.__context__
            if first is None:
                raise
            raise OSError(first.errno, first.strerror) from error  # pickled to rank 0, which would lose a chain


class _Job(threading.Thread):
    """A save under way; afterwards `error` says why it failed, `note` what else there is to tell."""

    def __init__(self, body: Callable[[], str], samples: int) -> None:
        super().__init__(name="checkpoint", daemon=True)
        self._body, self.samples, self.error, self.note, self.seconds = body, samples, "", "", 0.0
        self.start()

    def run(self) -> None:
        begin = time.perf_counter()
        try:
            self.note = self._body()
        except (Exception, CheckpointException) as error:  # whatever it is, the training is worth more than the checkpoint
            self.error = _cause(error)
        self.seconds = time.perf_counter() - begin


class _Peers:
    """The ranks that save together; one process needs no group."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.group: dist.ProcessGroup | None = dist.new_group(backend="gloo") if world > 1 else None

    def all(self, fn: Callable[[], T]) -> list[T]:
        """`fn()` of every rank, on every rank. Raises on every rank if it raises on one."""
        mine: tuple[Any, str]
        try:
            mine = (fn(), "")
        except Exception as error:
            mine = (None, _cause(error))
        answers: list[Any] = [mine]
        if self.world > 1:
            answers = [None] * self.world
            dist.all_gather_object(answers, mine, group=self.group)
        if problems := [f"rank {r}: {text}" if self.world > 1 else text for r, (_, text) in enumerate(answers) if text]:
            raise OSError("; ".join(problems))
        return [value for value, _ in answers]

    def from_first(self, fn: Callable[[], T]) -> T:
        """`fn()` of rank 0, on every rank; raises on every rank if it raises there."""
        return cast(T, self.all(fn if self.rank == 0 else lambda: None)[0])

    def agree(self, error: str) -> None:
        """Raise on every rank if one has an error."""

        def check() -> None:
            if error:
                raise OSError(error)

        self.all(check)


def load_tensors(path: Path, prefix: str, *, but: Container[str] = ()) -> dict[str, torch.Tensor]:
    """The full tensors under `prefix` of the checkpoint in `path` (ema -> names of the network's parameters), on the host; `but` some.

    Needs no process group, whatever number of ranks wrote it. Raises RunError if there are none.
    """
    reader = FileSystemReader(path)
    try:
        entries = reader.read_metadata().state_dict_metadata
    except OSError as error:
        raise RunError(f"this is no checkpoint ({error.strerror})", where=str(path)) from error
    under = prefix + SEPARATOR
    tensors = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in entries.items()
        if name.startswith(under) and isinstance(entry, TensorStorageMetadata)
    }
    if not tensors:
        kept = ", ".join(sorted({name.partition(SEPARATOR)[0] for name in entries}))
        raise RunError(f"this checkpoint holds no '{prefix}', only {kept}", where=str(path))
    tensors = {name: tensor for name, tensor in tensors.items() if name.removeprefix(under) not in but}
    _quiet()
    load(tensors, storage_reader=reader, no_dist=True)
    return {name.removeprefix(under): tensor for name, tensor in tensors.items()}


# ---- trees ----


def _split(state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of a tree by path, and its other leaves by path."""
    tensors: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for key, leaf in state.items():
        assert SEPARATOR not in key, f"'{key}' would be taken for a path"
        path = prefix + key
        if isinstance(leaf, Mapping):
            below = _split(leaf, path + SEPARATOR)
            tensors |= below[0]
            values |= below[1]
        elif isinstance(leaf, torch.Tensor):
            tensors[path] = leaf.detach()
        else:
            assert leaf is None or isinstance(leaf, (int, float, str, list, tuple)), f"{path} is a {type(leaf).__name__}"
            values[path] = leaf
    return tensors, values


def _put(state: Mapping[str, Any], values: Mapping[str, Any], prefix: str = "") -> None:
    for key, leaf in list(state.items()):
        path = prefix + key
        if isinstance(leaf, Mapping):
            _put(leaf, values, path + SEPARATOR)
        elif not isinstance(leaf, torch.Tensor):
            if path not in values:
                raise RunError(f"this checkpoint has no value {path}", where="resume")
            assert isinstance(state, MutableMapping), f"{path} cannot be set"
            state[key] = tuple(values[path]) if isinstance(leaf, tuple) else values[path]


# ---- files ----


def _is_whole(folder: Path) -> bool:
    try:
        return folder.exists() and bool(manifest.read(folder))
    except manifest.Damaged:
        return False


def _make_room(final: Path, part: Path) -> None:
    manifest.discard(part)
    if final.exists():  # damaged: what is there is worth nothing
        manifest.remove([final])
    part.mkdir(parents=True)


def _own_files(folder: Path, rank: int) -> list[Path]:
    """What this rank wrote: __RANK_*.distcp, and on rank 0 the index."""
    files = sorted(folder.glob(f"__{rank}_*"))
    return [*files, folder / ".metadata"] if rank == 0 else files


def _cause(error: BaseException) -> str:
    """Why something failed, in one line, never empty: of what several ranks say, the first."""
    if isinstance(error, CheckpointException) and error.failures:
        return _cause(next(iter(error.failures.values()))[0])
    if isinstance(error, OSError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _quiet() -> None:
    # DCP warns that it works in a single process, which is what was asked for.
    warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized", category=UserWarning)
