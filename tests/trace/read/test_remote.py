"""Paths of other machines: the same account as of the local files, read as a stream; nothing of it is imported for local ones."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from headway.spec.errors import TraceError
from headway.trace.diff.diff import diff
from headway.trace.explain import explain
from headway.trace.read.remote import Remote, path_of, paths_of
from headway.trace.read.source import blocks
from headway.trace.scaling.scale import scale
from tests.trace.drawing import draw, events
from tests.trace.read import nsys_file
from tests.trace.read.test_flight import job
from tests.trace.read.test_nsys import DRAWING, steps

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def memory() -> Iterator[Any]:
    """A file system in memory, empty before and after."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def upload(system: Any, folder: Path, to: str) -> None:
    for path in folder.iterdir():
        system.pipe_file(f"{to}/{path.name}", path.read_bytes())


def two_ranks(folder: Path) -> Path:
    for rank in (0, 1):
        path = draw(folder / f"rank{rank}.json", DRAWING, rank=rank, world=2)
        if rank:
            path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    return folder


def test_files_folders_and_patterns(tmp_path: Path, memory: Any) -> None:
    local = two_ranks(tmp_path)
    upload(memory, local, "/runs/a")
    expected = explain([local])
    for paths in (
        ["memory://runs/a"],
        ["memory://runs/a/"],
        ["memory://runs/a/rank*"],
        ["memory://runs/a/rank0.json", "memory://runs/a/rank1.json.gz"],
    ):
        found = explain(paths)
        assert steps(found) == steps(expected)
        assert found.health == expected.health
        assert [r.source for r in found.ranks] == ["memory:///runs/a/rank0.json", "memory:///runs/a/rank1.json.gz"] or len(paths) == 2


def test_other_formats(tmp_path: Path, memory: Any) -> None:
    path = nsys_file.write(tmp_path / "a.sqlite", nsys_file.tables(events(DRAWING)))
    memory.pipe_file("/b/a.sqlite", path.read_bytes())
    assert steps(explain(["memory://b/a.sqlite"])) == steps(explain([path]))
    (tmp_path / "dumps").mkdir()
    job(tmp_path / "dumps")
    upload(memory, tmp_path / "dumps", "/dumps")
    assert explain(["memory://dumps"]).flight == explain([tmp_path / "dumps"]).flight


def test_run_folder(tmp_path: Path, memory: Any) -> None:
    run = tmp_path / "run"
    draw(run / "traces" / "steps.rank0.json", DRAWING)
    (run / "events.jsonl").write_text('{"kind": "step", "step": 9, "start_ns": 5, "wall_ns": 7, "phases": {"forward": 7}}\n')
    memory.pipe_file("/run/traces/steps.rank0.json", (run / "traces" / "steps.rank0.json").read_bytes())
    memory.pipe_file("/run/events.jsonl", (run / "events.jsonl").read_bytes())
    assert steps(explain(["memory://run"])) == steps(explain([run]))
    assert 9 in [s.step for r in explain(["memory://run"]).ranks for s in r.steps]


def test_streams(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block of a large file costs no more than that."""
    memory.pipe_file("/large.json", bytes(32 << 20))
    asked = []
    real = type(memory.open("/large.json")).read
    monkeypatch.setattr(type(memory.open("/large.json")), "read", lambda self, n=-1: (asked.append(n), real(self, n))[1])
    next(blocks(path_of("memory://large.json"), 1 << 20))
    assert asked
    assert 0 < sum(asked) < 4 << 20


def test_nothing_there(memory: Any) -> None:
    with pytest.raises(TraceError, match="no such trace"):
        explain(["memory://gone.json"])
    with pytest.raises(TraceError, match="fits this pattern"):
        explain(["memory://gone/*.json"])
    memory.pipe_file("/c/notes.md", b"text")
    with pytest.raises(TraceError, match="no trace in this folder"):
        explain(["memory://c"])


def test_unknown_protocol_and_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceError, match="nowhere://x"):
        explain(["nowhere://x"])
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(TraceError) as error:
        explain(["memory://x"])
    assert "pip install 'headway[remote]'" in str(error.value)


def test_driver_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(url: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", raises)
    with pytest.raises(TraceError, match="pip install s3fs"):
        explain(["s3://bucket/x"])


def test_connection_that_breaks(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe_file("/x.json", b"[" * 100)

    def breaks(self: Any, n: int = -1) -> bytes:
        raise RuntimeError("token expired")

    monkeypatch.setattr(type(memory.open("/x.json")), "read", breaks)
    with pytest.raises(TraceError, match="token expired"):
        explain(["memory://x.json"])


@pytest.mark.parametrize(
    ("given", "remote"),
    [
        ("runs/a", False),
        ("/tmp/a:b", False),
        ("C:\\runs", False),
        ("a//b", False),
        ("s3://b/c", True),
        ("gs://b/*.json", True),
        ("zip::s3://b", True),
    ],
)
def test_what_is_remote(given: str, remote: bool) -> None:
    assert isinstance(path_of(given), Remote) is remote


def test_file_urls_and_paths_are_local(tmp_path: Path) -> None:
    assert path_of(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    assert paths_of(tmp_path / "x[1].json") == [tmp_path / "x[1].json"]


def test_local_paths_import_no_fsspec(tmp_path: Path) -> None:
    path = draw(tmp_path / "rank0.json", DRAWING)
    program = "import sys; from headway.trace.explain import explain; explain([sys.argv[1]]); assert 'fsspec' not in sys.modules"
    source = Path(__file__).parents[3] / "src"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, env={"PYTHONPATH": str(source)}, check=False
    )
    assert done.returncode == 0, done.stderr


def test_over_http(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    pytest.importorskip("requests")
    two_ranks(tmp_path)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        base = f"http://127.0.0.1:{server.server_port}"
        found = explain([f"{base}/rank0.json", f"{base}/rank1.json.gz"])
    finally:
        server.shutdown()
        server.server_close()
    assert steps(found) == steps(explain([tmp_path]))


def test_what_compares_reads_remote_paths_too(tmp_path: Path, memory: Any) -> None:
    upload(memory, two_ranks(tmp_path), "/runs/a")
    found = diff("memory://runs/a/rank0.json", tmp_path / "rank0.json")
    assert found.step.delta == 0 and found.busy is not None and found.busy.delta == 0
    with pytest.raises(TraceError, match="A and B are the same"):
        diff("memory://runs/a", "memory://runs/a")
    rows = "".join(f"dit,{8 << i},{64 << i},step_time,{1 + 0.05 * i}\n" for i in range(4))
    memory.pipe_file("/t/a.csv", ("model,n_gpus,batch,metric,value\n" + rows).encode())
    (ladder,) = scale(["memory://t/a.csv"]).ladders
    assert [r.size for r in ladder.rungs] == [8, 16, 32, 64]
    with pytest.raises(TraceError, match="is given twice"):
        scale(["memory://t/a.csv"], sheets=["memory://t/a.csv"])
