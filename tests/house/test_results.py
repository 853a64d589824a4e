"""The tables of the README are those that docs/results gives."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def test_the_readme_holds_the_measurements(root: Path) -> None:
    found = importlib.util.spec_from_file_location("results", root / "tools" / "results.py")
    assert found and found.loader
    results = importlib.util.module_from_spec(found)
    found.loader.exec_module(results)
    text = (root / "README.md").read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in text for name in results.TABLES)
    assert results.filled(text) == text, "run: make docs"
    assert results.filled(text.replace("<!-- results -->\n", "<!-- results -->\nx\n")) == text
