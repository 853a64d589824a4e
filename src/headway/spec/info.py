"""What a run's run.json holds beside its settings: the facts of its start, each of a kind that can be counted with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from headway.spec.record import check_schema

SCHEMA: Final = "headway.run/1"
MOST_RANKS: Final = 1 << 20  # beyond it a number is damage, not a rank
GROUPS: Final = frozenset(  # settings that hold settings
    ("model", "data", "objective", "encoders", "mesh", "precision", "remat", "optim", "ema", "checkpoint", "observe", "guard")
)


def spec_and_info(data: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings and the facts of a parsed run.json, as they stand there. Raises ValueError if a part cannot be what it should be
    (record.Newer if a later version wrote it)."""
    if not isinstance(data, Mapping):
        raise ValueError("it holds no fields")
    check_schema(data, SCHEMA)
    if "spec" not in data:
        raise ValueError("it has no 'spec'")
    spec, info = data["spec"], data.get("info", {})
    for name, part in (("spec", spec), ("info", info), *((f"spec.{k}", spec[k]) for k in sorted(GROUPS) if k in _fields(spec))):
        if not isinstance(part, dict):
            raise ValueError(f"{name} is {_short(part)}, not fields with names")
    for name, (kind, fits) in _KINDS.items():
        if name in info and not fits(info[name]) and not (info[name] is None and name in _UNKNOWN):
            raise ValueError(f"info.{name} is {_short(info[name])}, not {kind}")
    return spec, info


def _fields(spec: Any) -> dict[str, Any]:
    return spec if isinstance(spec, dict) else {}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and least <= v <= most


def _amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, kinds)


_COUNT: Final = ("a count", _whole(0, 1 << 53))
_AMOUNT: Final = ("a finite amount", _amount)
_TEXT: Final = ("text", _is(str))
_UNKNOWN: Final = frozenset(("flops_per_sample", "hardware_flops_per_sample", "peak_flops", "ceilings"))  # may be null
_KINDS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "world": (f"a number of ranks (1 to {MOST_RANKS:,})", _whole(1, MOST_RANKS)),
    **dict.fromkeys(("num_samples", "num_classes", "channels", "size", "num_parameters"), _COUNT),
    **dict.fromkeys(("flops_per_sample", "hardware_flops_per_sample", "peak_flops"), _AMOUNT),
    **dict.fromkeys(("data_name", "data_fingerprint", "peak_source", "device", "git"), _TEXT),
    **dict.fromkeys(("versions", "ceilings"), ("fields with names", _is(dict))),
    **dict.fromkeys(("class_names", "command"), ("a list", _is(list))),
}
