"""Points from a table: a CSV file with a measured figure a row, of a team's own or of publications.

    model,n_gpus,batch,metric,value,unit           what is needed; or the figure as a column of its name: "Iteration time (ms)"
    ...,seq_len,tp,pp,precision,gpu,source,...     whatever else there is: equal on a ladder

Case, spaces and signs of names do not matter, and common other names are known (gpus, global_batch_size, ...).

Figures: a step time (iteration_time, step_time, train_step_time; unit s or ms), a rate of all devices (samples_s, tokens_s) or of one
(tps_per_gpu, samples_per_gpu, tflops_per_gpu, model_tflops_per_gpu, mfu). From a rate the time of a step is batch x seq_len / rate;
where that cannot be counted in seconds (TFLOP/s, MFU), times are relative to the smallest size.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headway.spec.errors import TraceError
from headway.spec.scaling import Point

_TIMES: Final = ("iteration_time", "step_time", "train_step_time")
_ALL: Final = ("samples_s", "tokens_s", "throughput")  # of all devices
_ONE: Final = ("tps_per_gpu", "tokens_s_per_gpu", "samples_per_gpu", "tflops_per_gpu", "model_tflops_per_gpu", "mfu")
_NEEDED: Final = ("n_gpus", "metric", "value")
_DELIMITERS: Final = (",", ";", "\t", "|")
_NOTHING: Final = ("", "-", "na", "n/a", "none", "null")  # how a cell says that it is empty
_RANGE: Final = (1e-9, 1e15)  # of a figure, a batch, a length of sequences: beyond, it is a slip
_UNITS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
_SPELT: Final = {  # other names of columns, after case, spaces and signs are gone
    **dict.fromkeys(("gpus", "num_gpus", "devices", "num_devices", "world_size", "n", "size"), "n_gpus"),
    **dict.fromkeys(("global_batch", "global_batch_size", "batch_size"), "batch"),
    **dict.fromkeys(("micro_batch_size", "mbs"), "micro_batch"),
    **dict.fromkeys(("sequence_length", "seq_length"), "seq_len"),
    **dict.fromkeys(("data_parallelism", "data_parallel", "data_parallel_size"), "dp"),
}
# Differ from size to size of one configuration, or say nothing of it. dp is what is left of the size by the other axes.
_NOT_CONFIGURATION: Final = frozenset(("id", "n_gpus", "batch", "micro_batch", "dp", "value", "unit", "notes"))


class _Unusable(Exception):
    """A row that gives no point: what is wrong with all rows of its kind, and what this one says."""


def read_sheet(path: Path) -> tuple[list[Point], list[str]]:
    """(a point for each row that says how long a step takes, what the other rows lack, each kind once with its first row).

    Columns are parted by commas, semicolons, tabs or bars, whichever shows the columns that are needed. Raises TraceError if the file
    cannot be read, or lacks such a column.
    """
    try:
        with path.open("rb") as file:
            text = file.read().decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(_DELIMITERS, key=lambda d: _columns(text, d)))
        columns = list(_spelt(dict.fromkeys(reader.fieldnames or (), "")))
        rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"cannot be read as a table ({error})", where=str(path), fix="Give a CSV file in UTF-8.") from None
    if missing := [c for c in _NEEDED if c not in columns]:
        fix = "It needs the columns model, n_gpus, batch, metric, value, unit."
        raise TraceError(f"has no column {', '.join(missing)}", where=str(path), fix=fix)
    points: list[Point] = []
    wrong: dict[str, list[str]] = {}
    for line, row in rows:
        try:
            points.append(_point(_cells(row), f"{path.name}:{line}"))
        except _Unusable as error:
            why, said = error.args
            wrong.setdefault(why, []).append(f"line {line}: {said[:40]!r}" if said else f"line {line}")
    return points, [_left_out(path.name, why, places) for why, places in wrong.items()]


def _left_out(name: str, why: str, places: list[str]) -> str:
    many = len(places) > 1
    return f"{name}: {len(places):,} row{'s are' if many else ' is'} left out: {why} ({'first ' * many}{places[0]})"


def _columns(text: str, delimiter: str) -> int:
    """How many of the columns that are needed the head has, parted so."""
    return sum(c in _NEEDED for c in _spelt(dict.fromkeys(next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), ()), "")))


def _cells(row: Mapping[str | None, Any]) -> dict[str, str]:
    """A row under our names; raises _Unusable if it has more cells than there are columns."""
    if over := [cell for cell in row.get(None) or () if cell.strip()]:
        raise _Unusable("more cells than the head has columns (put quotes around a cell that holds the delimiter)", over[0])
    return _spelt({k or "": v.strip() for k, v in row.items() if isinstance(v, str)})


def _spelt(row: Mapping[str, str]) -> dict[str, str]:
    """A row under our names of columns; a column named as a figure (step_time_ms) is that figure."""
    clean = {re.sub(r"\W+", "_", k.lower()).strip("_"): v for k, v in row.items()}
    out = {_SPELT.get(name, name): value for name, value in clean.items()}
    for name in [] if "metric" in out else list(out):
        figure, _, unit = name.rpartition("_")
        if name in (*_TIMES, *_ALL, *_ONE):
            return out | {"metric": name, "value": out.pop(name)}
        if figure in _TIMES and unit in _UNITS:
            return out | {"metric": figure, "value": out.pop(name), "unit": unit}
    return out


def _point(row: Mapping[str, str], place: str) -> Point:
    metric = row.get("metric", "").lower()
    if metric not in (*_TIMES, *_ALL, *_ONE):
        raise _Unusable("its metric is no figure that says how long a step takes", row.get("metric", ""))
    size, value, batch, tokens = (_number(row, c) for c in ("n_gpus", "value", "batch", "seq_len"))
    if size is None or size != int(size):
        raise _Unusable("n_gpus is no whole number from 1 up", row.get("n_gpus", ""))
    if value is None:
        raise _Unusable("it has no value", "")
    seconds, relative = _time(metric, row, value, size, batch, tokens)
    configuration = {k: v for k, v in row.items() if v and k not in _NOT_CONFIGURATION}
    if row.get("fsdp", "") in (row["n_gpus"], row.get("dp")):
        configuration["fsdp"] = "all"  # sharded over all data-parallel ranks: one layout at every size
    return Point(
        source=row.get("id") or place,
        family=row.get("model", "") or "table",
        configuration=configuration,
        size=int(size),
        batch=batch,
        time=seconds,
        relative=relative,
        mfu=value / 100 if metric == "mfu" and value > 1 else value if metric == "mfu" else None,
        micro_batch=row.get("micro_batch", ""),
    )


def _time(metric: str, row: Mapping[str, str], value: float, size: float, batch: float | None, tokens: float | None) -> tuple[float, bool]:
    """(time of a step, whether its unit is not known); a rate without a batch is taken as that of one sample a device."""
    if metric in _TIMES:
        unit = row.get("unit", "").lower() or "s"
        if unit not in _UNITS:
            raise _Unusable(f"its unit is none of {', '.join(_UNITS)}", row["unit"])
        return value * _UNITS[unit], False
    work = (batch or size) / (value * (size if metric in _ONE else 1.0))
    per_token = metric.startswith(("tps", "tokens"))
    counted = batch is not None and (tokens is not None or not per_token) and not metric.endswith(("tflops_per_gpu", "mfu"))
    return work * ((tokens if per_token else None) or 1.0), not counted


def _number(row: Mapping[str, str], column: str) -> float | None:
    """What a column says; None where it says nothing. Raises _Unusable where it says no number that such a column can hold."""
    text = row.get(column, "")
    if text.lower() in _NOTHING:
        return None
    try:
        value = float(text)
    except ValueError:
        raise _Unusable(f"{column} is no number (decimals have a point, thousands no mark)", text) from None
    low, high = (1.0, 1e9) if column == "n_gpus" else _RANGE
    if not low <= value <= high:
        raise _Unusable(f"{column} is not between {low:g} and {high:g}", text)
    return value
