from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from headway.report.progress import BAR_EVERY_S, LINE_EVERY_S, Progress


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=80, force_terminal=terminal, color_system=None, legacy_windows=False), out


def test_lines_hold_time_samples_loss_rate_and_time_left() -> None:
    where, out = console(terminal=False)
    with Progress(40_000, console=where, clock=Clock()) as progress:
        progress.update(samples=10_000, loss=0.5, samples_s=500.0, mfu=0.413, text="lr 1e-3")
    stamp, rest = out.getvalue().rstrip("\n").split("  ", 1)
    assert re.fullmatch(r"\d\d:\d\d:\d\d", stamp)
    assert rest == "10,000 of 40,000 samples  25.0 %  loss 0.5  500 samples/s  MFU 41.3 %  1:00 left  lr 1e-3"


def test_lines_are_rare_but_the_last_one_is_never_lost() -> None:
    where, out = console(terminal=False)
    clock = Clock()
    progress = Progress(1000, "lines", console=where, clock=clock)
    for k in range(1, 11):
        progress.update(samples=100 * k, loss=1 / k)
        clock.now_s += LINE_EVERY_S / 4
    progress.close("done")
    progress.close("twice")
    progress.update(samples=1)
    progress.note("late")
    lines = out.getvalue().splitlines()
    assert [row.split()[1] for row in lines] == ["100", "500", "900", "1,000", "done"]
    assert "loss 0.1 " in lines[-2]


@pytest.mark.parametrize("rate", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_says_nothing_gives_no_time(rate: float | None) -> None:
    where, out = console(terminal=False)
    with Progress(1000, console=where) as progress:
        progress.update(samples=10, loss=float("nan"), samples_s=rate)
    assert "- left" in out.getvalue()
    assert "loss nan" in out.getvalue()


def test_bar_draws_and_keeps_notes_above_itself() -> None:
    where, out = console(terminal=True)
    clock = Clock()
    progress = Progress(1000, "auto", console=where, clock=clock)
    assert progress.mode == "bar"
    progress.update(samples=250, loss=0.25, samples_s=50)
    progress.note("checkpoint at 250 samples [bold]")
    clock.now_s += BAR_EVERY_S
    progress.update(samples=500, loss=0.125, samples_s=50, text="\x1b[31mred")
    progress.close("saved")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", out.getvalue())
    lines = [row.strip("\r ") for row in text.splitlines()]
    assert "checkpoint at 250 samples [bold]" in lines
    assert any("25.0 %" in row and "loss 0.25" in row and "0:15 left" in row for row in lines)
    assert any("50.0 %" in row and "0:10 left" in row for row in lines)
    assert lines[-1] == "saved"


def test_bar_is_drawn_a_few_times_a_second_at_most() -> None:
    where, out = console(terminal=True)
    progress = Progress(10_000, "bar", console=where, clock=Clock())
    progress.update(samples=1)
    before = len(out.getvalue())
    for k in range(1000):
        progress.update(samples=k)
    assert len(out.getvalue()) == before
    progress.close()


def test_none_is_silent() -> None:
    where, out = console(terminal=True)
    progress = Progress(10, "none", console=where)
    progress.update(samples=5, loss=1.0)
    progress.note("x")
    progress.close("y")
    assert out.getvalue() == ""


@pytest.mark.parametrize("total", [0, 5])
def test_more_samples_than_foreseen(total: int) -> None:
    for terminal in (False, True):
        where, out = console(terminal=terminal)
        with Progress(total, console=where) as progress:
            progress.update(samples=10, samples_s=3)
        assert "0:00 left" in out.getvalue()
