"""Ladders from a table of measured runs: a CSV file, one measured figure a row.

    model,n_gpus,global_batch,metric,value,unit
    7B,8,64,iteration_time,4.03,s
    7B,32,256,iteration_time,4.37,s

Needed: n_gpus, metric, value; in place of the last two a column named as a metric, with its unit if it is a time (iteration_time_ms).
Case, spaces and signs of names do not matter ("# GPUs", "Iteration time (ms)"). Used where they are there: global_batch (else as many
samples on every device), seq_len (tokens of a sample), unit. What scales with the size (dp, numbers under fsdp) and remarks (id, notes)
are no part of a configuration, nor is micro_batch, unless a size was measured with several; every other column is, so rows that differ
in one are different ladders.
"""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headway.spec.errors import TraceError
from headway.spec.scaling import Ladder, Point
from headway.trace.scaling.ladder import ladder

Configuration = tuple[tuple[str, str], ...]  # (column, value) of what makes a ladder
REMARKS: Final = frozenset({"id", "notes", "micro_batch", "n_gpus", "global_batch", "value", "dp"})
_FIRST: Final = ("model", "gpu", "tp", "pp", "cp", "ep", "precision", "ac", "seq_len", "fsdp", "metric")  # columns that name a ladder first
_PLAIN: Final = ("gpu", "precision", "source", "metric")  # whose values speak for themselves
_DEGREES: Final = ("fsdp",)
_SECONDS: Final = {"s": 1e9, "": 1e9, "sec": 1e9, "seconds": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
TIMES: Final = ("iteration_time", "train_step_time", "step_time")
RATES: Final = {"samples_s": (False, False), "samples_s_per_gpu": (True, False), "tokens_s": (False, True), "tps_per_gpu": (True, True)}
WORK: Final = ("tflops_per_gpu", "model_tflops_per_gpu", "mfu", "hfu")  # known up to the FLOPs of a sample
_SPELT: Final = {
    **dict.fromkeys(("gpus", "num_gpus", "devices", "num_devices", "world_size", "world"), "n_gpus"),
    **dict.fromkeys(("global_batch_size", "batch_size", "batch"), "global_batch"),
    **dict.fromkeys(("micro_batch_size", "mbs"), "micro_batch"),
    **dict.fromkeys(("sequence_length", "seq_length"), "seq_len"),
    **dict.fromkeys(("data_parallelism", "data_parallel"), "dp"),
}  # fmt: skip
FIX: Final = f"Columns: n_gpus, metric ({', '.join((*TIMES, *RATES, *WORK))}), value; see headway scale --help."


def ladders(path: Path) -> tuple[list[Ladder], list[str]]:
    """The ladders of a table, those of two sizes or more; and what was left out. Raises TraceError if it is no such table."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"cannot be read as CSV ({error})", where=str(path), fix=FIX) from None
    rows = [_spelt(row) for row in rows]
    if not rows or not {"n_gpus", "metric", "value"} <= set(rows[0]):
        raise TraceError("is no table of measured runs", where=str(path), fix=FIX)
    groups: dict[Configuration, list[tuple[Point, str]]] = defaultdict(list)
    other = bad = 0
    for number, row in enumerate(rows, 2):
        if row.get("metric") not in (*TIMES, *RATES, *WORK):
            other += 1
        elif (point := _point(row, f"line {number}")) is None:
            bad += 1
        else:
            groups[_configuration(row)].append((point, row.get("micro_batch", "")))
    apart = _apart(groups)
    kept = {key: points for key, points in apart.items() if len({p.devices for p in points}) > 1}
    relative = [dict(key)["metric"] in WORK for key in kept]
    found = [ladder(name, points, relative=r) for name, points, r in zip(_names(list(kept)), kept.values(), relative, strict=True)]
    single = sum(map(len, apart.values())) - sum(map(len, kept.values()))
    texts = ((other, "of metrics that are no speed"), (bad, "without a size or a value"), (single, "of configurations with one size"))
    return found, [f"{n:,} rows {what} are left out" for n, what in texts if n]


def _spelt(row: Mapping[Any, Any]) -> dict[str, str]:
    """A row under our names of columns."""
    clean = {re.sub(r"\W+", "_", str(k).lower()).strip("_"): v.strip() for k, v in row.items() if isinstance(v, str)}
    out = {_SPELT.get(name, name): value for name, value in clean.items()}
    if "metric" in out:
        return out
    for name in list(out):
        metric, _, unit = name.rpartition("_")
        if name in (*TIMES, *RATES, *WORK):
            return out | {"metric": name, "value": out.pop(name)}
        if metric in TIMES and unit in _SECONDS:
            return out | {"metric": metric, "value": out.pop(name), "unit": unit}
    return out


def _point(row: Mapping[str, str], where: str) -> Point | None:
    devices, value = _number(row.get("n_gpus")), _number(row.get("value"))
    if devices is None or value is None or devices < 1 or devices != int(devices):
        return None
    batch = _number(row.get("global_batch")) or devices
    step = step_of(row["metric"], value, row.get("unit", ""), devices, batch, _number(row.get("seq_len")))
    return Point(devices=int(devices), global_batch=batch, step=step, source=row.get("id") or where) if step is not None else None


def step_of(metric: str, value: float, unit: str, devices: float, batch: float, seq_len: float | None) -> float | None:
    """Nanoseconds of a step (without a unit for metrics of WORK); None if the row does not say enough."""
    if metric in TIMES:
        scale = _SECONDS.get(unit.lower().split("/")[0])
        return value * scale if scale else None
    if metric in WORK:
        return batch / devices / value
    per_device, tokens = RATES[metric]
    if tokens and seq_len is None:
        seq_len = 1.0  # a constant factor, the same at every size
    size = batch * (seq_len or 1.0 if tokens else 1.0)
    return size / (value * (devices if per_device else 1.0)) * 1e9


def _configuration(row: Mapping[str, str]) -> Configuration:
    """The columns that make a ladder; a unit only where it is not made nanoseconds of."""
    left_out = REMARKS if row["metric"] in WORK else REMARKS | {"unit"}
    return tuple((c, v) for c, v in row.items() if c not in left_out and v and not (c in _DEGREES and v.isdecimal()))


def _apart(groups: Mapping[Configuration, Sequence[tuple[Point, str]]]) -> dict[Configuration, list[Point]]:
    """Configurations, by micro-batch too where a size was measured with several: there it is what was compared."""
    out: dict[Configuration, list[Point]] = defaultdict(list)
    for key, rows in groups.items():
        seen: dict[tuple[int, float], set[str]] = defaultdict(set)
        for point, micro in rows:
            seen[point.devices, point.global_batch].add(micro)
        several = any(len(micros) > 1 for micros in seen.values())
        for point, micro in rows:
            out[(*key, ("micro_batch", micro)) if several else key].append(point)
    return out


def _names(keys: Sequence[Configuration]) -> list[str]:
    """A name for each configuration: its model, and as few of the other columns as tell it from those of the same name."""
    known = [dict(key) for key in keys]
    columns = sorted(dict.fromkeys(c for key in known for c in key), key=lambda c: _FIRST.index(c) if c in _FIRST else len(_FIRST))
    names = [key.get("model", "") for key in known]
    for column in columns:
        groups: dict[str, set[str]] = defaultdict(set)
        for name, key in zip(names, known, strict=True):
            groups[name].add(key.get(column, ""))
        if column != "model":
            names = [_named(n, column, key.get(column, "")) if len(groups[n]) > 1 else n for n, key in zip(names, known, strict=True)]
    return [name or "runs" for name in names]


def _named(name: str, column: str, value: str) -> str:
    told = value if column in _PLAIN else f"{column} {value}"
    return ", ".join(part for part in (name, told) if part and value) or name


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
