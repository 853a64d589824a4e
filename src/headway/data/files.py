"""Which image files a folder holds, and which class each belongs to: names only, no pixel is read.

photos/rose/a.jpg, photos/tulip/b.png      one class a subfolder
photos/a.jpg, photos/b.png                 no subfolders: one class
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headway.spec.errors import DataError

SUFFIXES: Final = frozenset((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"))
FIX: Final = "Give --data.path a folder of images, or of one subfolder of images a class."


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The image files of a folder, in the order of their names."""

    root: Path
    class_names: tuple[str, ...]
    files: tuple[tuple[str, int], ...]  # (path relative to the root with '/', class)
    notes: tuple[str, ...] = ()


def find(path: str) -> Listing:
    """The image files below `path`. Raises DataError if it is missing, not a folder, unreadable, without images, or ambiguous."""
    root = Path(path).expanduser()
    where = show(path)
    if not os.path.lexists(root):
        raise DataError("there is no such folder", where=where, fix=FIX)
    if not root.is_dir():
        raise DataError("is not a folder", where=where, fix=FIX)
    top, folders = _list(root)
    real = os.path.realpath(root)
    loops = [f for f in folders if (real + os.sep).startswith(os.path.join(os.path.realpath(root / f), ""))]
    inside = {f: _list(root / f) for f in folders if f not in loops}
    classes = {f: images for f, (images, _) in inside.items() if images}
    deep = [f"{f}/{s}" for f, (_, subfolders) in inside.items() for s in subfolders if _holds_images(root / f / s)]
    if top and classes:
        what = f"holds images itself ({count(top, 'image')}) and in subfolders ({names(list(classes))}), so their classes are unclear"
        raise DataError(what, where=where, fix="Move the images of the folder itself into a subfolder of their own, or away.")
    if not top and not classes:
        what = f"holds no image files ({', '.join(sorted(SUFFIXES))})"
        if deep:
            raise DataError(f"{what} here or one level down; there are some in {names(deep)}", where=where, fix=FIX)
        raise DataError(what, where=where, fix=FIX)
    notes = [f"deeper than one level, not used: {names(deep)}"] * bool(deep)
    notes += [f"links to the folder itself, not followed: {names(loops)}"] * bool(loops)
    if classes:
        notes += [f"subfolders without images, no class: {names(bare)}" for bare in [[f for f in inside if f not in classes]] if bare]
        files = tuple((f"{f}/{name}", c) for c, (f, images) in enumerate(classes.items()) for name in images)
        return Listing(root=root, class_names=tuple(classes), files=files, notes=tuple(notes))
    return Listing(root=root, class_names=("all",), files=tuple((name, 0) for name in top), notes=tuple(notes))


def _list(folder: Path) -> tuple[list[str], list[str]]:
    """Image files and subfolders of `folder`, sorted; hidden ones are left out. Raises DataError if it cannot be read."""
    images, folders = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if _is_folder(entry):
                    folders.append(entry.name)
                elif os.path.splitext(entry.name)[1].lower() in SUFFIXES:
                    images.append(entry.name)
    except OSError as error:
        fix = "Give yourself the right to read it (chmod), or move it away."
        raise DataError(f"the folder cannot be read: {error.strerror}", where=show(str(folder)), fix=fix) from error
    return sorted(images, key=os.fsencode), sorted(folders, key=os.fsencode)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself: no folder; as a file it will be named as broken
        return False


def _holds_images(folder: Path) -> bool:
    """Whether an image lies anywhere below `folder`; links are not followed."""
    return any(
        os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")
        for _, _, files in os.walk(folder)  # folders that cannot be read are passed over
        for name in files
    )


def show(name: str) -> str:
    """`name` in a form that any terminal can print: bytes that are not text, and control characters, as escapes."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def count(items: Sequence[object], noun: str) -> str:
    """'1 image', '2 images'."""
    return f"{len(items):,} {noun}{'s' * (len(items) != 1)}"


def names(items: Sequence[str], most: int = 5) -> str:
    """The first few of `items`, and how many more there are."""
    rest = len(items) - most
    return ", ".join(map(show, items[:most])) + (f" and {rest:,} more" if rest > 0 else "")
