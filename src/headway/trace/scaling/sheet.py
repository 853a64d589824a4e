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
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headway.spec.errors import TraceError
from headway.spec.scaling import Point

_TIMES: Final = ("iteration_time", "step_time", "train_step_time")
_ALL: Final = ("samples_s", "tokens_s", "throughput")  # of all devices
_ONE: Final = ("tps_per_gpu", "tokens_s_per_gpu", "samples_per_gpu", "tflops_per_gpu", "model_tflops_per_gpu", "mfu")
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


def read_sheet(path: Path) -> list[Point]:
    """All rows whose figure is known. Raises TraceError if the file cannot be read, or lacks a column that is needed."""
    try:
        with io.TextIOWrapper(path.open("rb"), encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            columns = list(_spelt(dict.fromkeys(reader.fieldnames or (), "")))
            rows = [_spelt({k or "": v.strip() for k, v in row.items() if isinstance(v, str)}) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"cannot be read as a table ({error})", where=str(path), fix="Give a CSV file in UTF-8.") from None
    missing = [c for c in ("n_gpus", "metric", "value") if c not in columns]
    if missing:
        fix = "It needs the columns model, n_gpus, batch, metric, value, unit."
        raise TraceError(f"has no column {', '.join(missing)}", where=str(path), fix=fix)
    return [point for i, row in enumerate(rows, 2) if (point := _point(row, f"{path.name}:{i}")) is not None]


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


def _point(row: Mapping[str, str], place: str) -> Point | None:
    size, value, batch = (_number(row.get(c, "")) for c in ("n_gpus", "value", "batch"))
    metric = row.get("metric", "").lower()
    if size is None or size < 1 or size != int(size) or value is None or value <= 0:
        return None
    time = _time(metric, row, value, size, batch)
    if time is None:
        return None
    seconds, relative = time
    configuration = {k: v for k, v in row.items() if v and k not in _NOT_CONFIGURATION}
    if _number(row.get("fsdp", "")) in (size, _number(row.get("dp", ""))):
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


def _time(metric: str, row: Mapping[str, str], value: float, size: float, batch: float | None) -> tuple[float, bool] | None:
    """(time of a step, whether its unit is not known); a rate without a batch is taken as that of one sample a device."""
    if metric in _TIMES:
        scale = _UNITS.get(row.get("unit", "s").lower() or "s")
        return None if scale is None else (value * scale, False)
    if metric not in (*_ALL, *_ONE):
        return None
    work = (batch or size) / (value * (size if metric in _ONE else 1.0))
    tokens = _number(row.get("seq_len", "")) if metric.startswith(("tps", "tokens")) else 1.0
    counted = batch is not None and tokens is not None and not metric.endswith(("tflops_per_gpu", "mfu"))
    return (work * (tokens or 1.0), not counted)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
