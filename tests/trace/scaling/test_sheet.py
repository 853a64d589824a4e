from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from headway.report.scaling import print_scaling
from headway.report.scaling_page import scaling_page
from headway.spec.errors import TraceError
from headway.spec.scaling import to_json
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
    (point,), left_out = read_sheet(sheet(tmp_path / "a.csv", HEAD + row + "\n"))
    assert not left_out
    assert point.time == pytest.approx(seconds) and point.relative == relative and point.size == 8


WRONG = {
    "8,64,,peak_memory,40,GB": "its metric is no figure that says how long a step takes (line 2: 'peak_memory')",
    ",64,,step_time,2,s": "n_gpus is no whole number from 1 up (line 2)",
    "8.5,64,,step_time,2,s": "n_gpus is no whole number from 1 up (line 2: '8.5')",
    "0,64,,step_time,2,s": "n_gpus is not between 1 and 1e+09 (line 2: '0')",
    "1e300,64,,step_time,2,s": "n_gpus is not between 1 and 1e+09 (line 2: '1e300')",
    "8,64,,step_time,,s": "it has no value (line 2)",
    "8,64,,step_time,2,parsec": "its unit is none of s, ms, us, min (line 2: 'parsec')",
    "8,64,,step_time,inf,s": "value is not between",
    "8,64,,step_time,nan,s": "value is not between",
    "8,64,,step_time,5e-324,s": "value is not between",
    "8,64,,step_time,1e308,s": "value is not between",
    "8,64,,step_time,-1,s": "value is not between",
    "8,0,,step_time,1,s": "batch is not between 1e-09 and 1e+15 (line 2: '0')",
    "8,-4,,step_time,1,s": "batch is not between",
    "8,many,,step_time,1,s": "batch is no number (decimals have a point, thousands no mark) (line 2: 'many')",
    "8,64,-2048,tokens_s,1,": "seq_len is not between",
    "8,64,0,tokens_s,1,": "seq_len is not between",
    "8,64,,step_time,1,024,s": "more cells than the head has columns (put quotes around a cell that holds the delimiter) (line 2: 's')",
}


@pytest.mark.parametrize("row", WRONG)
def test_rows_that_cannot_be_used_are_said(tmp_path: Path, row: str) -> None:
    points, (note,) = read_sheet(sheet(tmp_path / "a.csv", HEAD + f"dit,{row}\n"))
    assert not points and note.startswith("a.csv: 1 row is left out: ") and WRONG[row] in note


def test_rows_of_one_kind_are_counted_and_the_first_named(tmp_path: Path) -> None:
    rows = ["8,64,,step_time,1,s", "", "16,128,,step_time,1,s", "8,0,,step_time,1,s", "8,64,,mem,1,GB", "16,-1,,step_time,1,s"]
    path = sheet(tmp_path / "a.csv", HEAD + "".join(f"{row and 'dit,' + row}\n" for row in rows))
    found = scale([path])
    assert found.apart == (
        "a.csv: 2 rows are left out: batch is not between 1e-09 and 1e+15 (first line 5: '0')",
        "a.csv: 1 row is left out: its metric is no figure that says how long a step takes (line 6: 'mem')",
    )
    assert [r.sources for r in found.ladders[0].rungs] == [("a.csv:2",), ("a.csv:4",)]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_other_delimiters(tmp_path: Path, delimiter: str) -> None:
    text = (HEAD + "dit,8,64,,step_time,2.5,s\n").replace(",", delimiter)
    (point,), _ = read_sheet(sheet(tmp_path / "a.csv", text))
    assert (point.size, point.batch, point.time) == (8, 64.0, 2.5)
    _, (note,) = read_sheet(sheet(tmp_path / "b.csv", text.replace("2.5", "2,5")))
    assert "value is no number (decimals have a point, thousands no mark) (line 2: '2,5')" in note


CELL = st.one_of(
    st.sampled_from(["", "-", "0", "-1", "5e-324", "1e308", "1e-9", "1e15", "1e300", "1e-300", "nan", "inf", "8", "x", '"', "\x00", "1e9"]),
    st.integers(1, 64).map(str), st.floats(allow_nan=False).map(str),
)  # fmt: skip
METRIC = st.sampled_from(["step_time", "samples_s", "tokens_s", "mfu", "tflops_per_gpu", "", "memory"])


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(CELL, CELL, CELL, METRIC, CELL, st.sampled_from(["s", "us", "min", ""])), max_size=8))
def test_whatever_a_table_holds_is_an_answer_or_one_paragraph(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    path = sheet(tmp_path / "a.csv", HEAD + "".join(f"dit,{','.join(row)}\n" for row in rows))
    try:
        found = scale([path])
    except TraceError:
        return
    assert scaling_page(found).startswith("<!doctype html>")
    print_scaling(found, Console(file=io.StringIO(), width=80))
    json.dumps(to_json(found), allow_nan=False)


@pytest.mark.parametrize("metric", ["step_time", "tokens_s", "mfu"])
@pytest.mark.parametrize("strong", [False, True])
def test_the_ends_of_what_a_figure_can_be(tmp_path: Path, metric: str, strong: bool) -> None:
    rows = [f"dit,{8 << i},{1e15 if strong else 1e-9 * (8 << i)},1e15,{metric},{v},\n" for i, v in enumerate((1e-9, 1e15, 1e-9, 1e15, 1))]
    found = scale([sheet(tmp_path / "a.csv", HEAD + "".join(rows))])
    assert len(found.ladders[0].rungs) == 5 and scaling_page(found).startswith("<!doctype html>")
    print_scaling(found, Console(file=io.StringIO(), width=80))
    json.dumps(to_json(found), allow_nan=False)


def test_other_columns_are_the_configuration(tmp_path: Path) -> None:
    rows = ["8,32,1,step_time,1", "16,64,1,step_time,1.1", "16,64,2,step_time,1.2", "32,128,2,step_time,1"]
    text = "model,gpus,global_batch,tp,metric,value\n" + "".join(f"A,{row}\n" for row in rows)
    groups, _ = ladders(read_sheet(sheet(tmp_path / "a.csv", text))[0])
    assert sorted((g.name, [p.size for p in g.points]) for g in groups) == [("A, tp 1", [8, 16]), ("A, tp 2", [16, 32])]


def test_columns_under_other_names(tmp_path: Path) -> None:
    text = "# GPUs,Global batch size,Layers,Iteration time (ms)\n8,64,24,100\n16,128,24,104\n8,64,48,200\n16,128,48,202\n"
    groups, _ = ladders(read_sheet(sheet(tmp_path / "a.csv", text))[0])
    assert sorted((g.name, [round(p.time, 9) for p in g.points]) for g in groups) == [
        ("table, layers 24", [0.1, 0.104]), ("table, layers 48", [0.2, 0.202])
    ]  # fmt: skip
    (point,), _ = read_sheet(sheet(tmp_path / "b.csv", "model,world_size,samples_s\ndit,2,190\n"))
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
    groups, _ = ladders(read_sheet(shared / "published" / "published_runs.csv")[0])
    errors = {g.name: held_out(g) for g in groups if len(g.points) > 3}
    assert len(errors) >= 10
    assert all(e is not None and abs(e) <= 0.10 for e in errors.values()), errors
