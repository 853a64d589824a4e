"""Tables of measured runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.spec.errors import TraceError
from headway.trace.scaling.sheet import ladders, step_of

TABLE = """\ufeffid,model,tp,n_gpus,dp,global_batch,metric,value,unit,notes
1,7B,1,8,8,64,iteration_time,4000,ms,"a, b"
2,7B,1,16,16,128,iteration_time,4.2,s,
3,7B,1,32,32,256,iteration_time,4.4,s,
4,7B,2,8,4,64,iteration_time,5,s,
5,7B,2,16,8,64,iteration_time,2.7,s,
6,13B,1,8,8,64,iteration_time,9,s,
7,7B,1,64,64,512,peak_memory,70,GiB,
8,7B,1,,64,512,iteration_time,4,s,
9,7B,1,64,64,512,iteration_time,nan,s,
10,7B,1,8,8,64,mfu,40,%,
11,7B,1,16,16,128,mfu,38,%,
"""


def table(tmp_path: Path, text: str) -> Path:
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    return tmp_path / "t.csv"


def test_rows_of_one_configuration_are_a_ladder(tmp_path: Path) -> None:
    found, notes = ladders(table(tmp_path, TABLE))
    assert [(x.name, x.mode, len(x.points), x.relative) for x in found] == [
        ("7B, tp 1, iteration_time", "weak", 3, False), ("7B, tp 2", "strong", 2, False), ("7B, tp 1, mfu", "weak", 2, True),
    ]  # fmt: skip
    assert [p.step for p in found[0].points] == [4e9, 4.2e9, 4.4e9] and found[0].points[0].source == "1"
    assert found[2].efficiency == pytest.approx((1, 38 / 40))
    assert notes == ["1 rows of metrics that are no speed are left out", "2 rows without a size or a value are left out",
                     "1 rows of configurations with one size are left out"]  # fmt: skip


def test_metrics_become_step_times() -> None:
    assert step_of("samples_s", 100, "", 8, 50, None) == 0.5e9
    assert step_of("samples_s_per_gpu", 100, "", 8, 800, None) == 1e9
    assert step_of("tps_per_gpu", 1000, "tokens/s/GPU", 8, 16, 2048) == pytest.approx(16 * 2048 / 8000 * 1e9)
    assert step_of("tokens_s", 8192, "", 8, 16, 2048) == 4e9
    assert step_of("step_time", 3, "fortnights", 8, 16, None) is None
    assert step_of("mfu", 50, "%", 8, 16, None) == 16 / 8 / 50


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "\x00\x01", 'n_gpus,metric,value\n"8,mfu,1\n'])
def test_what_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError) as error:
        ladders(table(tmp_path, text))
    assert error.value.fix and error.value.where.endswith("t.csv")


def test_no_such_table(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        ladders(tmp_path / "none.csv")


def test_columns_under_other_names(tmp_path: Path) -> None:
    text = "# GPUs,Global batch,Layers,Iteration time (ms)\n8,64,24,100\n16,128,24,104\n8,64,48,200\n16,128,48,202\n"
    found, notes = ladders(table(tmp_path, text))
    assert [(x.name, [p.step for p in x.points]) for x in found] == [
        ("layers 24", [1e8, 1.04e8]),
        ("layers 48", [2e8, 2.02e8]),
    ] and not notes
    found, _ = ladders(table(tmp_path, "world_size,samples_s\n1,100\n2,190\n"))
    assert found[0].efficiency == pytest.approx((1, 0.95)) and found[0].mode == "weak"


def test_micro_batches_are_apart_only_where_they_are_compared(tmp_path: Path) -> None:
    rows = ["8,64,4,1.0", "16,128,2,1.1", "32,256,2,1.2"]
    head = "n_gpus,global_batch,micro_batch,step_time\n"
    (one,), _ = ladders(table(tmp_path, head + "\n".join(rows)))
    assert len(one.points) == 3
    found, _ = ladders(table(tmp_path, head + "\n".join([*rows, "16,128,4,1.05", "32,256,4,1.1"])))
    assert [(x.name, len(x.points)) for x in found] == [("micro_batch 4", 3), ("micro_batch 2", 2)]
