"""The same answer by other means: a trace read with `json` and decimals, and counted by walking over its events in order of time.

Nothing here is shared with the package but the two tables of names that say what is communication and which way a copy goes.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from headway.trace.classify import copy, is_collective

DEVICE = {"kernel": "kernel", "gpu_memcpy": "copy", "memcpy": "copy", "gpu_memset": "set", "memset": "set", "mtia_ccp_events": "kernel"}
RUNTIME = re.compile(r"^(runtime|(cuda|hip|xpu|mtia|privateuse1)_(runtime|driver))$")
HEADS = ("compute", "comm", "copy")  # of several at once the first counts


@dataclass(frozen=True)
class Span:
    """One span of a device; its launch, where it is known."""

    device: int
    begin: int
    end: int
    head: str
    launched: int | None


def ns(value: Any) -> int:
    """Microseconds as they are written -> nanoseconds."""
    return round(Decimal(str(value)) * 1000)


def load(path: Path) -> list[dict[str, Any]]:
    """The events of a sound trace. Raises ValueError for any other."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    found = json.loads(text, parse_float=Decimal)
    events = found["traceEvents"] if isinstance(found, dict) else found
    base = found.get("baseTimeNanoseconds", 0) if isinstance(found, dict) else 0
    return [
        {**e, "begin": ns(e["ts"]) + base, "end": ns(e["ts"]) + base + max(0, ns(e.get("dur") or 0))} for e in events if e.get("ph") == "X"
    ]


def number(value: Any) -> int:
    """An id as a number; -1 if it is none of up to 62 bits."""
    try:
        found = int(value)
    except (TypeError, ValueError):
        return -1
    return found if 0 <= found < 1 << 62 else -1


def spans(events: list[dict[str, Any]]) -> list[Span]:
    """The work of all devices."""
    launches: dict[int, list[int]] = defaultdict(list)
    for e in events:
        found = number((e.get("args") or {}).get("correlation"))
        if RUNTIME.match(str(e.get("cat")).lower()) and found > 0:
            launches[found].append(e["begin"])
    out = []
    stamps = sorted(e["begin"] for e in events if e["begin"])
    usual = stamps[len(stamps) // 2] if stamps else 0
    for e in events:
        kind = DEVICE.get(str(e.get("cat")).lower())
        if kind is None or (e["begin"] == 0 and usual > 86_400 * 10**9):
            continue
        args = e.get("args") or {}
        device = number(args.get("device"))
        pid = number(e.get("pid"))
        name = " ".join(str(n) for n in (e.get("name"), args.get("direction")) if n is not None)
        kind = "copy" if name.startswith("dma_request") else kind
        way = copy(name)
        head = "comm" if (kind == "kernel" and is_collective(name)) or (kind == "copy" and way == "p2p") else "compute"
        head = "copy" if kind == "copy" and way in ("h2d", "d2h") else head
        calls = sorted(launches[found]) if (found := number(args.get("correlation"))) > 0 and found in launches else []
        before = [c for c in calls if c <= e["begin"]]
        launched = before[-1] if before else calls[0] if calls else None
        out.append(Span(device if device >= 0 else pid if 0 <= pid < 1024 else 0, e["begin"], e["end"], head, launched))
    return out


def windows(events: list[dict[str, Any]], mine: list[Span]) -> list[tuple[int, int]]:
    """[begin, end) of each step of one device: it ends with its host mark and with the last work launched in it."""
    marks = [e for e in events if str(e.get("cat")).lower() in ("user_annotation", "cpu_op", "operator") and is_step(str(e.get("name")))]
    if not marks:
        known = [e for e in events if str(e.get("cat")).lower() in (*DEVICE, "user_annotation", "cpu_op", "operator", "python_function")]
        known += [e for e in events if RUNTIME.match(str(e.get("cat")).lower())]
        return [(min(e["begin"] for e in known), max(e["end"] for e in known))]
    threads = Counter((e.get("pid"), e.get("tid")) for e in marks)
    most = max(threads.values())
    thread = next(t for t, n in threads.items() if n == most)
    marks = sorted((e for e in marks if (e.get("pid"), e.get("tid")) == thread), key=lambda e: (e["begin"], -e["end"]))
    first = marks[0]["begin"]
    out, edge, host = [], first, first
    for e in marks:
        opened, host = host, max(host, e["end"])
        launched = [s.end for s in mine if s.launched is not None and opened <= s.launched < host]
        end = max([edge, host, *launched])
        out.append((edge, end))
        edge = end
    return out


def is_step(name: str) -> bool:
    """Whether a mark is that of a step."""
    return re.fullmatch(r"ProfilerStep#\d{1,9}", name) is not None


def heads(mine: list[Span], begin: int, end: int) -> dict[str, int]:
    """Nanoseconds of [begin, end) by the head that counts at each moment: starts and ends in order of time, how many run."""
    moments = []
    for s in mine:
        a, b = max(s.begin, begin), min(s.end, end)
        if a < b:
            moments += [(a, s.head, 1), (b, s.head, -1)]
    total, running, last = Counter({"idle": 0}), Counter(), begin
    for time, head, change in sorted(moments):
        total[next((h for h in HEADS if running[h]), "idle")] += time - last
        running[head] += change
        last = time
    total["idle"] += end - last
    return {h: n for h, n in total.items() if n}
