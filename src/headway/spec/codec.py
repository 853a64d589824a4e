"""Specs to and from plain data, and overrides from a command line: one decoder for both.

`run.json` and `--mesh.dp-shard 2` go through the same `decode`, so both get the same checks, the same nearest-name hint,
and report all their problems at once. Values from a command line are text; `decode` reads them by the field's type.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, TypeVar, Union

from headway.spec.errors import SpecError, joined

T = TypeVar("T")
_HINTS: dict[type, dict[str, Any]] = {}
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_SUFFIX = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


class _Bad(Exception):
    """A value that does not fit its type; the message says what was expected."""


def encode(value: Any) -> Any:
    """Plain data (dict, list, str, numbers) of a spec, ready for json.dumps. A number that is not finite, which JSON lacks, is None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {k: encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def decode(kind: type[T], data: Mapping[str, Any], *, base: T | None = None, source: str = "") -> T:
    """A spec of type `kind` from nested plain data; fields that `data` leaves out come from `base` or the defaults.

    Raises SpecError that names every unknown field (with the nearest name) and every value of a wrong type.
    """
    problems: list[str] = []
    value = _dataclass(kind, data, base, "", problems)
    if problems:
        raise SpecError(joined(problems), where=source)
    return typing.cast(T, value)


def apply_overrides(spec: T, args: Sequence[str]) -> T:
    """`spec` with `--a.b value`, `--a.b=value`, `--flag` and `--no-flag` applied. Raises SpecError with all problems."""
    value, problems = overridden(spec, args)
    if problems:
        raise SpecError(joined(problems))
    return value


def overridden(spec: T, args: Sequence[str]) -> tuple[T, list[str]]:
    """The same with the problems beside it: what could not be applied is as it was in `spec`."""
    data: dict[str, Any] = {}
    problems: list[str] = []
    names = flag_names(spec)
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            problems.append(f"'{word}' is not an option; write --field value")
            continue
        option, eq, value = word[2:].partition("=")
        name = option.replace("-", "_")
        is_bool = names.get(name) is bool
        if name not in names and name.startswith("no_") and names.get(name[3:]) is bool and not eq:
            name, value, eq = name[3:], "false", "="
        elif name not in names and "." in name and names.get(_unnegated(name)) is bool and not eq:
            name, value, eq = _unnegated(name), "false", "="
        elif not eq and is_bool and (not rest or rest[0].lower() not in _TRUE + _FALSE):
            value, eq = "true", "="
        if not eq:
            if not rest or (rest[0].startswith("--") and len(rest[0]) > 2):
                problems.append(unknown(name, names) if name not in names else f"--{option} needs a value")
                continue
            value = rest.pop(0)
        if name not in names:
            problems.append(unknown(name, names))
            continue
        _set(data, name.split("."), value)
    return typing.cast(T, _dataclass(type(spec), data, spec, "", problems)), problems


def flag_names(spec: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted field name -> type, for every leaf of a spec."""
    names: dict[str, Any] = {}
    for name, hint in _hints(type(spec)).items():
        value = getattr(spec, name)
        if dataclasses.is_dataclass(value):
            names |= flag_names(value, f"{prefix}{name}.")
        else:
            names[f"{prefix}{name}"] = hint
    return names


def unknown(name: str, names: Mapping[str, Any] | Sequence[str]) -> str:
    """'no field X; did you mean Y?', by the whole dotted name first, by its last part second."""
    if inside := [n for n in names if n.startswith(f"{name}.")]:
        return f"{_flag(name)} is a group of fields; set one of them: {', '.join(map(_flag, inside))}"
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    if not close:
        last = name.rpartition(".")[2]
        ends = {n.rpartition(".")[2]: n for n in names}
        close = [ends[e] for e in difflib.get_close_matches(last, list(ends), n=1, cutoff=0.6)]
    hint = f"; did you mean {_flag(close[0])}?" if close else ""
    return f"unknown field {_flag(name)}{hint}"


def at(data: Any, name: str) -> Any:
    """The value of a dotted name in nested mappings; None where something is missing."""
    for part in name.split("."):
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _unnegated(name: str) -> str:
    head, _, last = name.rpartition(".")
    return f"{head}.{last.removeprefix('no_')}"


def _set(data: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        data = data.setdefault(part, {})
    data[path[-1]] = value


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _HINTS:
        hints = typing.get_type_hints(kind)
        _HINTS[kind] = {f.name: hints[f.name] for f in dataclasses.fields(kind)}
    return _HINTS[kind]


def _dataclass(kind: Any, data: Any, base: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(data, Mapping):
        where = f"{_flag(path.rstrip('.'))}: " if path else ""
        problems.append(f"{where}expected a group of fields, got {data!r}")
        return base
    hints = _hints(kind)
    values: dict[str, Any] = {}
    for key, raw in data.items():
        name = str(key).replace("-", "_")
        if name not in hints:
            problems.append(unknown(path + name, [path + n for n in hints]))
            continue
        old = getattr(base, name) if base is not None else None
        try:
            values[name] = _value(hints[name], raw, old, f"{path}{name}", problems)
        except _Bad as bad:
            problems.append(f"{_flag(path + name)}: expected {bad}, got {raw!r}")
    if problems and base is None:
        return None
    return dataclasses.replace(base, **values) if base is not None else kind(**values)


def _value(hint: Any, raw: Any, old: Any, path: str, problems: list[str]) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, raw, old, f"{path}.", problems)
    if origin in (Union, types.UnionType):
        return _optional(args, raw, old, path, problems)
    if origin is Literal:
        return _literal(args, raw)
    if origin is tuple:
        return _tuple(args[0], raw, path, problems)
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return _mapping(args[1], raw, path, problems)
    return _scalar(hint, raw)


def _optional(args: tuple[Any, ...], raw: Any, old: Any, path: str, problems: list[str]) -> Any:
    if type(None) in args and (raw is None or (isinstance(raw, str) and raw.lower() in ("none", "null"))):
        return None
    if type(raw) in args:  # an int stays an int where a float would do as well
        return raw if not isinstance(raw, float) else _floating(raw)
    kinds = [a for a in args if a is not type(None)]
    wanted = []
    for kind in kinds:
        try:
            return _value(kind, raw, old, path, problems)
        except _Bad as bad:
            wanted.append(str(bad))
    raise _Bad(" or ".join(wanted + (["none"] if type(None) in args else [])))


def _literal(args: tuple[Any, ...], raw: Any) -> Any:
    for choice in args:
        if (type(raw) is type(choice) and raw == choice) or (isinstance(raw, str) and raw == str(choice)):
            return choice
    close = difflib.get_close_matches(str(raw), [str(a) for a in args], n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise _Bad(f"one of {', '.join(map(str, args))}{hint}")


def _tuple(item: Any, raw: Any, path: str, problems: list[str]) -> tuple[Any, ...]:
    if isinstance(raw, str):
        raw = [part.strip() for part in raw.split(",")] if raw.strip() else []
    if not isinstance(raw, (list, tuple)):
        raise _Bad("a list (comma-separated on a command line)")
    return tuple(_item(item, r, f"{path}[{i}]", problems) for i, r in enumerate(raw))


def _mapping(item: Any, raw: Any, path: str, problems: list[str]) -> dict[str, Any]:
    if isinstance(raw, str):
        pairs = [p.partition("=") for p in raw.split(",") if p.strip()]
        if any(not eq for _, eq, _ in pairs):
            raise _Bad("key=value pairs, comma-separated")
        raw = {k.strip(): _read(v.strip()) for k, _, v in pairs}
    if not isinstance(raw, Mapping):
        raise _Bad("key=value pairs")
    return {str(k): _item(item, v, f"{path}.{k}", problems) for k, v in raw.items()}


def _item(hint: Any, raw: Any, path: str, problems: list[str]) -> Any:
    try:
        return _value(hint, raw, None, path, problems)
    except _Bad as bad:
        problems.append(f"{_flag(path)}: expected {bad}, got {raw!r}")
        return None


def _scalar(hint: Any, raw: Any) -> Any:
    if hint is bool:
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.lower() in _TRUE + _FALSE:
            return raw.lower() in _TRUE
        raise _Bad("true or false")
    if hint is int:
        return _integer(raw)
    if hint is float:
        return _floating(raw)
    if hint is str:
        if isinstance(raw, str):
            return raw
        raise _Bad("text")
    if hint is Any:
        return raw
    raise TypeError(f"the codec has no rule for {hint!r}")


def _read(text: str) -> Any:
    """The value that `text` spells on a command line where any plain value may stand: a number, true or false, else text."""
    for kind in (_integer, _floating):
        try:
            return kind(text)
        except _Bad:
            continue
    return text.lower() == "true" if text.lower() in ("true", "false") else text


def _integer(raw: Any) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) < 1 << 63:
        return raw
    if isinstance(raw, str):
        text, factor = raw.replace("_", ""), 1
        for suffix, scale in sorted(_SUFFIX.items(), key=lambda kv: -len(kv[0])):
            if text.endswith(suffix):
                text, factor = text[: -len(suffix)], scale
                break
        try:
            number = Decimal(text) * factor  # decimal: 4.1k is 4100, which a float product is not
        except ArithmeticError:
            number = Decimal("nan")
        if number.is_finite() and abs(number) < 1 << 63 and number == int(number):
            return int(number)
    raise _Bad("a whole number (128, 10_000, 20k, 4Mi)")


def _floating(raw: Any) -> float:
    number = math.nan
    if isinstance(raw, (int, float, str)) and not isinstance(raw, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(raw)
    if not math.isfinite(number):
        raise _Bad("a number")
    return number
