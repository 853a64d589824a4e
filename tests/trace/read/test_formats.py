"""Which reader takes which file: by content, whatever the file is called, and never one that is another's."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from headway.report.page import page
from headway.spec.breakdown import to_json
from headway.trace.explain import explain
from headway.trace.read.file import READERS, known
from headway.trace.read.source import head
from tests.trace.drawing import events
from tests.trace.read import nsys_file, test_flight, test_nccl_log, test_ncu, test_xplane, xspace_file

NSYS, XPLANE, FLIGHT, NCU, NCCL, KINETO = "Nsight Systems", "XPlane", "flight recorder", "Nsight Compute", "NCCL log", "Kineto"


def reader(path: Path) -> str:
    first = head(path)
    return next(r for r in READERS if r.suits(path, first)).name


def samples(folder: Path) -> dict[str, bytes]:
    import pickle

    log = [*test_nccl_log.rank(0), *test_nccl_log.rank(1)]
    return {
        NSYS: nsys_file.write(folder / "x", nsys_file.tables(events(test_xplane.DRAWING))).read_bytes(),
        XPLANE: xspace_file.drawn(test_xplane.DRAWING),
        FLIGHT: pickle.dumps(test_flight.dump(test_flight.entry(1))),
        NCU: test_ncu.long(test_ncu.LAUNCHES).encode(),
        NCCL: "\n".join(log).encode(),
        KINETO: json.dumps({"traceEvents": events(test_xplane.DRAWING)}).encode(),
    }


@pytest.mark.parametrize("ending", ["", ".json", ".csv", ".pickle", ".log", ".bin"])
def test_content_decides(tmp_path: Path, ending: str) -> None:
    for name, data in samples(tmp_path).items():
        for body in (data, gzip.compress(data)):
            path = tmp_path / f"file{ending}"
            path.write_bytes(body)
            assert reader(path) == name, (name, ending)
            assert known(path) is (name != KINETO)


@pytest.mark.parametrize(
    "text",
    [
        '{"schemaVersion": 1, "distributedInfo": {"nccl_version": "2.27", "pg_config": [], "pg_status": {}}, "traceEvents": []}',
        '\n{"traceEvents": [], "entries": [], "pg_config": {}}',
        '\n[{"name": "/host:CPU /device:GPU:0", "ph": "X"}]',
        '{"traceEvents": [{"name": "NCCL INFO opCount", "ph": "X", "args": {"ID": 1, "Kernel Name": "k"}}]}',
        '[{"name": "==PROF== NCCL WARN segments device_traces", "ph": "X"}]',
        "hello",
        "ID,name\n1,2\n",
    ],
)
def test_words_of_others_inside_a_trace(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert reader(tmp_path / "a.json") == KINETO


def test_all_at_once(tmp_path: Path) -> None:
    """A folder of every kind: one answer, the same from a pool of processes, and every section of it is there."""
    data = samples(tmp_path)
    (tmp_path / "x").unlink()
    names = {NSYS: "report", XPLANE: "jax.xplane.pb", FLIGHT: "_dump_0", NCU: "kernels.csv", NCCL: "nccl.log", KINETO: "rank7.json"}
    for kind, body in data.items():
        (tmp_path / names[kind]).write_bytes(body)
    found = explain([tmp_path])
    assert sorted(Path(r.source).name for r in found.ranks) == ["jax.xplane.pb", "rank7.json", "report"]
    one = to_json(found)
    assert {"flight", "nccl", "counters"} <= one.keys()
    assert to_json(explain([tmp_path], workers=2)) == one
    for text in ("flight recorders", "NCCL", "Nsight Compute"):
        assert text in page(breakdown=found)


def test_real_files(shared: Path) -> None:
    """Every file of every tool that is there."""
    found: dict[str, int] = {}
    for path in (shared / "traces").rglob("*"):
        if not path.is_file() or "peer_outputs" in path.parts or not path.stat().st_size:
            continue
        name = reader(path)
        expected = (
            NSYS if path.suffix == ".sqlite"
            else XPLANE if path.name.endswith(".xplane.pb")
            else FLIGHT if path.name.startswith("_dump_")
            else KINETO
        )  # fmt: skip
        assert name == expected, path
        found[name] = found.get(name, 0) + 1
    assert min(found.get(name, 0) for name in (NSYS, XPLANE, FLIGHT, KINETO)) > 0
