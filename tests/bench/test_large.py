"""The benchmark of a large trace: copies that are no copies of each other's ids, costs that are counted, promises that are held."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.bench import large
from headway.bench.shifted import enlarge
from headway.spec.breakdown import group
from headway.spec.errors import RunError
from headway.trace.explain import explain
from tests.trace.drawing import draw

DRAWING = """
main   [S0                      ][S1           ]
main    [L1][L2]                  [L3]
0.7        [g1    ]                   [g3   ]
0.8            [n2    ]
"""


def test_copies_are_later_and_have_ids_of_their_own(tmp_path: Path) -> None:
    small = draw(tmp_path / "small.json", DRAWING)
    count, size = enlarge(small, tmp_path / "large.json", 5)
    events = json.loads((tmp_path / "large.json").read_text())["traceEvents"]
    assert (len(events), (tmp_path / "large.json").stat().st_size) == (count, size)
    ids = [e["args"]["correlation"] for e in events if e["cat"] == "cuda_runtime"]
    assert len(set(ids)) == len(ids) == 15
    once, five = explain([small]).ranks[0].steps, explain([tmp_path / "large.json"]).ranks[0].steps
    assert len(five) == 5 * len(once)
    busy = [sum(s.wall_ns - group(s.buckets).get("idle", 0) for s in steps) for steps in (once, five)]
    assert busy[1] == 5 * busy[0]


def test_a_process_is_counted() -> None:
    burn = "b = bytearray(200_000_000); x = sum(range(20_000_000))"
    cost = large.cost([sys.executable, "-c", burn])
    assert cost.cpu_s > 0.1
    assert cost.peak_mb > 200
    with pytest.raises(RunError, match="boom"):
        large.cost([sys.executable, "-c", "raise ValueError('boom')"])


@pytest.mark.alone
def test_everything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "PEER", "x = sum(range(60_000_000))")
    monkeypatch.setattr(large, "PEER_VERSION", "print('0.5.0', '2', '2')")
    monkeypatch.setattr(large, "COPIES", (1, 2, 3))
    result = large.measure(draw(tmp_path / "small.json", DRAWING), sys.executable, 1)
    assert result["events"] == result["sizes"][-1]["events"] == 3 * result["sizes"][0]["events"]
    assert 0 < result["headway"]["cpu_s"] / result["peer"]["cpu_s"] == pytest.approx(result["cpu_over_peer"], rel=0.01)
    assert set(result["stages_cpu_s"]) == {"decode", "columns", "analysis"}
    assert "the next limit" in large.told(result)
    assert isinstance(result["holds"], bool)


@pytest.mark.parametrize(
    ("field", "value", "holds"),
    [("cpu_over_peer", 0.125, True), ("cpu_over_peer", 0.126, False), ("memory_over_peer", 0.61, False), ("growth", 1.26, False)],
)
def test_what_is_promised(field: str, value: float, holds: bool) -> None:
    result: dict[str, Any] = {"cpu_over_peer": 0.1, "memory_over_peer": 0.5, "growth": 1.0, field: value}
    assert large._holds(result) is holds
