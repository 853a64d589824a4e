"""Sizes from traces: simulated clusters of 1 to 8 ranks, whose growth in communication is found and continued."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.spec.errors import TraceError
from headway.trace.scaling.runs import ladders
from tests.trace.cluster import Cluster
from tests.trace.simulate import simulate, write


def made(tmp_path: Path, sizes: tuple[int, ...]) -> list[str]:
    """Traces of a weak ladder in which a gradient reduction takes longer with each rank."""
    out = []
    for n in sizes:
        cluster = Cluster(mesh={"dp": n}, steps=4, layers=2, kernels=2, hop_ns=60_000, overlap=False, noise=0.002, seed=n)
        write(simulate(cluster), tmp_path / f"n{n}")
        out.append(str(tmp_path / f"n{n}"))
    return out


def test_a_ladder_of_traces(tmp_path: Path) -> None:
    (found,) = ladders(made(tmp_path, (2, 4, 8)))
    assert (found.mode, found.name) == ("weak", "traces") and any("--strong" in n for n in found.notes)
    assert [p.devices for p in found.points] == [2, 4, 8]
    for p in found.points:
        assert (sum(p.buckets.values()) == pytest.approx(p.profiled, rel=1e-9) and p.num_steps == 4) or p.num_steps == 3
    assert found.efficiency[0] == 1 and found.efficiency[1] > found.efficiency[2]
    for loss, p in zip(found.losses, found.points[1:], strict=True):
        assert p.profiled is not None and found.points[0].profiled is not None
        assert sum(loss.buckets.values()) == pytest.approx(p.profiled - found.points[0].profiled, rel=1e-6)
        assert next(iter(loss.buckets)).startswith("comm."), "what was planted"
    (strong,) = ladders([p.source for p in found.points], strong=True)
    assert strong.mode == "strong" and strong.efficiency[-1] < found.efficiency[-1]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = made(tmp_path, (1, 2, 4))
    assert main(["scale", *paths, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "headway.scaling/1" and [p["devices"] for p in told["ladders"][0]["points"]] == [1, 2, 4]
    assert main(["scale", *paths, "--html", str(tmp_path / "s.html")]) == 0
    said = capsys.readouterr().out
    assert "weak: each device has as many samples" in said and "next: 8 devices" in said and "100.0 %" in said
    page = (tmp_path / "s.html").read_text()
    assert "Where a profiled step goes" in page and "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize(("words", "text"), [(["a"], "is given twice"), ([], "no configuration has two sizes")])
def test_what_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    (path,) = made(tmp_path, (1,))
    assert main(["scale", path, *(path for _ in words)]) == 2
    assert text in capsys.readouterr().err


def test_a_path_that_is_no_trace(tmp_path: Path) -> None:
    (path,) = made(tmp_path, (1,))
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(TraceError):
        ladders([path, str(tmp_path / "x.json")])
