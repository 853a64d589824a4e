"""What travels over the disk arrives as it was, leaves no file, and goes another way where the disk refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.trace.fleet import engine, spool
from tests.trace.fleet.test_fleet import traces


@pytest.mark.parametrize("value", [(), {"a": np.arange(5), "b": [np.ones((2, 3)), "text"], "c": np.zeros(0, np.int64)}, [np.zeros(0)]])
def test_a_value_comes_back(tmp_path: Path, value: object) -> None:
    stored = spool.store(value, tmp_path)
    assert stored is not None and (stored.places == () or stored.file.stat().st_size >= sum(n for _, n in stored.places))
    back = spool.load(stored)
    assert repr(back) == repr(value) and not list(tmp_path.iterdir())


def test_arrays_are_mapped_and_cannot_be_written(tmp_path: Path) -> None:
    stored = spool.store([np.arange(7), np.arange(9.0)], tmp_path)
    assert stored is not None and all(at % 64 == 0 for at, _ in stored.places)
    first, second = spool.load(stored)
    assert first.sum() == 21 and second.sum() == 36
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    assert spool.store([np.arange(7)], tmp_path / "none") is None
    path = traces(tmp_path, 1) / "rank0.json"
    (file,) = engine._spooled(engine.attempt, path, tmp_path / "none")  # type: ignore[misc]
    assert file.rank == 0 and file.parts
