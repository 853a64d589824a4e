"""How the formats are told apart: each test looks at a path and the first bytes of the file (unpacked if it is gzip).

Content decides where it can; the ending of a name counts only where the content has no mark of its own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_KINETO: Final = (b'"traceEvents"', b'"distributedInfo"', b'"schemaVersion"')  # a Kineto trace says much of what others say, inside its own
_JSON: Final = re.compile(rb"\s*[{\[]\s*[\"{}\[\]]")
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
