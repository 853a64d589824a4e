"""Data sets from outside the package: found by name, checked at the start and at every sample."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.data.dataset import ArrayDataset
from headway.data.loader import Loader
from headway.data.probe import problems
from headway.data.registry import open_data
from headway.spec.errors import DataError, SpecError
from headway.spec.parts import DataSpec

SOURCE = """
from __future__ import annotations
import numpy as np
from headway.data.dataset import ArrayDataset

def squares(spec):
    images = np.full((20, spec.channels, spec.size, spec.size), int(spec.options["level"]), np.uint8)
    return ArrayDataset("squares", images, np.arange(20) % 4, class_names=tuple("abcd"))

class Lazy:
    name, fingerprint, num_classes, class_names, channels, size = "lazy", "1", 2, ("x", "y"), 1, 4
    def __len__(self): return 9
    def sample_id(self, index): return index + 100
    def load(self, index): return {"image": np.full((1, 6, 5), index, np.uint8), "label": index % 2}

def lazy(spec): return Lazy()
def fails(spec): return {}["missing"]
def nothing(spec): pass
number = 3
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(SOURCE)
    return str(tmp_path / "mine.py")


def test_a_data_set_of_arrays(mine: str) -> None:
    spec = DataSpec(name=f"{mine}:squares", size=4, channels=3, options={"level": 255})
    data = open_data(spec)
    with Loader(data, spec, seed=0, global_batch=4) as loader:
        batch = loader.step(0)[0]
    assert (batch["image"] == 1).all()
    assert problems(spec) == []


def test_a_data_set_that_reads_one_by_one(mine: str) -> None:
    spec = DataSpec(name=f"{mine}:lazy", size=4, channels=1)
    with Loader(open_data(spec), spec, seed=0, global_batch=9) as loader:
        batch = loader.step(0)[0]
    assert sorted(batch["sample_id"].tolist()) == list(range(100, 109))
    assert batch["image"].shape == (9, 1, 4, 4)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("fails", DataError, r"mine.py:fails: failed: KeyError: 'missing' \(.*mine.py, line 17\)"),
        ("nothing", DataError, "returned a NoneType, which is no data set: it has no name, fingerprint"),
        ("number", DataError, "is a int, not a function"),
        ("squars", SpecError, "did you mean 'squares'"),
    ],
)
def test_what_is_not_a_data_set(mine: str, name: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        open_data(DataSpec(name=f"{mine}:{name}", size=4, channels=1))


def test_a_probe_loads_nothing_heavy() -> None:
    code = "import headway.data.probe, sys; print(*{'torch', 'numpy', 'PIL', 'sklearn'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_names_and_sizes_that_do_not_fit(mine: str) -> None:
    with pytest.raises(DataError, match=r"'didgets' is not a data set. Use digits, folder"):
        open_data(DataSpec(name="didgets"))
    with pytest.raises(
        DataError, match=r"samples are 8 x 8 pixels of 1 channels, the run wants 16 of 3. Set --data.size 8 --data.channels 1"
    ):
        open_data(DataSpec(name="digits", size=16, channels=3))
    assert len(open_data(DataSpec())) == 1797


class Made:
    """A good data set with the given members or sample entries changed."""

    def __init__(self, sample: dict[str, Any] | None = None, late: dict[str, Any] | None = None, **members: Any) -> None:
        base = dict(name="made", fingerprint="1", num_classes=3, class_names=tuple("abc"), channels=1, size=2, num=5, ids=range(5))
        self.__dict__.update(base | members)
        self.first = {"image": np.zeros((1, 2, 2), np.float32), "label": 0} | (sample or {})
        self.late = self.first | (late or {})

    def __len__(self) -> int:
        return int(self.__dict__["num"])

    def sample_id(self, index: int) -> Any:
        return self.__dict__["ids"][index]

    def load(self, index: int) -> Any:
        sample = self.late if index == 4 else self.first
        return {k: v for k, v in sample.items() if v is not None}


def opened(inner: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("headway.data.registry.locate", lambda name: lambda spec: inner)
    return open_data(DataSpec(name="x.py:y", size=2, channels=1))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"name": ""}, "name must be text"),
        ({"fingerprint": 7}, "fingerprint must be text"),
        ({"num_classes": 0, "class_names": ()}, "num_classes must be a whole number of at least 1, got 0"),
        ({"class_names": ("a",)}, "class_names must be 3 names, got 1"),
        ({"class_names": None}, "failed: TypeError"),
        ({"channels": 4}, "channels must be 1 or 3, got 4"),
        ({"size": 2.0}, "size must be a whole number"),
        ({"num": 0}, "it has no samples"),
        ({"ids": [0, 0, 1, 2, 3]}, "sample_id must differ"),
        ({"ids": [-1, 0, 1, 2, 3]}, r"sample_id must be a whole number in \[0, 2\*\*63\)"),
        ({"ids": ["a", "b", "c", "d", "e"]}, "sample_id must be a whole number"),
        ({"channels": 3, "size": 4, "name": ""}, "the data set is not usable, 1|name must be text"),
        ({"sample": {"label": None}}, r"with 'image' and 'label', got a mapping with \['image'\]"),
        ({"sample": {"label": 3}}, r"'label' must be a whole number in \[0, 3\), got 3"),
        ({"sample": {"label": 1.0}}, "'label' must be a whole number"),
        ({"sample": {"label": True}}, "'label' must be a whole number"),
        ({"sample": {"image": [[0]]}}, "'image' must be a numpy array, got list"),
        ({"sample": {"image": np.zeros((2, 2, 1), np.uint8)}}, r"'image' must be \[1, H, W\] with H and W at least 2, got \[2, 2, 1\]"),
        ({"sample": {"image": np.zeros((1, 1, 2), np.uint8)}}, "at least 2"),
        ({"sample": {"image": np.zeros((1, 2, 2))}}, "must be uint8, or float32 in .* got float64"),
        ({"sample": {"image": np.full((1, 2, 2), 255, np.float32)}}, r"must lie in \[-1, 1\], got 255 to 255"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(members: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=message):
        opened(Made(**members), monkeypatch)


@pytest.mark.parametrize(
    ("late", "message"),
    [
        ({"label": -1}, "'label' must be"),
        ({"image": np.zeros((1, 2, 2), np.uint8)}, "all images must be of one type: the first is float32, this one uint8"),
        ({"image": np.full((1, 2, 2), np.nan, np.float32)}, "got nan to nan"),
        ({"text": np.zeros(4)}, r"'text' must have one shape: the first has \(3,\), this one \(4,\)"),
        ({"text": None}, "same keys: the first has"),
    ],
)
def test_what_is_wrong_later_is_said_with_the_sample(late: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = opened(Made(sample={"text": np.zeros(3)}, late=late), monkeypatch)
    with Loader(data, DataSpec(size=2), seed=0, global_batch=5) as loader, pytest.raises(DataError, match="sample 4 .id 4.: .*" + message):
        loader.step(0)


def test_a_batch_reader_is_used_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Many(Made):
        calls = 0

        def load_batch(self, indices: np.ndarray) -> dict[str, Any]:
            Many.calls += 1
            rows = ArrayDataset("x", np.zeros((5, 1, 2, 2), np.float32), np.arange(5) % 3).load_batch(indices)
            return {**rows, **{k: v for k, v in self.__dict__.get("rows", {}).items()}}

    with Loader(opened(Many(), monkeypatch), DataSpec(size=2, flip=True), seed=0, global_batch=5) as loader:
        assert sorted(loader.step(0)[0]["label"].tolist()) == [0, 0, 1, 1, 2]
    assert Many.calls == 1
    bad = {
        "must return 5 rows of each": {"label": np.zeros(4, int)},
        r"'image' must be \[5, 1, 2, 2\], got \[5, 1, 3, 3\]": {"image": np.zeros((5, 1, 3, 3), np.float32)},
        "must lie in": {"image": np.full((5, 1, 2, 2), 2, np.float32)},
        "'label' must be whole numbers in .* int64, 0 to 3": {"label": np.array([0, 1, 2, 3, 0])},
    }
    for message, rows in bad.items():
        data = opened(Many(rows=rows), monkeypatch)
        with Loader(data, DataSpec(size=2), seed=0, global_batch=5) as loader, pytest.raises(DataError, match=message):
            loader.step(0)
