"""Any folder of images as a data set.

Samples are ordered by their id, a hash of the path inside the folder: the order is the same on every file system, classes are mixed in
every window of the global order, and a new file changes no other sample's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from os import fsencode
from pathlib import Path
from typing import Literal

from headway.data.dataset import Sample
from headway.data.files import Listing, count, find, names, show
from headway.data.image import decode, fit
from headway.data.manifest import Entry, check, read
from headway.spec.errors import DataError
from headway.spec.parts import DataSpec


class FolderDataset:
    """Images [C, H, W] uint8, shorter edge = `size`; cut to a square here (crop = center) or by the loader (crop = random)."""

    name = "folder"

    def __init__(self, listing: Listing, entries: Sequence[Entry], spec: DataSpec, notes: Sequence[str] = ()) -> None:
        classes = dict(listing.files)
        self._root = listing.root
        self._rows = sorted((path_id(e.path), e.path, classes[e.path]) for e in entries)
        self._square = spec.crop == "center"
        self.channels: Literal[1, 3] = spec.channels
        self.size = spec.size
        self.class_names = listing.class_names
        self.num_classes = len(listing.class_names)
        self.notes = list(notes)
        state = blake2b(repr((spec.size, spec.channels, spec.crop, spec.flip, self.class_names)).encode(), digest_size=16)
        for entry in sorted(entries, key=lambda e: fsencode(e.path)):
            state.update(f"\0{entry.digest} {classes[entry.path]} ".encode() + fsencode(entry.path))
        self.fingerprint = state.hexdigest()

    def __len__(self) -> int:
        return len(self._rows)

    def sample_id(self, index: int) -> int:
        """A hash of the path inside the folder."""
        return self._rows[index][0]

    def load(self, index: int) -> Sample:
        """Reads and decodes one file. Raises DataError that names it if it has gone or changed since the manifest was made."""
        _, path, label = self._rows[index]
        try:
            image = decode(read(self._root, path), self.channels, at_least=2 * self.size)
        except DataError as error:
            fix = "It was good when the run started: put it back, or start again without it."
            raise DataError(error.what, where=show(str(Path(self._root, path))), fix=fix) from error
        return {"image": fit(image, self.size, square=self._square), "label": label}


def folder(spec: DataSpec, *, cache: Path | None = None) -> FolderDataset:
    """The images of `spec.path`. `cache`: a folder that remembers which files are good.

    Raises DataError if the folder cannot be used, if no image can be read, or, with spec.broken = refuse, if any cannot.
    """
    listing = find(spec.path)
    entries, notes = check(listing, cache)
    notes = [*listing.notes, *notes]
    good, broken = [e for e in entries if not e.reason], [e for e in entries if e.reason]
    if broken:
        shown = "; ".join(f"{show(e.path)} ({e.reason})" for e in broken[:5]) + f"; and {len(broken) - 5:,} more" * (len(broken) > 5)
        what = f"{len(broken):,} of {count(entries, 'image')} cannot be used: {shown}"
        if not good:
            raise DataError(what, where=show(spec.path), fix="Give --data.path a folder with images that can be decoded.")
        if spec.broken == "refuse":
            raise DataError(what, where=show(spec.path), fix="Repair or remove them, or set --data.broken skip.")
        notes.append(f"skipped: {what}")
    classes = dict(listing.files)
    used = {classes[e.path] for e in good}
    if lost := [name for c, name in enumerate(listing.class_names) if c not in used]:
        notes.append(f"classes without a usable image: {names(lost)}")
    return FolderDataset(listing, good, spec, notes)


def path_id(path: str) -> int:
    """63 bits of a hash of `path` (relative, with '/')."""
    return int.from_bytes(blake2b(fsencode(path), digest_size=8).digest(), "little") >> 1
