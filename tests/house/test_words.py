"""The tree speaks of the project alone: no word of the place it was made at, no dead link, no decision without a way back."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
# Put together here, so that this file does not match itself.
FORBIDDEN = [
    "sub" + "agent",
    "DEVELOPERS" + ".md",
    "." + "library/",
    "/" + "work/",
    "/" + "root/",
    "/tmp/" + "brief",
    "/opt/" + "wheels",
    "pypi" + ".org",
    "python" + "hosted",
    "npm" + "js",
    "deb" + "ian.org",
]


def tree() -> list[Path]:
    """Files that are tracked, or would be if all were added."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def text_of(path: Path) -> str:
    data = path.read_bytes()
    return "" if b"\0" in data[:8192] else data.decode("utf-8", errors="replace")


def test_no_forbidden_word() -> None:
    pattern = re.compile("|".join(map(re.escape, FORBIDDEN)), re.IGNORECASE)
    found = [f"{path.relative_to(ROOT)}: {hit[0]}" for path in tree() for hit in pattern.finditer(text_of(path))]
    assert not found, found


def test_the_search_finds_what_it_should() -> None:
    pattern = re.compile("|".join(map(re.escape, FORBIDDEN)), re.IGNORECASE)
    assert all(pattern.search(f"a line with {word} in it") for word in FORBIDDEN)


def test_links_between_documents_lead_somewhere() -> None:
    dead = []
    for path in tree():
        if path.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text_of(path)):
            if "://" not in target and not target.startswith("mailto:") and not (path.parent / target).exists():
                dead.append(f"{path.relative_to(ROOT)} -> {target}")
    assert not dead, dead


def test_decisions_fit_a_page_and_say_what_would_change_them() -> None:
    files = sorted((ROOT / "docs" / "why").glob("*.md"))
    assert [int(f.name[:3]) for f in files] == list(range(1, len(files) + 1)), "numbered from 001 without gaps"
    assert files
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 60, f"{file.name} is longer than a page"
        for part in ("## Question", "## Choice", "## Why", "## What would change our mind"):
            assert part in text, f"{file.name} has no '{part}'"
