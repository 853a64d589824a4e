"""The analysis wing lives without torch: it is imported and run where `import torch` raises."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "src" / "headway"
WITHOUT_TORCH = ("spec", "stats", "trace", "history", "plan", "doctor", "report", "recipes")
ABSENT = ("torch", "triton", "torchao", "torchvision", "sklearn", "scipy", "PIL", "safetensors", "jaxtyping")
CORE = {"numpy", "rich", "msgspec"}
OPTIONAL = {("headway.trace.fleet.on_ray", "ray"), ("headway.trace.read.remote", "fsspec")}  # extras, imported inside a function


@pytest.fixture(scope="module")
def no_torch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which what `pip install headway` does not bring cannot be imported, nor in its child processes."""
    folder = tmp_path_factory.mktemp("absent")
    for name in ABSENT:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError('{name} is not installed', name='{name}')\n")
    return os.environ | {"PYTHONPATH": str(folder)}


def run(environment: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def analysis_modules() -> list[str]:
    files = [f for room in (*WITHOUT_TORCH, "cli") for f in sorted((PACKAGE / room).rglob("*.py"))]
    return [".".join(f.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__") for f in files]


def test_the_absence_is_real(no_torch: dict[str, str]) -> None:
    done = run(no_torch, "-c", "import torch")
    assert done.returncode == 1
    assert "torch is not installed" in done.stderr


def test_every_module_of_the_analysis_wing_imports(no_torch: dict[str, str]) -> None:
    program = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
    done = run(no_torch, "-W", "error", "-c", program, *analysis_modules())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("args", [["--help"], ["recipes"], ["check", "digits"]], ids=" ".join)
def test_commands_of_the_analysis_wing_run(no_torch: dict[str, str], args: list[str]) -> None:
    done = run(no_torch, "-m", "headway", *args)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


def test_training_without_torch_names_the_extra(no_torch: dict[str, str], tmp_path: Path) -> None:
    done = run(no_torch, "-m", "headway", "train", "digits", "--run", str(tmp_path / "run"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "pip install 'headway[train]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_analysis_wing_imports_only_what_the_core_install_brings() -> None:
    graph = grimp.build_graph("headway", include_external_packages=True)
    outside = {
        (name, imported)
        for name in graph.modules
        if name.startswith(tuple(f"headway.{room}" for room in WITHOUT_TORCH))
        for imported in graph.find_modules_directly_imported_by(name)
        if imported.split(".")[0] not in CORE | {"headway"} | set(sys.stdlib_module_names) and (name, imported) not in OPTIONAL
    }
    assert not outside, f"not a core dependency: {sorted(outside)}"


def test_the_core_install_never_pulls_torch() -> None:
    """The closure of what the core dependencies require, by the metadata of the installed packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {requirement_name(r) for r in project["dependencies"]} == CORE
    todo, seen = list(CORE), set(CORE)
    while todo:
        for text in importlib.metadata.requires(todo.pop()) or []:
            name = requirement_name(text)
            if "extra ==" not in text and name not in seen and is_installed(name):
                seen.add(name)
                todo.append(name)
    assert not seen & {"torch", "triton", "scipy", "pandas"}
    assert len(seen) <= 8, f"the core install is small: {sorted(seen)}"


def requirement_name(text: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", text)
    assert found
    return found[0].lower()


def is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
