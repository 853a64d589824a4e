"""Progress of a run: a bar on a terminal, plain lines with a time elsewhere.

No thread and no clock of its own: it draws when it is told something, at most a few times a second, so that a training process pays
nothing between two updates.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Literal

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from headway.report import format as fmt
from headway.report.sheet import clean

Mode = Literal["auto", "bar", "lines", "none"]
BAR_EVERY_S: Final = 0.2
LINE_EVERY_S: Final = 5.0


class _Console(Console):
    """A console that falls silent when nobody reads it any more: a training run does not end because of its reader.

    What could not be written stays in the stream's buffer, and Python would fail to write it again when it ends: it goes to nowhere.
    """

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


class Progress:
    """What a run says while it goes on. `update` often, `note` what must be kept, `close` once."""

    def __init__(
        self,
        total_samples: int,
        mode: Mode = "auto",
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or _Console(stderr=True, highlight=False)
        self.mode: Mode = ("bar" if self._console.is_terminal else "lines") if mode == "auto" else mode
        self.total_samples = total_samples
        self._clock = clock
        self._drawn_s = float("-inf")
        self._pending: tuple[int, str] | None = None  # told, not drawn yet
        self._bar: Bar | None = None
        self._closed = False
        if self.mode == "bar":
            self._bar = _bar(self._console)
            self._task = self._bar.add_task("", total=max(1, total_samples), facts="starting")
            self._bar.start()

    def update(
        self,
        *,
        samples: int,
        loss: float | None = None,
        samples_s: float | None = None,
        mfu: float | None = None,
        text: str | None = None,
    ) -> None:
        """The run has seen `samples`; whatever is not known stays away. Drawn at once if the last drawing is old enough."""
        if self._closed or self.mode == "none":
            return
        self._pending = (samples, self._facts(samples, loss, samples_s, mfu, text))
        every_s = BAR_EVERY_S if self._bar else LINE_EVERY_S
        if self._clock() - self._drawn_s >= every_s:
            self._draw()

    def note(self, text: str) -> None:
        """A line that stays: above the bar, or among the lines."""
        if self.mode == "none" or self._closed:
            return
        if self._bar:
            self._console.print(clean(text), markup=False, highlight=False, soft_wrap=True)
        else:
            self._line(text)

    def close(self, text: str = "") -> None:
        """The end: the last state, then `text`. A second call does nothing."""
        if self._closed:
            return
        self._draw()
        if self._bar:
            self._bar.stop()
        if text:
            self.note(text)
        self._closed = True

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _draw(self) -> None:
        if self._pending is None:
            return
        (samples, facts), self._pending = self._pending, None
        self._drawn_s = self._clock()
        if self._bar:
            self._bar.update(self._task, completed=min(samples, max(1, self.total_samples)), facts=clean(facts))
            self._bar.refresh()
        else:
            done = f"{fmt.integer(samples)} of {fmt.integer(self.total_samples)} samples"
            self._line(f"{done}  {fmt.share(samples, self.total_samples)}  {facts}")

    def _line(self, text: str) -> None:
        stamp = datetime.now().strftime("%H:%M:%S")
        self._console.print(f"{stamp}  {clean(text)}", markup=False, highlight=False, soft_wrap=True)

    def _facts(self, samples: int, loss: float | None, samples_s: float | None, mfu: float | None, text: str | None) -> str:
        left = fmt.time_left(self.total_samples, samples, samples_s)
        facts = [f"loss {fmt.number(loss)}"] * (loss is not None)
        facts += [fmt.rate(samples_s, "samples")] * (samples_s is not None)
        facts += [f"MFU {fmt.percent(mfu)}"] * (mfu is not None)
        facts += [f"{fmt.clock(left)} left"] + ([text] if text else [])
        return "  ".join(facts)


@contextmanager
def doing(console: Console) -> Iterator[Callable[[str], None]]:
    """A function that takes what is being done now; shown on a terminal while it lasts, with the time, and then taken away."""
    if not console.is_terminal:
        yield lambda text: None
        return
    with Bar(SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda text: bar.update(task, description=clean(text))


def _bar(console: Console) -> Bar:
    return Bar(
        TextColumn("{task.percentage:>5.1f} %"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[facts]}", markup=False),
        console=console,
        auto_refresh=False,
        expand=True,
    )
