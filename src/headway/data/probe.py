"""What is wrong with the data of a run, as far as can be told in a moment: no pixel is decoded, no torch, no Pillow."""

from __future__ import annotations

from pathlib import Path

from headway.data.files import find
from headway.spec.errors import DataError
from headway.spec.locate import is_own
from headway.spec.parts import DataSpec


def problems(spec: DataSpec) -> list[str]:
    """Each problem with what `spec` names: a folder that cannot be used, a file of your own that is not there."""
    if spec.name == "folder" and spec.path:  # without a path the spec's own check has spoken
        try:
            find(spec.path)
        except DataError as error:
            return [f"--data.path {error}"]
    file = spec.name.rpartition(":")[0]
    if is_own(spec.name) and file.endswith(".py") and not Path(file).expanduser().is_file():
        return [f"--data.name {spec.name}: there is no file {file}"]
    return []
