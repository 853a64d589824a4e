"""What is wrong with the data of a run, as far as can be told in a moment: no pixel is decoded, no torch, no Pillow."""

from __future__ import annotations

from headway.data.files import find
from headway.spec.errors import DataError
from headway.spec.parts import DataSpec


def problems(spec: DataSpec) -> list[str]:
    """Each problem with what `spec` names: a folder that cannot be used."""
    if spec.name == "folder" and spec.path:  # without a path the spec's own check has spoken
        try:
            find(spec.path)
        except DataError as error:
            return [f"--data.path {error}"]
    return []
