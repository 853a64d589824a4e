"""Signals: the first one asks for a clean end, the second one ends at once."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

_CLEAN = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """What was asked of this process. `number` is 0 until a signal comes; `profile` is how many steps somebody wants traced."""

    def __init__(self) -> None:
        self.number, self.profile = 0, 0
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self._old = {s: signal.signal(s, self._note) for s in _CLEAN}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    @property
    def name(self) -> str:
        """SIGINT, SIGTERM or ''."""
        return signal.Signals(self.number).name if self.number else ""

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number
