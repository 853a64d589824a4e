from __future__ import annotations

from pathlib import Path

import pytest

from headway.spec.errors import TraceError
from headway.trace.scaling.ladder import ladders
from headway.trace.scaling.scale import held_out, scale
from headway.trace.scaling.sheet import read_sheet

HEAD = "model,n_gpus,batch,seq_len,metric,value,unit\n"


def sheet(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("row", "seconds", "relative"),
    [
        ("dit,8,64,,iteration_time,2,s", 2.0, False),
        ("dit,8,64,,step_time,250,ms", 0.25, False),
        ("dit,8,64,,samples_s,32,", 2.0, False),
        ("dit,8,64,2048,tokens_s,65536,", 2.0, False),
        ("dit,8,64,2048,tps_per_gpu,8192,tokens/s/GPU", 2.0, False),
        ("dit,8,64,,mfu,40,%", 64 / (8 * 40), True),
        ("dit,8,,,tflops_per_gpu,400,TFLOP/s/GPU", 1 / 400, True),
    ],
)
def test_every_kind_of_figure(tmp_path: Path, row: str, seconds: float, relative: bool) -> None:
    (point,) = read_sheet(sheet(tmp_path / "a.csv", HEAD + row + "\n"))
    assert point.time == pytest.approx(seconds) and point.relative == relative and point.size == 8


def test_rows_without_a_figure_are_passed_over(tmp_path: Path) -> None:
    rows = ["8,64,,peak_memory,40,GB", ",64,,step_time,2,s", "8,64,,step_time,,s", "8,64,,step_time,2,parsec", "8,64,,step_time,inf,s"]
    assert read_sheet(sheet(tmp_path / "a.csv", HEAD + "".join(f"dit,{row}\n" for row in rows))) == []


def test_other_columns_are_the_configuration(tmp_path: Path) -> None:
    rows = ["8,32,1,step_time,1", "16,64,1,step_time,1.1", "16,64,2,step_time,1.2", "32,128,2,step_time,1"]
    text = "model,gpus,global_batch,tp,metric,value\n" + "".join(f"A,{row}\n" for row in rows)
    groups, _ = ladders(read_sheet(sheet(tmp_path / "a.csv", text)))
    assert sorted((g.name, [p.size for p in g.points]) for g in groups) == [("A, tp 1", [8, 16]), ("A, tp 2", [16, 32])]


def test_columns_under_other_names(tmp_path: Path) -> None:
    text = "# GPUs,Global batch size,Layers,Iteration time (ms)\n8,64,24,100\n16,128,24,104\n8,64,48,200\n16,128,48,202\n"
    groups, _ = ladders(read_sheet(sheet(tmp_path / "a.csv", text)))
    assert sorted((g.name, [round(p.time, 9) for p in g.points]) for g in groups) == [
        ("table, layers 24", [0.1, 0.104]), ("table, layers 48", [0.2, 0.202])
    ]  # fmt: skip
    (point,) = read_sheet(sheet(tmp_path / "b.csv", "model,world_size,samples_s\ndit,2,190\n"))
    assert (point.size, point.family) == (2, "dit")


def test_a_table_without_its_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"has no column n_gpus, metric.*model, n_gpus, batch, metric, value, unit"):
        read_sheet(sheet(tmp_path / "a.csv", "model,value\nA,1\n"))
    with pytest.raises(TraceError, match="cannot be read as a table"):
        (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00\x81")
        read_sheet(tmp_path / "b.csv")


def test_a_table_is_a_path_too(tmp_path: Path) -> None:
    text = HEAD + "".join(f"dit,{8 << i},{64 << i},,step_time,{1 + 0.05 * i},s\n" for i in range(4))
    (ladder,) = scale([sheet(tmp_path / "a.csv", text)]).ladders
    assert ladder.kind == "weak" and [r.size for r in ladder.rungs] == [8, 16, 32, 64] and ladder.law is not None


def test_published_ladders_are_foretold_within_ten_per_cent(shared: Path) -> None:
    groups, _ = ladders(read_sheet(shared / "published" / "published_runs.csv"))
    errors = {g.name: held_out(g) for g in groups if len(g.points) > 3}
    assert len(errors) >= 10
    assert all(e is not None and abs(e) <= 0.10 for e in errors.values()), errors
