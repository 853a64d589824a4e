from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.bench import scaling


@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_the_largest_size_is_foretold(kind: scaling.Kind) -> None:
    found = scaling.synthetic(kind, 1)
    assert found["within_5_percent"] >= 0.95 and 0.9 <= found["interval_holds"] <= 1


def test_more_noise_is_worse() -> None:
    assert scaling.synthetic("weak", 1, noise=0.05)["p95_error"] > scaling.synthetic("weak", 1)["p95_error"]


def test_every_ladder_of_a_table_is_listed(tmp_path: Path) -> None:
    rows = [f"A,{8 << i},{64 << i},step_time,{1 + 0.01 * i}" for i in range(4)]
    rows += [f"B,{8 << i},{64 << i},step_time,{(1, 1, 1, 3)[i]}" for i in range(4)]  # what no law foretells
    rows += [f"C,{8 << i},{64 << i},step_time,1" for i in range(3)]  # too few
    (tmp_path / "runs.csv").write_text("model,n_gpus,batch,metric,value\n" + "\n".join(rows) + "\n")
    found = {p["ladder"]: p["holds"] for p in scaling.published(tmp_path / "runs.csv")}
    assert found == {"A": True, "B": False}


def test_the_result_of_the_repository_is_that_of_the_command(root: Path) -> None:
    kept = json.loads((root / "docs" / "results" / "scaling.json").read_text())
    assert kept["schema"] == scaling.SCHEMA and kept["passed"]
    assert [r["kind"] for r in kept["synthetic"]] == ["weak", "strong"]
    assert all(abs(p["error"]) <= scaling.PUBLISHED for p in kept["published"])
