"""The zoomable timeline of the page: every device a lane, every piece of its time in the colour of its bucket.

A page holds some devices and some steps in full detail; what is left out is said. Where even those have too many pieces, the shortest
neighbours are put together under the bucket that has most of their time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from headway.report.colour import colours
from headway.report.document import section
from headway.report.markup import Html, tag
from headway.report.series import extremes
from headway.trace.sweep import Ints
from headway.trace.timeline import Timeline

MAX_LANES: Final = 8
MAX_PIECES: Final = 40_000  # on the page
MAX_LABELS: Final = 400


def lanes(timelines: Sequence[Timeline]) -> dict[str, Any] | None:
    """Data of the timeline, or None without pieces: {"lanes", "names", "colours", "labels", "note", "span"}.

    A lane: {"label", "at": ns from the first edge, "length": ns, "bucket", "kernel": code into labels or -1,
    "steps": [[number, begin, end]]}.
    `at` is coded as differences, so that the page stays small.
    """
    found = [t for t in timelines if len(t.start)]
    if not found:
        return None
    chosen = [found[i] for i in extremes([float(t.edges[-1] - t.edges[0]) / len(t.steps) for t in found], MAX_LANES)]
    first, last = _steps(chosen)
    origin = min(int(t.edges[a]) for t, a in zip(chosen, first, strict=True))
    room = MAX_PIECES // len(chosen)
    names = sorted({t.names[i] for t in chosen for i in np.unique(t.bucket).tolist()})
    code = {name: i for i, name in enumerate(names)}
    labels: dict[str, int] = {}
    rows, merged = [], 0
    for t, a, b in zip(chosen, first, last, strict=True):
        begin, end = int(t.edges[a]), int(t.edges[b])
        inside = np.flatnonzero((t.start >= begin) & (t.start < end))
        bucket = np.array([code.get(n, 0) for n in t.names], np.int64)[t.bucket[inside]]
        start, length, bucket, label, joined = _coarser(t.start[inside] - origin, (t.end - t.start)[inside], bucket, t.label[inside], room)
        merged += joined
        rows.append(
            {
                "label": f"rank {t.rank}, {t.device}",
                "at": np.diff(start, prepend=0).tolist(),
                "length": length.tolist(),
                "bucket": bucket.tolist(),
                "kernel": _kernels(label, t.labels, labels).tolist(),
                "steps": [[t.steps[k], int(t.edges[k]) - origin, int(t.edges[k + 1]) - origin] for k in range(a, b)],
            }
        )
    span = max(row["steps"][-1][2] for row in rows)
    note = _note(len(found), len(chosen), [b - a for a, b in zip(first, last, strict=True)], [len(t.steps) for t in chosen], merged)
    return {"lanes": rows, "names": names, "colours": colours("buckets", names), "labels": list(labels), "note": note, "span": span}


def _steps(chosen: Sequence[Timeline]) -> tuple[list[int], list[int]]:
    """For each lane the first and the last edge: the steps around the slowest one of all, as many as there is room for."""
    worst = max(chosen, key=lambda t: int(np.diff(t.edges).max()))
    centre = worst.steps[int(np.diff(worst.edges).argmax())]
    first, last = [], []
    for t in chosen:
        near = min(range(len(t.steps)), key=lambda k: abs(t.steps[k] - centre))
        a, b = near, near + 1
        room = MAX_PIECES // len(chosen)
        count = np.searchsorted(t.start, t.edges)
        while (a > 0 or b < len(t.steps)) and b - a < 8:
            low, high = max(0, a - 1), min(len(t.steps), b + 1)
            if count[high] - count[low] > room:
                break
            a, b = low, high
        first.append(a)
        last.append(b)
    return first, last


def _coarser(start: Ints, length: Ints, bucket: Ints, label: Ints, room: int) -> tuple[Ints, Ints, Ints, Ints, int]:
    """At most about 1.5 `room` pieces: neighbours that fall into one cell of time become one, with the bucket and label of the longest."""
    if len(start) <= room:
        return start, length, bucket, label, 0
    span = int(start[-1] + length[-1] - start[0])
    cell = max(1, int(np.sort(length)[-(room // 2) - 1]), 2 * span // room)  # pieces longer than a cell stay as they are
    key = np.where(length >= cell, -1 - np.arange(len(start)), (start - start[0]) // cell)
    begins = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    longest = np.lexsort((length, np.cumsum(np.isin(np.arange(len(start)), begins))))
    last = np.append(begins[1:], len(start)) - 1
    pick = longest[last]  # the longest of each group: lexsort puts it at the group's end
    ends = start[last] + length[last]
    return start[begins], ends - start[begins], bucket[pick], label[pick], len(start) - len(begins)


def _kernels(label: Ints, names: Sequence[str], labels: dict[str, int]) -> Ints:
    """Codes into `labels`, which grows up to MAX_LABELS; -1 for none and for names that come too late."""
    code = np.full(len(names) + 1, -1, np.int64)
    for i in np.unique(label[label >= 0]).tolist():
        name = names[i][:120]
        if name in labels or len(labels) < MAX_LABELS:
            code[i] = labels.setdefault(name, len(labels))
    return code[label]


def _note(num: int, shown: int, steps: Sequence[int], of: Sequence[int], merged: int) -> str:
    parts = []
    if shown < num:
        parts.append(f"{shown} of {num} devices: the slowest and the fastest")
    if max(steps) < max(of):
        parts.append(f"{max(steps)} of {max(of)} traced steps: those around the slowest")
    if merged:
        parts.append(f"{merged:,} short pieces are drawn with their longest neighbour")
    return f"Shown: {'; '.join(parts)}." if parts else ""


def timeline_section(data: dict[str, Any] | None) -> Html | None:
    """The frame of the timeline; the script paints it."""
    if data is None:
        return None
    buttons = [tag("button", text, type="button", data_zoom=key, title=title) for key, text, title in _BUTTONS]
    labels = [tag("span", lane["label"], class_="lane") for lane in data["lanes"]]
    height = 46 * len(data["lanes"]) + 26
    return section(
        "when",
        "Timeline",
        tag("div", *buttons, tag("span", id="timeline-where", class_="soft"), class_="controls"),
        tag(
            "div",
            tag("canvas", aria_hidden="true"),
            *labels,
            class_="timeline",
            id="timeline",
            style=f"height:{height}px",
            tabindex="0",
            role="group",
            aria_label="Timeline of devices by bucket; plus and minus zoom, arrow keys move, a pointer reads values",
        ),
        tag("p", data["note"], class_="note") if data["note"] else None,
    )


_BUTTONS: Final = (
    ("in", "+", "zoom in"),
    ("out", "-", "zoom out"),
    ("left", "<", "earlier"),
    ("right", ">", "later"),
    ("all", "all", "everything"),
)
