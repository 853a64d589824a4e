"""Sizes that only go down: code lines by room, and of everything that the training loop can reach.

    python tools/size.py            the table
    python tools/size.py --tighten  lower the limits of tests/house/ratchet.json to what the tree has now

A code line is not blank, not only a comment and not part of a docstring. The closure of a module is every file of ours that its import
statements reach, wherever they stand (also inside functions), except under `if TYPE_CHECKING:`.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
RATCHET = ROOT / "tests" / "house" / "ratchet.json"
LOOP = "headway.train.loop"
_ROUND = 50  # limits are multiples of this, so that a small change does not move them
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENCODING, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Number of code lines of a Python file's text."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None:
            first = node.body[0]
            lines.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def module_file(module: str, source: Path = SOURCE) -> Path | None:
    """The file of a module or package under `source`; None if it is not there."""
    path = source.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


def imports(text: str, package: str) -> set[str]:
    """Modules that a file of `package` names in import statements; `from a import b` gives a and a.b."""
    found: set[str] = set()
    todo: list[ast.AST] = [ast.parse(text)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            start = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (start, node.module or "") if part)
            found.update([base, *(f"{base}.{alias.name}" for alias in node.names)])
        todo += ast.iter_child_nodes(node)
    return found


def closure(module: str, source: Path = SOURCE) -> set[Path]:
    """Files of ours that `module` reaches, itself and the packages above each included; empty if it does not exist."""
    own = module.split(".")[0]
    files: set[Path] = set()
    todo, seen = [module], {module}
    while todo:
        name = todo.pop()
        file = module_file(name, source)
        if file is None:
            continue
        files.add(file)
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        wanted = imports(file.read_text(encoding="utf-8"), package) | {package}
        wanted |= {w.rpartition(".")[0] for w in wanted}
        new = {w for w in wanted if w.split(".")[0] == own} - seen
        seen |= new
        todo += sorted(new)
    return files


def rooms(source: Path = SOURCE) -> dict[str, list[Path]]:
    """Python files of each room; files of the package itself count under their own name."""
    package = source / "headway"
    table: dict[str, list[Path]] = {}
    for file in sorted(package.rglob("*.py")):
        table.setdefault(file.relative_to(package).parts[0], []).append(file)
    return table


def total(files: set[Path] | list[Path]) -> int:
    """Code lines of several files."""
    return sum(code_lines(file.read_text(encoding="utf-8")) for file in files)


def tightened(limit: int, now: int) -> int:
    """The limit that `now` allows: never above the old one."""
    return min(limit, -(-now // _ROUND) * _ROUND)


def main() -> None:
    """Print the table; with --tighten lower the limits."""
    parser = argparse.ArgumentParser(description="code lines by room and of the training loop's closure")
    parser.add_argument("--tighten", action="store_true", help="lower the limits to what the tree has now")
    args = parser.parse_args()
    for room, files in rooms().items():
        longest = max(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
        print(f"{room:<14}{len(files):>4} files {total(files):>6} code   longest file {longest:>4} lines")
    reached = closure(LOOP)
    limits = json.loads(RATCHET.read_text(encoding="utf-8"))
    now = total(reached)
    print(f"\n{LOOP} reaches {len(reached)} files, {now} code lines (limit {limits['loop_closure_code_lines']})")
    if args.tighten and reached:
        limits["loop_closure_code_lines"] = tightened(limits["loop_closure_code_lines"], now)
        RATCHET.write_text(json.dumps(limits, indent=2) + "\n", encoding="utf-8")
        print(f"limit now {limits['loop_closure_code_lines']}")


if __name__ == "__main__":
    main()
