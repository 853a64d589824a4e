"""NVTX ranges as host rows: operators that PyTorch annotates, marks of users, and which of them are steps.

A range is a step if all of its text is a word for one and its number: "step 12", "iteration: 7", "sample_0". Where several words
have numbers, the first of `WORDS` counts, so a batch within a step is none; and a word whose ranges hold each other names no steps.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from headway.spec.event import STEP_PREFIX
from headway.trace.marks import is_mark
from headway.trace.read.columns import as_whole
from headway.trace.sweep import Ints
from headway.trace.table import Kind

WORDS: Final = ("profilerstep", "step", "iteration", "iter", "batch", "sample")
_STEP: Final = re.compile(rf"(?:train(?:ing|er)?|global|optimi[sz]er)?[ _.:-]*({'|'.join(WORDS)})[ _.:#=/-]*(\d{{1,9}})?", re.IGNORECASE)
_TORCH: Final = re.compile(r"(.*?), (?:seq = (-?\d+)(?:, op_id = \d+)?|op_id = \d+)(?:, sizes = .*|, input_op_ids = .*)?", re.DOTALL)


def told(text: str) -> tuple[str, int, Kind]:
    """(name, autograd sequence number or -1, kind) of a range. PyTorch writes `aten::mm, seq = 7, op_id = 12, sizes = [...]`."""
    found = _TORCH.fullmatch(text)
    if found is None:
        return text, -1, Kind.OPERATOR if text.startswith("aten::") else Kind.MARK
    name = found[1]
    return name, as_whole(found[2] or ""), Kind.MARK if is_mark(name) else Kind.OPERATOR


def step_names(names: Sequence[str], name: Ints, track: Ints, start: Ints, end: Ints) -> tuple[str, dict[int, str]]:
    """(how the steps are written, row -> name of a step mark) for marks of the host; ('', {}) if none are steps.

    Marks of PyTorch's own profiler (ProfilerStep#N) are left as they are.
    """
    found = [_STEP.fullmatch(n.strip()) for n in names]
    if any(n.startswith(STEP_PREFIX) for n in names):
        return "", {}
    families: dict[tuple[bool, int, str], list[int]] = defaultdict(list)  # (without a number, place of the word, as written) -> rows
    of_name = {i: (not m[2], WORDS.index(m[1].lower()), names[i].strip()[: m.end(1)]) for i, m in enumerate(found) if m}
    for row in np.flatnonzero(np.isin(name, list(of_name))).tolist():
        families[of_name[int(name[row])]].append(row)
    for (bare, _, written), rows in sorted(families.items(), key=lambda f: (f[0][:2], -len(f[1]))):
        mine = np.array(rows, np.int64)
        if (bare and len(mine) < 2) or not _apart(track[mine], start[mine], end[mine]):
            continue
        numbers = _order(track[mine], start[mine]) if bare else [int(m[2]) for i in name[mine].tolist() if (m := found[i])]
        return written, {row: f"{STEP_PREFIX}{number}" for row, number in zip(rows, numbers, strict=True)}
    return "", {}


def _apart(track: Ints, start: Ints, end: Ints) -> bool:
    """Whether no two ranges of one thread overlap."""
    order = np.lexsort((start, track))
    track, start, end = track[order], start[order], end[order]
    return not ((track[1:] == track[:-1]) & (start[1:] < end[:-1])).any()


def _order(track: Ints, start: Ints) -> list[int]:
    """How many ranges of its thread came before each."""
    order = np.lexsort((start, track))
    first = np.searchsorted(track[order], track[order], side="left")
    out = np.empty(len(order), np.int64)
    out[order] = np.arange(len(order)) - first
    return list(map(int, out))
