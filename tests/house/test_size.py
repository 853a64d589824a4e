"""Sizes: no file that cannot be read at one sitting, and a training loop that can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import size

LIMITS = json.loads(size.RATCHET.read_text(encoding="utf-8"))


def python_files() -> list[Path]:
    return sorted(f for top in ("src", "tests", "tools", "examples") for f in (size.ROOT / top).rglob("*.py"))


def test_no_file_is_too_long() -> None:
    lengths = {str(f.relative_to(size.ROOT)): len(f.read_text(encoding="utf-8").splitlines()) for f in python_files()}
    too_long = {name: n for name, n in lengths.items() if n > LIMITS["max_file_lines"]}
    assert not too_long, f"longer than {LIMITS['max_file_lines']} lines; split them: {too_long}"
    unseen = {name: n for name, n in lengths.items() if n > LIMITS["review_file_lines"] and name not in LIMITS["reviewed_files"]}
    assert not unseen, f"longer than {LIMITS['review_file_lines']} lines; split them or give a reason in {size.RATCHET.name}: {unseen}"


def test_reviewed_files_still_need_it() -> None:
    for name, reason in LIMITS["reviewed_files"].items():
        file = size.ROOT / name
        assert file.is_file(), f"{name} is gone: take it off reviewed_files"
        assert len(file.read_text(encoding="utf-8").splitlines()) > LIMITS["review_file_lines"], f"{name} is short now: take it off"
        assert len(reason) > 10, f"{name}: say why it is one file"


def test_the_training_loop_stays_small() -> None:
    files = size.closure(size.LOOP)
    if not files:
        pytest.skip(f"{size.LOOP} does not exist yet")
    now, limit = size.total(files), LIMITS["loop_closure_code_lines"]
    assert limit <= 9000, "the design allows 9,000 code lines; what is written here may be lower"
    assert now <= limit, f"{size.LOOP} reaches {now} code lines in {len(files)} files; the limit is {limit} and only goes down"


def test_code_lines_are_counted_as_said() -> None:
    text = '''"""Docstring

over lines."""

from __future__ import annotations  # a comment beside code
# a comment alone

def f(x):
    """Doc."""
    y = """a string
    over lines"""

    return (
        x
    )
'''
    assert size.code_lines(text) == 7


@given(st.integers(0, 20_000), st.integers(0, 20_000))
def test_a_limit_is_never_raised(limit: int, now: int) -> None:
    new = size.tightened(limit, now)
    assert new <= limit
    assert new >= min(now, limit)


def test_closure_follows_every_import_but_those_for_types(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "",
        "p/a.py": "import p.b\ndef f():\n    from p import c\n",
        "p/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.e\nelse:\n    from .sub import d\n",
        "p/c.py": "import os\n",
        "p/sub/__init__.py": "",
        "p/sub/d.py": "from ..b import x\n",
        "p/e.py": "",
        "p/f.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    reached = {str(f.relative_to(tmp_path)) for f in size.closure("p.a", tmp_path)}
    assert reached == {"p/__init__.py", "p/a.py", "p/b.py", "p/c.py", "p/sub/__init__.py", "p/sub/d.py"}
    assert size.closure("p.nothing", tmp_path) == set()
