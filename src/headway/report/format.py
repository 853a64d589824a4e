"""Numbers as people read them, settings as they type them. Units are always written; a value that is not known is a dash."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DASH = "-"
_TIMES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))  # ns of one unit
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_METRIC = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def duration(ns: float | None) -> str:
    """A time span in its own unit: 182.4 ms, 3.2 s, 12 ns."""
    if ns is None or not math.isfinite(ns):
        return DASH
    for size, unit in _TIMES:
        if abs(ns) >= size:
            return f"{digits(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def digits(value: float) -> str:
    """Four significant digits, without an exponent for readable sizes."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 100 else f"{value:.2f}" if size >= 10 else f"{value:.3f}"


def places(largest_ns: float) -> int:
    """Decimals of a column of milliseconds whose largest entry is `largest_ns`, so that the whole column lines up."""
    return 1 if largest_ns >= 1e9 else 2 if largest_ns >= 1e7 else 3 if largest_ns >= 1e5 else 6


def milliseconds(ns: float, decimals: int) -> str:
    """`ns` in ms without the unit: 1,234.50."""
    return f"{ns / 1e6:,.{decimals}f}"


def share(part: float, whole: float) -> str:
    """`part` of `whole` in percent; a dash if there is no whole."""
    return f"{100 * part / whole:.1f} %" if whole > 0 else DASH


def percent(value: float | None) -> str:
    """A share in [0, 1] in percent."""
    return f"{100 * value:.1f} %" if value is not None and math.isfinite(value) else DASH


def integer(value: float | None) -> str:
    """A count with thousands separators."""
    return f"{int(value):,}" if value is not None and math.isfinite(value) else DASH


def number(value: float | None) -> str:
    """A scalar such as a loss: 0.1234, 1.2e-05, nan."""
    if value is None:
        return DASH
    if not math.isfinite(value):
        return str(float(value))
    return f"{value:.4g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.2e}"


def rate(value: float | None, unit: str) -> str:
    """Things in a second: 702 samples/s."""
    if value is None or not math.isfinite(value) or value < 0:
        return f"{DASH} {unit}/s"
    return f"{value:,.0f} {unit}/s" if value >= 100 else f"{value:.3g} {unit}/s"


def size(num_bytes: float | None) -> str:
    """Bytes in binary units: 1.50 GiB."""
    if num_bytes is None or not math.isfinite(num_bytes):
        return DASH
    for scale, unit in _BYTES:
        if abs(num_bytes) >= scale:
            return f"{digits(num_bytes / scale)} {unit}"
    return f"{num_bytes:.0f} B"


def metric(value: float | None, unit: str) -> str:
    """A large quantity with a metric prefix: 12.34 TFLOP/s."""
    if value is None or not math.isfinite(value):
        return DASH
    for scale, prefix in _METRIC:
        if abs(value) >= scale:
            return f"{digits(value / scale)} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def tick(value: float | None) -> str:
    """A round value on an axis: 0.5, 2 k, 250 k, 1e-04."""
    if value is None or not math.isfinite(value):
        return DASH
    if value and not 1e-3 <= abs(value) < 1e4:
        scale, prefix = next(((s, p) for s, p in _METRIC if abs(value) >= s), (0.0, ""))
        return f"{value / scale:.4g} {prefix}" if scale else f"{value:.3g}"
    return f"{value:.4g}"


def clock(seconds: float | None) -> str:
    """A time to wait: 0:42, 2:04, 1:02:04, 3 d 4 h; a dash when it is not known."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return DASH
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def time_left(total: float, done: float, rate_s: float | None) -> float | None:
    """Seconds until `done` reaches `total` at `rate_s` a second; None when the rate says nothing."""
    if rate_s is None or not math.isfinite(rate_s) or rate_s <= 0:
        return None
    return max(0.0, total - done) / rate_s


def flag(name: str, value: Any) -> str:
    """A setting as one types it: --checkpoint.blocking false."""
    return f"--{name.replace('_', '-')} {_typed(value)}"


def flags(patch: Mapping[str, Any] | None) -> list[str]:
    """Every setting of a patch as one types it."""
    return [flag(name, value) for name, value in (patch or {}).items()]


def _typed(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ",".join(f"{k}={_typed(v)}" for k, v in value.items()) or '""'
    if isinstance(value, (list, tuple)):
        return ",".join(_typed(v) for v in value) or '""'
    text = str(value)
    return text if text and not any(c.isspace() for c in text) else f'"{text}"'
