"""A pickle from elsewhere runs no code, takes no more memory than it is worth, and never ends in anything but a TraceError."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.spec.errors import TraceError
from headway.trace.read.pickles import plain

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


class Hostile:
    """Unpickled by the usual means, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


@given(PLAIN, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_data_comes_back_in_every_protocol(value: Any, protocol: int) -> None:
    if protocol < 3 and b"bytes" in pickle.dumps(value, 0):  # bytes of old protocols are made by a call
        return
    data = pickle.dumps(value, protocol)
    if b"_codecs" in data or b"bytes" in data:
        return
    assert plain(data, "x") == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_hostile_pickle_runs_no_code(tmp_path: Path, protocol: int) -> None:
    data = pickle.dumps({"segments": [Hostile(tmp_path / "made")]}, protocol)
    with pytest.raises(TraceError, match="could run code"):
        plain(data, "x")
    assert not (tmp_path / "made").exists()
    pickle.loads(data)
    assert (tmp_path / "made").exists()  # so the test can fail


def test_a_few_bytes_cannot_ask_for_gigabytes() -> None:
    with pytest.raises(TraceError, match="memory"):
        plain(b"\x80\x02]r" + struct.pack("<I", 1 << 30) + b".", "x")


@given(st.binary(max_size=200))
def test_anything_else_is_a_trace_error(data: bytes) -> None:
    with contextlib.suppress(TraceError):
        plain(data, "x")
