"""Data sets by name."""

from __future__ import annotations

from pathlib import Path

from headway.data.dataset import ArrayDataset, Dataset
from headway.data.digits import digits
from headway.data.own import own
from headway.spec.errors import DataError, HeadwayError, failure
from headway.spec.locate import is_own, locate
from headway.spec.parts import DataSpec


def open_data(spec: DataSpec, *, cache: Path | None = None) -> Dataset:
    """The data set that `spec` names: digits, folder, or your own as path.py:fn, called with `spec`.

    `cache` is a folder for what is worth remembering between starts (which images are good). Raises DataError if the data cannot be used or
    is not of the size and channels that `spec` says.
    """
    data = _open(spec, cache)
    if (data.size, data.channels) != (spec.size, spec.channels):
        raise DataError(
            f"samples are {data.size} x {data.size} pixels of {data.channels} channels, the run wants {spec.size} of {spec.channels}",
            where=f"data set '{data.name}'",
            fix=f"Set --data.size {data.size} --data.channels {data.channels}.",
        )
    return data


def _open(spec: DataSpec, cache: Path | None) -> Dataset:
    if spec.name == "digits":
        return digits()
    if spec.name == "folder":
        from headway.data.folder import folder  # needs Pillow

        return folder(spec, cache=cache)
    if not is_own(spec.name):
        raise DataError(f"'{spec.name}' is not a data set", where="--data.name", fix="Use digits, folder, or your own as path.py:fn.")
    make, where = locate(spec.name), f"--data.name {spec.name}"
    if not callable(make):
        raise DataError(f"is a {type(make).__name__}, not a function of the DataSpec", where=where)
    try:
        data = make(spec)
        return data if isinstance(data, ArrayDataset) else own(data, where)
    except HeadwayError:
        raise
    except Exception as error:  # code of the user's own: any kind may come
        raise DataError(f"failed: {failure(error)}", where=where) from error
