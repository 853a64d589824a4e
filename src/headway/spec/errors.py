"""The error tree.

    HeadwayError            what the user can put right: one paragraph, exit code 2
    ├── SpecError           a setting, an override or a run.json is wrong
    ├── DataError           a data set is missing, empty, unreadable or broken
    ├── TraceError          a trace is missing, is not a trace, or cannot be trusted
    ├── PlanError           a plan cannot be made
    └── RunError            a run cannot start, go on, be resumed or be found

Anything else that escapes is a bug of ours: a traceback and exit code 1.
"""

from __future__ import annotations

import traceback


class HeadwayError(Exception):
    """What happened, where, and how to put it right, in one paragraph.

    Parts are kept apart so that programs can read them; `str()` joins them. `relayed`: another process says it.
    """

    relayed = False

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        parts = [f"{where}: {what}" if where else what, fix]
        super().__init__(" ".join(sentence(p) for p in parts if p))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.fix))


def sentence(text: str) -> str:
    """`text` with one closing full stop."""
    text = text.strip()
    return text if text.endswith((".", "!", "?", ":")) else text + "."


def _rebuild(kind: type[HeadwayError], what: str, where: str, fix: str) -> HeadwayError:
    return kind(what, where=where, fix=fix)


class SpecError(HeadwayError):
    """A setting, an override or a run.json is wrong."""


class DataError(HeadwayError):
    """A data set is missing, empty, unreadable or broken."""


class TraceError(HeadwayError):
    """A trace is missing, is not a trace, or cannot be trusted."""


class PlanError(HeadwayError):
    """A plan cannot be made."""


class RunError(HeadwayError):
    """A run cannot start, go on, be resumed or be found."""


def failure(error: BaseException) -> str:
    """What an exception in a user's own code was, and where."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({at.filename}, line {at.lineno})"


def joined(problems: list[str], what: str = "the settings are not usable") -> str:
    """All problems in one message: one as it is, several as a numbered list."""
    if len(problems) == 1:
        return problems[0]
    rows = "\n".join(f"  {i}. {p}" for i, p in enumerate(problems, 1))
    return f"{what}, {len(problems)} problems:\n{rows}"
