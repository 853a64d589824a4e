"""Signals: the first one asks for a clean end, a second Ctrl-C ends at once.

A rank that our own launcher has started hears of a second Ctrl-C by SIGHUP: the launcher is gone by then. A scheduler may send SIGTERM to
the launcher and to the ranks, and the kernel sends SIGHUP once for each thread of a dead launcher: a second one of these means nothing new.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """What was asked of this process. `number` is 0 until a signal comes; `profile` is how many steps somebody wants traced."""

    def __init__(self) -> None:
        self.number, self.profile = 0, 0
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        heard = [s for s in _HEARD if signal.getsignal(s) is not signal.SIG_IGN]  # nohup
        self._old = {s: signal.signal(s, self._note) for s in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    @property
    def name(self) -> str:
        """SIGINT, SIGTERM, SIGHUP or ''."""
        return signal.Signals(self.number).name if self.number else ""

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.number == signal.SIGINT and number == signal.SIGHUP:  # no order in which to end: peers may hang in a collective
            print("interrupted", file=sys.stderr, flush=True)
            os._exit(130)
        self.number = self.number or number
