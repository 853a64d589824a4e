"""Reads a CSV export of Nsight Compute: the details page (a metric a row) or the raw page (a launch a row, units in the second).

ncu --csv --page details|raw --import REPORT.ncu-rep, or ncu --csv PROGRAM with what the program printed before and between
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Final, NoReturn

from headway.spec.counters import KernelCounters
from headway.spec.errors import TraceError
from headway.spec.health import Health
from headway.trace.read.file import Reading
from headway.trace.read.source import load

FIX: Final = "Export the report: ncu --csv --page raw --import REPORT.ncu-rep > kernels.csv"
_SHARES: Final[Mapping[str, tuple[str, ...]]] = {  # field -> metrics in per cent of the peak, best first
    "dram_share": (
        "dram__throughput.avg.pct_of_peak_sustained_elapsed", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "DRAM Throughput", "SOL DRAM",
    ),
    "compute_share": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "Compute (SM) Throughput", "SM Throughput", "SOL SM", "SM [%]"),
    "tensor_share": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", "sm__inst_executed_pipe_tensor.sum.pct_of_peak_sustained_active",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    ),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy"),
}  # fmt: skip
_DURATION: Final = ("gpu__time_duration.sum", "gpu__time_duration.avg", "Duration")
_BYTES: Final = ("dram__bytes.sum",)
_READ_WRITE: Final = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_RATES: Final = ("dram__bytes.sum.per_second", "Memory Throughput")
_METRICS: Final = frozenset((*(n for names in _SHARES.values() for n in names), *_DURATION, *_BYTES, *_READ_WRITE, *_RATES))
_UNIT: Final = re.compile(r"^([kmgtpnu]?)(second|byte|s|b)s?(/second|/s)?$", re.IGNORECASE)
_PREFIX: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}  # of bytes; ncu counts in thousands
_SMALL: Final = {"": 1e9, "m": 1e6, "u": 1e3, "n": 1.0}  # of seconds, in nanoseconds
_NUMBER: Final = re.compile(r"[-+]?[\d.,' \u00a0\u202f]*\d(?:e[-+]?\d+)?", re.IGNORECASE)
_MOST_NS: Final = 10**15
Launch = dict[str, tuple[float, str]]  # metric -> value, unit


def binary(path: Path) -> NoReturn:
    """A report as Nsight Compute keeps it: nothing but its own tools can read it."""
    raise TraceError("a binary report of Nsight Compute, which only its own tools can read", where=str(path), fix=FIX)


def read(path: Path) -> Reading:
    """The launches in `path`. Raises TraceError if it has no table of kernels, or no launch in it."""
    data, _ = load(path)
    text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8", "replace").replace("\0", "").lstrip("\ufeff")
    header, rows, other = _table(text, path)
    if not rows:
        raise TraceError("the export holds no kernels", where=str(path), fix="Profile at least one launch. " + FIX)
    said: dict[tuple[str, str], Mapping[str, str]] = {}
    found: dict[tuple[str, str], Launch] = {}
    long = "Metric Name" in header
    units = rows[0] if not long and not rows[0][header.index("ID")].strip() else None
    values = [i for i, name in enumerate(header) if name == "Metric Value" or (not long and "__" in name)]
    comma = _decimal_comma(row[i] for row in rows for i in values)
    for row in rows[1:] if units is not None else rows:
        named = dict(zip(header, row, strict=True))
        key = named["ID"].strip(), named.get("Process ID", "").strip()
        if not key[0].isdecimal():
            other += 1
            continue
        said.setdefault(key, named)
        launch = found.setdefault(key, {})
        if long:
            _put(launch, named.get("Metric Name", ""), named.get("Metric Value", ""), named.get("Metric Unit", ""), comma)
            continue
        for i, name in enumerate(header):
            _put(launch, name, row[i], units[i] if units is not None else "", comma)
    counters = tuple(_counters(str(path), said[key], found[key]) for key in sorted(found, key=lambda k: (k[1], int(k[0][:18]))))
    if not counters:
        raise TraceError("the export holds no kernels", where=str(path), fix="Profile at least one launch. " + FIX)
    text = "rows of an Nsight Compute export that fit no column are left out"
    note = Health(what="counter_rows", count=other, affects="shares of kernels", text=text)
    return Reading(source=str(path), counters=counters, health=(note,) if other else ())


def _table(text: str, path: Path) -> tuple[list[str], list[list[str]], int]:
    """(header, its rows, how many rows do not fit it). What stands before the header, and lines of the tool (==PROF==), are no rows."""
    begin = re.search(r'^"?ID"?,.*Kernel Name.*$', text, re.MULTILINE)
    if begin is None and re.search(r"^.*Kernel Name.*Invocations.*$", text, re.MULTILINE):
        fix = "Export it without --print-summary."
        raise TraceError("a summary of Nsight Compute, which does not say what its launches did", where=str(path), fix=fix)
    if begin is None:
        raise TraceError("no table of kernels in it (a header with ID and Kernel Name)", where=str(path), fix=FIX)
    lines = (line for line in StringIO(text[begin.start() :]) if not line.startswith("=="))
    header: list[str] = []
    rows: list[list[str]] = []
    other = 0
    try:
        for row in csv.reader(lines):
            if not header:
                header = [cell.strip() for cell in row]
            elif len(row) == len(header):
                rows.append(row)
            elif row:
                other += 1
    except csv.Error:
        other += 1
    if "ID" not in header or "Kernel Name" not in header:
        raise TraceError("no table of kernels in it (a header with ID and Kernel Name)", where=str(path), fix=FIX)
    return header, rows, other


def _put(launch: Launch, name: str, value: str, unit: str, comma: bool) -> None:
    """Keep a metric that is used. `Memory Throughput` is two: a share of the peak, and (kept) a rate."""
    number = _number(value, comma) if name in _METRICS else None
    if number is None or (name in _RATES and not unit.lower().endswith(("/second", "/s"))):
        return
    launch.setdefault(name, (number, unit.strip()))


def _decimal_comma(cells: Iterable[str]) -> bool:
    """Whether the file writes 3,14: some number has a comma that cannot part thousands, and none a point that must be one of decimals."""
    comma = point = False
    for cell in cells:
        if not _NUMBER.fullmatch(cell.strip()):
            continue
        comma |= re.fullmatch(r"[-+]?[\d.]*\d,(\d{1,2}|\d{4,})|[-+]?\d{1,3}(\.\d{3})+,\d+|[-+]?\d{4,},\d+|0,\d+", cell.strip()) is not None
        point |= (
            re.fullmatch(r"[-+]?[\d,]*\d\.(\d{1,2}|\d{4,})|[-+]?\d{1,3}(,\d{3})+\.\d+|[-+]?\d{4,}\.\d+|0\.\d+", cell.strip()) is not None
        )
    return comma and not point


def _number(text: str, comma: bool) -> float | None:
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    plain = re.sub(r"['\s\u00a0\u202f]", "", text)
    plain = plain.replace(".", "").replace(",", ".") if comma else plain.replace(",", "")
    try:
        value = float(plain)
    except ValueError:
        return None
    return value if abs(value) < 1e18 else None


# ---- one launch ----


def _counters(source: str, said: Mapping[str, str], launch: Launch) -> KernelCounters:
    shares = {field: _share(launch, names) for field, names in _SHARES.items()}
    duration = _scaled(_first(launch, _DURATION), "second")
    return KernelCounters(
        source=source,
        number=int(said["ID"].strip()[:18]),
        name=said["Kernel Name"].strip(),
        grid=_sizes(said.get("Grid Size", "")),
        block=_sizes(said.get("Block Size", "")),
        device=_whole(said.get("Device", "")),
        stream=_whole(said.get("Stream", "")),
        process=_whole(said.get("Process ID", "")),
        duration_ns=round(duration) if duration is not None and 0 <= duration < _MOST_NS else None,
        dram_bytes=_dram(launch, duration),
        **shares,
    )


def _dram(launch: Launch, duration: float | None) -> int | None:
    """Bytes to and from DRAM: counted, else read and written, else the rate times the duration."""
    total = _scaled(_first(launch, _BYTES), "byte")
    parts = [_scaled(launch.get(name), "byte") for name in _READ_WRITE]
    rate = _scaled(_first(launch, _RATES), "byte")
    if total is None and None not in parts:
        total = sum(part for part in parts if part is not None)
    if total is None and rate is not None and duration is not None:
        total = rate * duration / 1e9
    return round(total) if total is not None and 0 <= total < 1e18 else None


def _share(launch: Launch, names: Sequence[str]) -> float | None:
    found = _first(launch, names)
    return found[0] / 100 if found is not None and found[1] in ("%", "") and 0 <= found[0] <= 1000 else None


def _first(launch: Launch, names: Sequence[str]) -> tuple[float, str] | None:
    return next((launch[name] for name in names if name in launch), None)


def _scaled(found: tuple[float, str] | None, kind: str) -> float | None:
    """A value in nanoseconds, bytes or bytes a second; None if its unit is of another kind."""
    unit = _UNIT.match(found[1]) if found is not None else None
    if found is None or unit is None or unit[2].lower()[0] != kind[0]:
        return None
    scale = (_SMALL if kind == "second" else _PREFIX).get(unit[1].lower())
    return found[0] * scale if scale is not None else None


def _sizes(text: str) -> tuple[int, ...]:
    """'(16, 1, 1)' or '16, 1, 1' -> (16, 1, 1)."""
    return tuple(int(n) for n in re.findall(r"\d{1,18}", text))[:3]


def _whole(text: Any) -> int | None:
    text = str(text).strip()
    return int(text) if text.isdecimal() and len(text) < 19 else None
