"""A user's own object by name: `path/to/file.py:attribute` or `package.module:attribute`."""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from headway.spec.errors import SpecError


def is_own(name: str) -> bool:
    """Whether `name` means a user's own object, not one of ours."""
    return ":" in name


def locate(name: str) -> Any:
    """The object that `name` means. Raises SpecError if the file, the module or the attribute is not there."""
    where, _, attribute = name.rpartition(":")
    if not where or not attribute:
        raise SpecError(f"'{name}' does not name an object", fix="Write path/to/file.py:name or package.module:name.")
    module = _from_file(where) if where.endswith(".py") else _from_package(where, name)
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            close = difflib.get_close_matches(part, [n for n in dir(value) if not n.startswith("_")], n=1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            raise SpecError(f"'{where}' has no '{part}'{hint}", where=name)
        value = getattr(value, part)
    return value


def look(name: str) -> str:
    """What keeps `name` from being located, as far as can be told without running any of it; '' if nothing does."""
    where, _, attribute = name.rpartition(":")
    if not where or not attribute:
        return f"'{name}' does not name an object; write path/to/file.py:name or package.module:name"
    if not where.endswith(".py"):
        return "" if _is_package(where.partition(".")[0]) else f"no module '{where}'"
    path = Path(where).expanduser()
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except FileNotFoundError:
        return f"no such file: {path}"
    except OSError as error:
        return f"{path} cannot be read ({error.strerror})"
    except SyntaxError as error:
        return f"{path}, line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, nesting without end
        return f"{path} is no Python that can be read ({error})"
    first, names = attribute.partition(".")[0], _names(tree)
    if first in names or names & {"*", "__getattr__", "globals"}:
        return ""
    close = difflib.get_close_matches(first, sorted(names), n=1)
    return f"'{where}' has no '{first}'" + (f"; did you mean '{close[0]}'?" if close else "")


def _is_package(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ValueError, ImportError):
        return False


def _names(tree: ast.Module) -> set[str]:
    """Every name that a module could have: whatever is defined, imported or used in it (inside functions too); "*" stands for any."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name):
            found.add(node.id)
    return found


def _from_file(where: str) -> ModuleType:
    path = Path(where).expanduser().resolve()
    if not path.is_file():
        raise SpecError(f"no such file: {path}", fix="Give the path of a Python file, then ':' and a name in it.")
    key = f"headway_user_{hashlib.blake2b(str(path).encode(), digest_size=6).hexdigest()}_{path.stem}"
    if key in sys.modules:
        return sys.modules[key]
    found = importlib.util.spec_from_file_location(key, path)
    if found is None or found.loader is None:
        raise SpecError(f"{path} cannot be imported as Python")
    module = importlib.util.module_from_spec(found)
    sys.modules[key] = module
    try:
        found.loader.exec_module(module)
    except SyntaxError as error:
        del sys.modules[key]
        raise SpecError(f"{path}, line {error.lineno}: {error.msg}", fix="Put the file right; it must import as Python.") from error
    except ImportError as error:
        del sys.modules[key]
        at = next((f.lineno for f in reversed(traceback.extract_tb(error.__traceback__)) if f.filename == str(path)), 1)
        raise SpecError(f"{path}, line {at}: {error}", fix="Install what it imports, or take the import out.") from error
    except BaseException:
        del sys.modules[key]
        raise
    return module


def _from_package(where: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name and where.split(".")[0] == error.name.split(".")[0]:
            raise SpecError(
                f"no module '{where}'", where=name, fix="Install it, set PYTHONPATH, or give the path of a .py file before the ':'."
            ) from error
        raise
