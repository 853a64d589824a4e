"""Files that are not on this machine: s3://, gs://, http://, memory://, ... through fsspec, which is imported when such a path is used.

`Remote` answers what reading asks of a `pathlib.Path`: names, listing, opening. Bytes are fetched as they are read; a file is copied
only where its format must be read at random (SQLite).
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, Final, cast
from urllib.parse import unquote, urlsplit

from headway.spec.errors import TraceError

_URL: Final = re.compile(r"^[A-Za-z][\w+.-]+://|^[a-z][\w+.-]+::")
_PATTERN: Final = re.compile(r"[*?\[]")
_DRIVERS: Final = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "http": "aiohttp", "https": "aiohttp", "az": "adlfs", "abfs": "adlfs"}


def is_remote(path: object) -> bool:
    """Whether a path is no file of this machine."""
    return isinstance(path, Remote)


def path_of(given: str | Path) -> Path:
    """`given` as a path: local, or (with a protocol) remote. file:// is local."""
    if not isinstance(given, str):
        return given
    if not _URL.match(given):
        return Path(given)
    if given.startswith("file://"):
        return Path(unquote(urlsplit(given).path))
    return cast(Path, Remote(given.rstrip("/")))


def place_of(path: Path) -> str:
    """What tells whether two paths are one: the address, or the path without links and dots."""
    return str(path) if is_remote(path) else os.path.realpath(path)


def paths_of(given: str | Path) -> list[Path]:
    """`path_of`, where a remote path with * ? [ stands for all that fit it. Raises TraceError if none does."""
    path: Any = path_of(given)
    if not is_remote(path) or not _PATTERN.search(path.url):
        return [path]
    found: list[Path] = path.matches()
    if not found:
        raise TraceError("no file fits this pattern", where=path.url, fix="List the folder, or give its name without a pattern.")
    return found


@dataclass(frozen=True, order=True)
class Remote:
    """One file or folder at a URL. What goes wrong raises FileNotFoundError where nothing is there, TraceError for anything else."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rstrip("/").rpartition("/")[2]

    def exists(self) -> bool:
        """Whether there is anything."""
        return bool(self._ask("exists"))

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return bool(self._ask("isdir"))

    def is_file(self) -> bool:
        """Whether it is a file."""
        return bool(self._ask("isfile"))

    def stat(self) -> SimpleNamespace:
        """st_size; 0 where the server does not say it."""
        return SimpleNamespace(st_size=self._ask("size") or 0)

    def glob(self, pattern: str) -> Iterator[Path]:
        """What in this folder has a name that fits."""
        if not self.is_dir():
            return
        for row in self._ask("ls", detail=True):
            found = Remote(self._whole(row["name"]))
            if fnmatchcase(found.name, pattern) and found.url.rstrip("/") != self.url:
                yield cast(Path, found)

    def matches(self) -> list[Path]:
        """What fits this URL as a pattern, in order."""
        return sorted(cast(Path, Remote(self._whole(name))) for name in self._ask("glob"))

    def open(self, mode: str = "rb") -> BinaryIO:
        """Its bytes."""
        return cast(BinaryIO, io.BufferedReader(_Stream(self._ask("open", mode), self.url), 1 << 16))

    def read_bytes(self) -> bytes:
        """All its bytes."""
        with self.open() as file:
            return file.read()

    def _ask(self, question: str, *args: Any, **more: Any) -> Any:
        system, place = self._system()
        try:
            return getattr(system, question)(place, *args, **more)
        except FileNotFoundError:
            raise
        except Exception as error:  # every service raises its own
            raise _broken(error, self.url) from None

    def _system(self) -> tuple[Any, str]:
        """(the file system, the path in it)."""
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            fix = "Install it: pip install 'headway[remote]'. Or copy the files to this machine."
            raise TraceError("remote paths need fsspec, which is not installed", where=self.url, fix=fix) from None
        protocol = self.url.partition(":")[0].lower()
        try:
            system, place = url_to_fs(self.url)
        except ImportError as error:
            fix = f"Install it: pip install {_DRIVERS[protocol]}." if protocol in _DRIVERS else ""
            raise TraceError(f"fsspec lacks a package for {protocol}:// ({error})", where=self.url, fix=fix) from None
        except Exception as error:
            raise _broken(error, self.url) from None
        return system, str(place)

    def _whole(self, place: str) -> str:
        """A name that the file system lists, as a URL."""
        system, _ = self._system()
        return str(system.unstrip_protocol(place))


class _Stream(io.RawIOBase):
    """A file of fsspec whose errors are ours."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes; 0 at the end."""
        try:
            data = self._file.read(len(buffer))
        except Exception as error:
            raise _broken(error, self._url) from None
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Let the file go."""
        if not self.closed:
            self._file.close()
        super().close()


def _broken(error: Exception, url: str) -> TraceError:
    if isinstance(error, TraceError):
        return error
    text = f"cannot be read ({type(error).__name__}: {str(error)[:200]})"
    return TraceError(text, where=url, fix="Check the address and the credentials, or copy the files to this machine.")
