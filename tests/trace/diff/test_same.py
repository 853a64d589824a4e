"""Steps that take the same time on both sides: what shifted inside of them is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from headway.spec.diff import Diff
from headway.trace.diff.diff import diff
from tests.trace.diff.test_runs import run_folder
from tests.trace.drawing import draw

STEPS = """
main [S0                   ][S1                   ][S2                   ]
main [fwd    ][bwd ]        [fwd    ][bwd ]        [fwd    ][bwd ]
main  [L1][L2]               [L3][L4]               [L5][L6]
0.7     {0}{1}      {2}{3}      {4}{5}
"""


def drawn(path: Path, gemm: int, elementwise: int) -> Path:
    """Three equal steps, with a product and an elementwise kernel of so many columns in each."""
    cells = [f"[{'ge'[i % 2]}{i + 1}".ljust((gemm, elementwise)[i % 2] - 1) + "]" for i in range(6)]
    return draw(path, STEPS.format(*cells))


def compared(a: Path, b: Path) -> Diff:
    found = diff(a, b)
    assert found.step.delta == 0 and found.step.verdict == "same"
    return found


def test_buckets_that_trade_time(tmp_path: Path) -> None:
    found = compared(drawn(tmp_path / "a.json", 8, 5), drawn(tmp_path / "b.json", 6, 7))
    assert found.text.startswith("A step takes the same time in both, its parts do not: ") and "compute." in found.text
    assert sum(c.delta for c in found.buckets) == 0 and any(c.delta for c in found.buckets)


def test_phases_that_trade_time(tmp_path: Path) -> None:
    a, b = (run_folder(tmp_path / name, walls=[10**8] * 5) for name in "ab")
    assert compared(a, b).text == "No difference."
    events = [json.loads(line) for line in (b / "events.jsonl").read_text().splitlines()]
    for row in events:
        if row["kind"] == "step":
            row["phases"] = {"input": 40_000_000, "forward": 60_000_000}
    (b / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in events))
    text = compared(a, b).text
    assert text == "A step takes the same time in both, its parts do not: forward -30.000 ms, input +30.000 ms."


def test_kernels_of_another_name(tmp_path: Path) -> None:
    a, b = drawn(tmp_path / "a.json", 6, 6), drawn(tmp_path / "b.json", 6, 6)
    assert compared(a, b).text == "No difference."
    names = {k.name_a for k in compared(a, b).kernels}
    gemm = next(n for n in names if "gemm" in n)
    b.write_text(b.read_text().replace(gemm, f"{gemm}_v2"))
    text = compared(a, b).text
    assert text.startswith("A step and its parts take the same time in both, kernels do not: ") and "_v2" in text


def test_memory_alone(tmp_path: Path) -> None:
    a, b = (run_folder(tmp_path / n, walls=[10**8] * 5, losses={s: 1.0}) for n, s in (("a", 64), ("b", 96)))
    assert compared(a, b).text.startswith("No difference in time; memory differs: ") and f"{32 << 20:+,} bytes" in compared(a, b).text


def test_the_sides_swapped_are_the_same_with_other_signs(tmp_path: Path) -> None:
    a, b = drawn(tmp_path / "a.json", 8, 5), drawn(tmp_path / "b.json", 6, 7)
    there, back = compared(a, b), compared(b, a)
    flipped = {c.name: replace(c, a=c.b, b=c.a, delta=-c.delta) for c in there.buckets}
    assert {c.name: (c.a, c.b, c.delta) for c in back.buckets} == {n: (c.a, c.b, c.delta) for n, c in flipped.items()}
