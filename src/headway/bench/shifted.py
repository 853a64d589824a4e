"""A large trace from a small one: copies of its events, each later than the one before, written as one file.

    python -m headway.bench.shifted TRACE.json.gz LARGE.json --copies 10

Time stamps, correlation ids, External ids, ids of arrows and numbers of steps are shifted, so that no copy is taken for another.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headway.spec.event import STEP_PREFIX

_IDS = ("correlation", "External id", "Ev Idx")


def enlarge(source: Path, target: Path, copies: int) -> tuple[int, int]:
    """Write `copies` of the events of `source` into `target`; (events, bytes)."""
    data = json.loads(gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes())
    events = data.pop("traceEvents")
    count = 0
    with target.open("w", encoding="utf-8") as file:
        head = json.dumps(data)
        file.write(head[:-1] + ("," if data else "") + '"traceEvents": [')
        for i, event in enumerate(_shifted(events, copies)):
            file.write(("," if i else "") + "\n" + json.dumps(event, separators=(",", ":")))
            count += 1
        file.write("]}")
    return count, target.stat().st_size


def _shifted(events: list[dict[str, Any]], copies: int) -> Iterator[dict[str, Any]]:
    spans = [e for e in events if e.get("ph") == "X"]
    later = max(e["ts"] + e.get("dur", 0) for e in spans) - min(e["ts"] for e in spans) + 1000
    other = {key: 1 + max((a[key] for e in spans if isinstance((a := e.get("args", {})).get(key), int)), default=0) for key in _IDS}
    arrows = 1 + max((e["id"] for e in events if isinstance(e.get("id"), int)), default=0)
    steps = 1 + max((int(n) for e in spans if (n := e["name"].removeprefix(STEP_PREFIX)) != e["name"] and n.isdecimal()), default=0)
    yield from events
    for k in range(1, copies):
        for event in events:
            if "ts" not in event:
                continue
            new = {**event, "ts": event["ts"] + k * later}
            if isinstance(new.get("id"), int):
                new["id"] += k * arrows
            number = str(event.get("name")).removeprefix(STEP_PREFIX)
            if number != event.get("name") and number.isdecimal():
                new["name"] = f"{STEP_PREFIX}{int(number) + k * steps}"
            if args := event.get("args"):
                new["args"] = {n: v + k * other[n] if n in other and isinstance(v, int) else v for n, v in args.items()}
            yield new


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m headway.bench.shifted", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="Kineto trace (.json, .json.gz)")
    parser.add_argument("target", type=Path, help="JSON to write")
    parser.add_argument("--copies", type=int, default=10, help="of the events (10)")
    args = parser.parse_args(argv)
    count, size = enlarge(args.source, args.target, args.copies)
    print(f"{args.target}: {count:,} events, {size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
