"""A bar while files are read: on a terminal, and only if it takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

WORTH_BYTES = 20 << 20  # of all files together, unpacked or not


@contextmanager
def reading(files: Sequence[Path], console: Console) -> Iterator[Callable[[Path], None]]:
    """A function to call with each file before it is read; it does nothing where nobody would see the bar."""
    size = sum(f.stat().st_size for f in files if f.is_file())
    if not console.is_terminal or size < WORTH_BYTES:
        yield lambda path: None
        return
    columns = (TextColumn("reading {task.fields[name]}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=len(files), completed=-1, name="")
        yield lambda path: bar.update(task, advance=1, name=path.name)
