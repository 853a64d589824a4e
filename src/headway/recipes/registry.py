"""From a name to a recipe: ours by name, a user's by path or module, a resolved run by its run.json or folder."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from headway.recipes.digits import digits
from headway.recipes.folder import folder
from headway.spec import record
from headway.spec.codec import decode
from headway.spec.errors import HeadwayError, SpecError, failure
from headway.spec.info import spec_and_info
from headway.spec.locate import is_own, locate
from headway.spec.run import RunSpec

RECIPES: Mapping[str, Callable[[], RunSpec]] = {"digits": digits, "folder": folder}


def about() -> dict[str, str]:
    """Recipe -> what its module says of it: what it trains, the command, hardware, expected time and result."""
    return {name: (sys.modules[make.__module__].__doc__ or "").strip() for name, make in RECIPES.items()}


def resolve(name: str) -> RunSpec:
    """The spec that `name` means. Raises SpecError if there is none."""
    if name in RECIPES:
        return RECIPES[name]()
    if is_own(name):
        return _own(name)
    path = Path(name)
    if path.is_dir() and (path / "run.json").is_file():
        path /= "run.json"
    if path.suffix == ".py":
        raise SpecError(f"{name} names a file and no recipe in it", fix=f"Add ':' and the name of the function: {name}:run.")
    if path.suffix == ".json" or path.is_file():
        return read_run_json(path)
    close = difflib.get_close_matches(name, list(RECIPES), n=1)
    hint = f"Did you mean {close[0]}? " if close else ""
    raise SpecError(
        f"no recipe '{name}'", fix=f"{hint}Recipes: {', '.join(RECIPES)}; or your own as path.py:fn, or a run.json of an earlier run."
    )


def read_run_json(path: Path) -> RunSpec:
    """The spec of a run.json. Raises SpecError if it is not one."""
    try:
        data = record.load(path.read_bytes())
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}", fix="Give a recipe's name or an existing run.json.") from error
    except ValueError as error:
        raise SpecError(f"{path} is not JSON: {error}", fix="Give the run.json that a run has written.") from error
    try:
        spec, _ = spec_and_info(data)
    except record.Newer as error:
        raise SpecError(str(error), where=str(path), fix="Use that version.") from error
    except ValueError as error:
        raise SpecError(f"{path} is not a run.json ({error})", fix="Give the run.json that a run has written.") from error
    return decode(RunSpec, spec, source=str(path))


def _own(name: str) -> RunSpec:
    made = locate(name)
    try:
        spec = made() if callable(made) else made
    except HeadwayError:
        raise
    except Exception as error:  # code of the user's own: any kind may come
        fix = "A recipe is a function without arguments that returns a RunSpec."
        raise SpecError(f"failed: {failure(error)}", where=name, fix=fix) from error
    if not isinstance(spec, RunSpec):
        raise SpecError(
            f"'{name}' gave {type(spec).__name__}, not a RunSpec", fix="A recipe is a function without arguments that returns one."
        )
    return spec
