"""What the paths of a command lead to: trace files, and what a run folder says beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headway.spec import record
from headway.spec.errors import TraceError
from headway.spec.event import RECORDS
from headway.spec.info import MOST_RANKS, spec_and_info
from headway.trace.events import Events, read_events
from headway.trace.read.file import FIX, known
from headway.trace.read.remote import is_remote, place_of

ENDINGS = (".json", ".json.gz", ".pickle", ".pkl", ".pickle.gz")  # of files that a folder is searched for; others are looked into
_RANK = re.compile(r"(?:rank|worker)[-_.]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Input:
    """Trace files, and the run that they belong to. A program that writes our events has no settings: its `spec` is None."""

    files: tuple[Path, ...]
    certain: frozenset[Path] = frozenset()  # files named by the user: one that is no trace is an error
    run: bool = False  # a folder with events of ours
    spec: dict[str, Any] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    events: Events = field(default_factory=Events)


def gather(paths: Sequence[Path]) -> Input:
    """Everything behind `paths`, each file once. Raises TraceError if one is missing, holds no trace, or two are run folders."""
    if not paths:
        raise TraceError("no path given", fix=FIX)
    found = [_one(p) for p in paths]
    runs = [i for i in found if i.run]
    if len(runs) > 1:
        raise TraceError("two run folders at once", where=str(paths[0]), fix="Explain one run at a time.")
    base = runs[0] if runs else Input(())
    files: dict[str, Path] = {}
    for file in (f for i in found for f in i.files):
        files.setdefault(place_of(file), file)
    return replace(base, files=tuple(files.values()), certain=frozenset(f for i in found for f in i.certain))


def rank_in_name(source: str) -> int | None:
    """The last number that follows "rank" or "worker" in a file's name; None without one that a rank can have."""
    found = _RANK.findall(Path(source).name)
    return rank if found and (rank := int(found[-1])) < MOST_RANKS else None


def _one(path: Path) -> Input:
    if not path.exists():
        linked = not is_remote(path) and path.is_symlink()
        raise TraceError("is a link that leads to nothing" if linked else "no such trace", where=str(path), fix=FIX)
    if not path.is_dir():
        return Input((path,), frozenset((path,)))
    if (path / "run.json").is_file() or any(path.glob("events*.jsonl")):
        return _run(path)
    files = _traces(path) or tuple(f for folder in sorted(path.glob("*")) if _is_rank(folder) for f in _traces(folder))
    if not files:
        raise TraceError(f"no trace in this folder nor in those in it ({', '.join(ENDINGS)})", where=str(path), fix=FIX)
    return Input(files)


def _is_rank(path: Path) -> bool:
    """A folder of its own for each rank; a folder of runs is none."""
    return path.is_dir() and not (path / "run.json").is_file()


def _run(path: Path) -> Input:
    """A run folder: its events, its traces (beside them or in traces/), and its settings if it is a run of ours."""
    spec, info = _settings(path)
    files, events = (*_traces(path), *_traces(path / "traces")), read_events(path)
    if not files and not any(events.steps.values()):
        fix = "Train a step, or profile some: --observe.profile-steps 20-24, or headway profile RUN."
        raise TraceError("the run has no traces and no steps yet", where=str(path), fix=fix)
    return Input(files, run=True, spec=spec, info=info, events=events)


def _settings(path: Path) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    if not (path / "run.json").is_file():
        return None, {}
    try:
        return spec_and_info(record.load((path / "run.json").read_bytes()))
    except (OSError, ValueError) as error:
        raise TraceError(f"run.json cannot be read ({error})", where=str(path), fix="Give its trace files by themselves.") from None


def _traces(folder: Path) -> tuple[Path, ...]:
    """Files of a folder that may be traces, by their endings or their content; of a run folder, not its own records."""
    files = (p for p in folder.glob("*") if p.is_file() and p.name not in RECORDS)
    return tuple(sorted(p for p in files if p.name.endswith(ENDINGS) or known(p)))
