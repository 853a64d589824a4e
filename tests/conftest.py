"""What every test gets: one thread, shapes checked, golden text, the folder of shared real inputs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before numpy or torch are imported: two test workers share two cores

import jaxtyping
import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
SHAPED_ROOMS = ("kernels", "nn", "encoders", "diffusion", "parallel", "data", "evaluate")

settings.register_profile("house", deadline=None, derandomize=True)  # the same examples on every machine
settings.register_profile("search", deadline=None, max_examples=2000)  # pytest --hypothesis-profile=search: look for new ones
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew; review them as a diff")


def pytest_configure(config: pytest.Config) -> None:
    # Shape annotations of tensor functions are checked here and nowhere else: a training run pays nothing for them.
    jaxtyping.install_import_hook([f"headway.{room}" for room in SHAPED_ROOMS], "beartype.beartype")


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared(root: Path) -> Path:
    """The folder of real inputs (traces of other programs) beside the repository; without it the test is skipped."""
    path = Path(os.environ.get("HEADWAY_SHARED", root.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"no folder of shared inputs at {path}")
    return path


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: text equals the file golden/NAME beside the test. `pytest --update-golden` writes it anew."""
    folder = Path(request.path).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.is_file(), f"{path} is not there; write it with: pytest --update-golden {request.path}"
        assert text == path.read_text(encoding="utf-8"), f"differs from {path}; if that is meant: pytest --update-golden {request.path}"

    return compare
