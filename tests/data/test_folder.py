"""Folders as people have them: classes, junk, broken files, links, odd names; and a manifest that remembers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headway.data import manifest
from headway.data.dataset import Dataset
from headway.data.folder import FolderDataset, folder, path_id
from headway.data.loader import Loader
from headway.data.probe import problems
from headway.data.registry import open_data
from headway.spec.errors import DataError
from headway.spec.parts import DataSpec


def draw(path: Path, level: int = 100, size: tuple[int, int] = (12, 10)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level, level, level)).save(path, "PNG")
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes, six images; the level of an image says which it is."""
    for k in range(6):
        draw(tmp_path / "photos" / ("rose", "tulip")[k % 2] / f"{k}.png", 40 * k)
    return tmp_path / "photos"


def spec(path: Path, **changes: object) -> DataSpec:
    return replace(DataSpec(name="folder", path=str(path), size=8, channels=1), **changes)  # type: ignore[arg-type]


def levels(data: FolderDataset) -> dict[int, tuple[int, int]]:
    """Level -> (id, label)."""
    samples = [(data.load(i), data.sample_id(i)) for i in range(len(data))]
    return {int(s["image"].mean()): (ident, s["label"]) for s, ident in samples}


def test_classes_ids_and_pixels(photos: Path) -> None:
    data = folder(spec(photos))
    assert isinstance(data, Dataset)
    assert (data.class_names, data.num_classes, len(data), data.notes) == (("rose", "tulip"), 2, 6, [])
    assert levels(data) == {40 * k: (path_id(f"{('rose', 'tulip')[k % 2]}/{k}.png"), k % 2) for k in range(6)}
    assert data.load(0)["image"].shape == (1, 8, 8)
    assert folder(spec(photos, channels=3)).load(0)["image"].shape == (3, 8, 8)
    assert folder(spec(photos, crop="random")).load(0)["image"].shape == (1, 8, 10)


def test_a_flat_folder_is_one_class(tmp_path: Path) -> None:
    draw(tmp_path / "a.PNG"), draw(tmp_path / "b.jpeg")
    data = folder(spec(tmp_path))
    assert (data.class_names, len(data)) == (("all",), 2)


def test_order_and_ids_do_not_depend_on_the_file_system(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(9):
        (photos / "rose" / f"broken {k}.png").write_bytes(b"junk")
    want = folder(spec(photos))
    real = os.scandir

    class Backwards:
        def __init__(self, path: Path) -> None:
            with real(path) as entries:
                self.entries = list(entries)[::-1]

        def __enter__(self) -> list[os.DirEntry[str]]:
            return self.entries

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(os, "scandir", Backwards)
    got = folder(spec(photos))
    assert (got.fingerprint, got.notes) == (want.fingerprint, want.notes)
    assert [got.sample_id(i) for i in range(6)] == [want.sample_id(i) for i in range(6)]


def test_fingerprint_follows_content_not_place_or_time(photos: Path, tmp_path: Path) -> None:
    want = folder(spec(photos)).fingerprint
    shutil.copytree(photos, tmp_path / "elsewhere", copy_function=shutil.copyfile)
    assert folder(spec(tmp_path / "elsewhere")).fingerprint == want
    others = {folder(spec(photos, **c)).fingerprint for c in ({"size": 4}, {"channels": 3}, {"crop": "random"}, {"flip": True})}
    draw(photos / "rose" / "0.png", 1)
    others.add(folder(spec(photos)).fingerprint)
    (photos / "rose" / "0.png").rename(photos / "tulip" / "0.png")
    others.add(folder(spec(photos)).fingerprint)
    (photos / "tulip").rename(photos / "lily")
    others.add(folder(spec(photos)).fingerprint)
    assert len(others | {want}) == 8


def test_a_new_file_changes_no_other_id(photos: Path) -> None:
    before = levels(folder(spec(photos)))
    draw(photos / "tulip" / "0.png", 250)
    after = levels(folder(spec(photos)))
    assert {k: after[k] for k in before} == before
    assert len(after) == 7


BREAK: dict[str, Callable[[Path], object]] = {
    "empty": lambda p: p.write_bytes(b""),
    "text": lambda p: p.write_text("not an image"),
    "cut": lambda p: p.write_bytes(p.read_bytes()[:45]),
    "link to itself": lambda p: (p.unlink(), p.symlink_to(p.name)),
    "link to nothing": lambda p: (p.unlink(), p.symlink_to("gone.png")),
    "pipe": lambda p: (p.unlink(), os.mkfifo(p)),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", BREAK)
def test_a_broken_image_is_named_counted_and_skipped_or_refused(photos: Path, kind: str) -> None:
    BREAK[kind](photos / "rose" / "2.png")
    data = folder(spec(photos))
    assert len(data) == 5
    assert 80 not in levels(data)
    (note,) = data.notes
    assert note.startswith("skipped: 1 of 6 images cannot be used: rose/2.png (")
    with pytest.raises(
        DataError, match=r"1 of 6 images cannot be used: rose/2.png \(.*\)\. Repair or remove them, or set --data.broken skip."
    ):
        folder(spec(photos, broken="refuse"))


def test_many_broken_images_are_summed_up_and_an_empty_class_is_told(photos: Path) -> None:
    for k in range(0, 20, 2):
        (photos / "rose" / f"{k}.png").write_bytes(b"junk")
    data = folder(spec(photos))
    assert (len(data), data.class_names) == (3, ("rose", "tulip"))
    assert "10 of 13 images" in data.notes[0]
    assert data.notes[0].endswith("; and 5 more")
    assert data.notes[1] == "classes without a usable image: rose"


def test_no_image_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"junk")
    with pytest.raises(
        DataError, match=r"1 of 1 image cannot be used: a.png \(the content is not PNG.*\)\. Give --data.path a folder with"
    ):
        folder(spec(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_without_the_right_to_read(photos: Path, tmp_path: Path) -> None:
    (photos / "rose" / "2.png").chmod(0)
    assert "rose/2.png (it cannot be read: Permission denied)" in folder(spec(photos), cache=tmp_path / "c").notes[0]
    (photos / "rose" / "2.png").chmod(0o600)
    assert folder(spec(photos), cache=tmp_path / "c").notes == []
    (photos / "rose").chmod(0)
    with pytest.raises(DataError, match=r"rose: the folder cannot be read: Permission denied. Give yourself the right"):
        folder(spec(photos))
    (photos / "rose").chmod(0o700)


def test_a_right_that_is_denied(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for root, with the system's answer in its place: it is not remembered, for it may change without the file."""
    real = Path.read_bytes
    with monkeypatch.context() as patch:
        patch.setattr(
            Path, "read_bytes", lambda p: real(p) if p.name != "2.png" else (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
        )
        assert "rose/2.png (it cannot be read: Permission denied)" in folder(spec(photos), cache=tmp_path / "c").notes[0]
    assert folder(spec(photos), cache=tmp_path / "c").notes == []
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", lambda p: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
        with pytest.raises(DataError, match=r"photos: the folder cannot be read: Permission denied. Give yourself the right"):
            folder(spec(photos))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: None, "there is no such folder. Give --data.path"),
        (lambda p: p.write_text(""), "is not a folder. Give"),
        (lambda p: p.symlink_to(p), "is not a folder"),
        (lambda p: p.mkdir(), r"holds no image files \(.bmp, .gif, .jpeg, .jpg, .png, .tif, .tiff, .webp\)\. Give"),
        (lambda p: (p / "class").mkdir(parents=True), "holds no image files"),
        (lambda p: draw(p / ".hidden.png"), "holds no image files"),
        (lambda p: draw(p / ".hidden" / "a.png"), "holds no image files"),
        (lambda p: draw(p / "a" / "b" / "c" / "d.png"), "one level down; there are some in a/b. Give"),
        (lambda p: (draw(p / "a.png"), draw(p / "c" / "b.png")), r"holds images itself \(1 image\) and in subfolders \(c\), so .* Move"),
    ],
)
def test_folders_that_cannot_be_used_are_refused_and_probed_alike(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    path = tmp_path / "data"
    make(path)
    with pytest.raises(DataError, match=message) as caught:
        open_data(spec(path))
    assert caught.value.where == str(path)
    assert problems(spec(path)) == [f"--data.path {caught.value}"]


def test_junk_beside_the_images_is_told_or_passed_over(photos: Path) -> None:
    draw(photos / "rose" / "._0.png"), draw(photos / "rose" / "old" / "x.png"), draw(photos / ".cache" / "y.png")
    (photos / "rose" / "0.txt").write_text("a rose")
    (photos / "captions").mkdir()
    (photos / "again").symlink_to(photos)
    data = folder(spec(photos))
    assert (len(data), data.class_names) == (6, ("rose", "tulip"))
    assert data.notes == [
        "deeper than one level, not used: rose/old",
        "links to the folder itself, not followed: again",
        "subfolders without images, no class: captions",
    ]
    assert problems(spec(photos)) == []


def test_linked_classes_and_files_are_followed(photos: Path, tmp_path: Path) -> None:
    draw(tmp_path / "store" / "deep.png", 222)
    (photos / "lily").symlink_to(tmp_path / "store")
    (photos / "rose" / "link.png").symlink_to(tmp_path / "store" / "deep.png")
    data = folder(spec(photos))
    assert (data.class_names, len(data)) == (("lily", "rose", "tulip"), 8)


@pytest.mark.parametrize(
    "name", ["a b.png", "line\nbreak.png", "quote'\".png", "日本.png", "\u202eevil.png", os.fsdecode(b"\xff\xfe.png"), "-.png"]
)
def test_odd_names(tmp_path: Path, name: str) -> None:
    draw(tmp_path / "data" / "class\n1" / name)
    draw(tmp_path / "data" / "class\n1" / "good.png")
    data = folder(spec(tmp_path / "data"), cache=tmp_path / "cache")
    again = folder(spec(tmp_path / "data"), cache=tmp_path / "cache")
    assert (len(data), again.fingerprint) == (2, data.fingerprint)
    assert data.load(0)["image"].shape == (1, 8, 8)
    (tmp_path / "data" / "class\n1" / name).write_bytes(b"junk")
    (note,) = folder(spec(tmp_path / "data"), cache=tmp_path / "cache").notes
    assert note.isprintable()
    note.encode()


def test_a_file_that_goes_or_breaks_during_the_run(photos: Path) -> None:
    data = folder(spec(photos))
    (photos / "rose" / "2.png").unlink()
    (photos / "rose" / "4.png").write_bytes(b"junk")
    fix = "It was good when the run started: put it back, or start again without it."
    for index in range(6):
        name = data._rows[index][1]
        if name in ("rose/2.png", "rose/4.png"):
            reason = {"2": "No such file or directory", "4": "the content is not PNG"}[name[5]]
            with pytest.raises(DataError, match=f"{photos}/{name}: .*{reason}.*{fix}"):
                data.load(index)
    with (
        Loader(data, spec(photos, workers=2), seed=0, global_batch=4) as loader,
        pytest.raises(DataError, match=r"rose/[24]\.png: .* put it back"),
    ):
        steps = iter(loader)
        next(steps), next(steps)


def test_the_manifest_is_remembered_and_only_what_is_new_is_decoded(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    real = manifest.decode
    monkeypatch.setattr(manifest, "decode", lambda data: (decoded.append(1), real(data))[1])
    cache = tmp_path / "cache" / "new"
    (photos / "rose" / "4.png").write_bytes(b"junk")
    first = folder(spec(photos), cache=cache)
    assert len(decoded) == 6
    again = folder(spec(photos), cache=cache)
    assert (len(decoded), again.fingerprint, again.notes) == (6, first.fingerprint, first.notes)
    draw(photos / "rose" / "4.png", 160), draw(photos / "rose" / "6.png", 5)
    third = folder(spec(photos), cache=cache)
    assert (len(decoded), len(third), third.notes) == (8, 7, [])
    (photos / "rose" / "6.png").unlink()
    assert len(folder(spec(photos), cache=cache)) == 6
    assert len(decoded) == 8
    (file,) = cache.iterdir()
    for damage in (b"", b"{}", b"[1, 2]", file.read_bytes()[:100], file.read_bytes().replace(b"pillow", b"other")):
        file.write_bytes(damage)
        before = len(decoded)
        assert folder(spec(photos), cache=cache).fingerprint == folder(spec(photos)).fingerprint
        assert len(decoded) == before + 12
        assert json.loads(file.read_bytes())["schema"] == manifest.SCHEMA


def test_a_cache_that_cannot_be_written_is_told(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    data = folder(spec(photos), cache=tmp_path / "file" / "cache")
    assert len(data) == 6
    assert data.notes[0].startswith("the manifest could not be kept in ")


def test_a_folder_trains(photos: Path) -> None:
    for k in range(6, 20):
        draw(photos / "tulip" / f"{k}.png", 12 * k, (30, 10 + k))
    for workers in (0, 2):
        settings = spec(photos, size=8, channels=3, crop="random", flip=True, workers=workers)
        with Loader(open_data(settings), settings, seed=1, global_batch=8) as loader:
            out = next(iter(loader))[0]
        if workers == 0:
            want = out
    assert all(np.array_equal(want[k], out[k]) for k in want)
    assert out["image"].shape == (8, 3, 8, 8)
