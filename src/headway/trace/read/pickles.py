"""Plain data out of a pickle that somebody else wrote: containers, text, numbers; nothing in it is imported or called.

A pickle is a program. This one may build dicts, lists, tuples, sets, str, bytes, int, float, bool and None; the first instruction that
names a class or a function ends the reading. Where the system can limit a process's memory, the memory is bounded too, since a few
bytes of a pickle can ask for a table of billions.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from headway.spec.errors import TraceError

_PER_BYTE = 64  # memory that one byte of an honest pickle may become: an entry of a dict takes about 100 bytes and 6 bytes of pickle
_LEAST = 1 << 30


def plain(data: bytes, source: Path | str, fix: str = "") -> Any:
    """The value that the pickle `data` builds. Raises TraceError if it is broken, names any class or function, or asks for too much."""
    try:
        with _limited(_LEAST + _PER_BYTE * len(data)):
            return _Plain(io.BytesIO(data)).load()
    except _Forbidden as error:
        text = f"refused: this pickle asks for {error}, which could run code; a dump of plain data never does"
        raise TraceError(text, where=str(source), fix=fix) from None
    except MemoryError:
        raise TraceError("refused: this pickle asks for far more memory than it is long", where=str(source), fix=fix) from None
    except Exception as error:  # what a broken pickle raises is not limited to a kind: struct, unicode, index, attribute, ...
        raise TraceError(f"the pickle is broken or cut ({type(error).__name__})", where=str(source), fix=fix) from None


class _Forbidden(pickle.UnpicklingError):
    """A name that the pickle asked for."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise _Forbidden(f"{module}.{name}"[:120])

    def persistent_load(self, pid: Any) -> NoReturn:
        raise _Forbidden("an outside object")


@contextmanager
def _limited(num_bytes: int) -> Iterator[None]:
    """At most `num_bytes` more address space for this process while inside, where Linux counts it."""
    if not sys.platform.startswith("linux"):
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = now + num_bytes
    if soft != resource.RLIM_INFINITY and soft < limit:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
