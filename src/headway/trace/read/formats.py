"""How the formats are told apart: each test looks at a path and the first bytes of the file (unpacked if it is gzip).

Content decides where it can; the ending of a name counts only where the content has no mark of its own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from headway.trace.read.source import head

_KINETO: Final = (b'"traceEvents"', b'"distributedInfo"', b'"schemaVersion"')  # a Kineto trace says much of what others say, inside its own
_JSON: Final = re.compile(rb"\s*[{\[]\s*[\"{}\[\]]")
_NCU: Final = re.compile(rb'^(\xef\xbb\xbf)?("?ID"?,.*Kernel Name|"?Process ID"?,.*Kernel Name.*Invocations)', re.MULTILINE)
_NCCL: Final = re.compile(rb"NCCL (INFO|WARN|version) ")
_LOGS: Final = (".log", ".txt", ".out", ".err", ".log.gz")
_LOG_BYTES: Final = 1 << 20
_FLIGHT: Final = (b"pg_config", b"pg_status", b"nccl_version", b"comm_lib_version", b"entries")
_FLIGHT_JSON: Final = (b'"pg_config"', b'"pg_status"', b'"collective_seq_id"', b'"comm_lib_version"', b'"nccl_comm_state"')


def is_xspace(path: Path, first: bytes) -> bool:
    """An XSpace: a message whose first field is a plane with a name; or its ending, where the name comes later."""
    if first[:1] != b"\n" or _JSON.match(first):
        return False
    named = any(name in first[:256] for name in (b"/host:", b"/device:", b"Task Environment"))
    return named or path.name.endswith((".xplane.pb", ".xplane.pb.gz"))


def is_sqlite(path: Path, first: bytes) -> bool:
    """A SQLite database: an export of Nsight Systems, if any of ours."""
    return first.startswith(b"SQLite format 3\0")


def is_snapshot(path: Path, first: bytes) -> bool:
    """The dict that torch.cuda.memory pickles, or the same as JSON: its first key is near the beginning."""
    keys = (b"segments", b"device_traces", b"allocator_settings")
    return first.lstrip()[:1] in (b"\x80", b"{") and any(key in first[:64] for key in keys)


def is_flight(path: Path, first: bytes) -> bool:
    """A dump of torch's flight recorder: a dict with its keys, pickled or JSON."""
    if first[:1] == b"\x80":
        return any(key in first for key in _FLIGHT)
    return first.lstrip()[:1] == b"{" and not any(key in first for key in _KINETO) and any(key in first for key in _FLIGHT_JSON)


def is_ncu(path: Path, first: bytes) -> bool:
    """A table of Nsight Compute: its header, or what it prints while it works. A redirection of PowerShell writes UTF-16."""
    first = first[2:].replace(b"\0", b"") if first.startswith((b"\xff\xfe", b"\xfe\xff")) else first
    return not _JSON.match(first) and (_NCU.search(first) is not None or b"==PROF==" in first)


def is_nccl(path: Path, first: bytes) -> bool:
    """Text in which NCCL speaks; in a file that is called a log, some way into it."""
    if _JSON.match(first) or b"\0" in first:
        return False
    if _NCCL.search(first):
        return True
    return path.name.endswith(_LOGS) and _NCCL.search(head(path, _LOG_BYTES)) is not None


def is_ncu_report(path: Path, first: bytes) -> bool:
    """What Nsight Compute writes itself."""
    return first.startswith(b"NVR\0") or path.name.endswith(".ncu-rep")


def is_nsys_report(path: Path, first: bytes) -> bool:
    """What Nsight Systems writes itself; nothing is known of its content."""
    return path.name.endswith((".nsys-rep", ".qdrep", ".qdstrm"))
