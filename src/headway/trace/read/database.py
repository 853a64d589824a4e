"""A SQLite file, only read: it and its folder stay as they were, whatever is asked of it, and what is damaged is said.

`immutable` makes SQLite take no lock and write nothing: no journal, no index, no shared memory beside the file.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from headway.spec.errors import TraceError
from headway.spec.health import Health
from headway.trace.read.source import on_disk

_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)  # the second: SQLite's own message quotes damaged text
_CHUNK: Final = 1 << 16
_LEAST_BYTES: Final = 4  # of a row: damage can make a table seem endless, never with more rows than the file could hold


class Database:
    """The tables of a file, each with its columns, and what could not be read of them."""

    def __init__(self, connection: sqlite3.Connection, path: Path, local: Path) -> None:
        self._connection, self._most = connection, local.stat().st_size // _LEAST_BYTES + 1
        logs = [local.with_name(local.name + ending) for ending in ("-wal", "-journal")]
        self._beside = next((log.name for log in logs if log.is_file() and log.stat().st_size), "")
        self.broken: dict[str, str] = {}  # table -> what went wrong
        self.tables: dict[str, frozenset[str]] = {}
        try:
            names = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        except _ERRORS as error:
            fix = "Export the report again, and let the export finish."
            raise TraceError(f"the database cannot be read ({error})", where=str(path), fix=fix) from None
        for name in names:
            try:
                self.tables[name] = frozenset(str(row[1]) for row in connection.execute(f"PRAGMA table_info({_quoted(name)})"))
            except _ERRORS as error:
                self.broken[name] = str(error)

    def chunks(self, table: str, *fields: Sequence[str] | str) -> Iterator[list[Sequence[Any]]]:
        """Columns of a table, some ten thousand rows at a time, in the order in which the rows are stored; () if it is not there.

        A field is the name of a column, or several of which the first that is not null counts; None where the table has none of them.
        """
        present = self.tables.get(table)
        if present is None:
            return
        wanted = [_expression([f for f in ((field,) if isinstance(field, str) else field) if f in present]) for field in fields]
        try:
            cursor = self._connection.execute(f"SELECT {', '.join(wanted)} FROM {_quoted(table)} NOT INDEXED LIMIT {self._most}")
        except _ERRORS as error:
            self.broken[table] = str(error)
            return
        whole = True
        while whole:
            rows: list[Any] = []
            try:
                rows.extend(islice(cursor, _CHUNK))  # what came before an error stays in the list
            except _ERRORS as error:
                self.broken[table], whole = str(error), False
            if not rows:
                return
            yield list(zip(*rows, strict=True))

    def rows(self, table: str, *fields: Sequence[str] | str) -> list[tuple[Any, ...]]:
        """All rows of a small table."""
        return [row for columns in self.chunks(table, *fields) for row in zip(*columns, strict=True)]

    def health(self) -> list[Health]:
        """What could not be read."""
        out = []
        if self._beside:
            text = f"what was not yet written into the database ({self._beside}) is not read; close the program that writes it"
            out.append(Health(what="unfinished_database", count=1, affects="what the rest would have told", text=text))
        if not self.broken:
            return out
        text = f"tables that are damaged; the rows before the damage are used: {', '.join(sorted(self.broken)[:6])}"
        affects = "what the rest would have told"
        return [*out, Health(what="damaged_tables", count=len(self.broken), affects=affects, text=text, withholds=("idle",))]


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """The database in `path` (gzip too). Raises TraceError if it is none or too damaged to list its tables."""
    with on_disk(path) as there, _whole_pages(there) as local:
        uri = f"{local.resolve().as_uri()}?mode=ro&immutable=1"
        try:
            connection = sqlite3.connect(uri, uri=True)
        except _ERRORS as error:
            raise TraceError(f"the database cannot be opened ({error})", where=str(path)) from None
        with closing(connection):
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.execute("PRAGMA trusted_schema = OFF")  # functions and virtual tables that a schema names are not run
            connection.execute("PRAGMA writable_schema = ON")  # so a file whose end is missing opens; nothing is written in mode=ro
            yield Database(connection, path, local)


@contextmanager
def _whole_pages(path: Path) -> Iterator[Path]:
    """`path`, or a copy without the piece of a page at its end: SQLite would fill that up with zeros and take them for rows."""
    with path.open("rb") as file:
        head = file.read(18)
        size, page = path.stat().st_size, int.from_bytes(head[16:18], "big")
        page = 65536 if page == 1 else page
        if page < 512 or size % page == 0 or size < page:
            yield path
            return
        with TemporaryDirectory(prefix="headway-") as folder:
            copy = Path(folder) / "copy"
            file.seek(0)
            with copy.open("wb") as out:
                shutil.copyfileobj(file, out)
                out.truncate(size - size % page)
            yield copy


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _expression(columns: Sequence[str]) -> str:
    if not columns:
        return "NULL"
    return _quoted(columns[0]) if len(columns) == 1 else f"coalesce({', '.join(map(_quoted, columns))})"
