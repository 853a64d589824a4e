"""A trial in a few lines: what was tried, what was predicted, what it gained."""

from __future__ import annotations

from rich.console import Console

from headway.report import format as fmt
from headway.report.sheet import sheet_of
from headway.spec.trial import Trial


def print_trial(trial: Trial, console: Console) -> None:
    """Predicted against measured gain, with its interval, and a verdict."""
    sheet = sheet_of(console)
    sheet.paragraph(trial.what, first=f"Finding {trial.finding}: ", style="bold")
    sheet.paragraph(" ".join(fmt.flags(trial.patch)), first="  patch: ")
    sheet.paragraph(f"{fmt.duration(trial.step_a_ns)} as it is, {fmt.duration(trial.step_b_ns)} with the patch", first="  step: ")
    sheet.paragraph(f"{fmt.duration(trial.predicted_ns)} a step", first="  predicted gain: ")
    interval = f"{trial.confidence:.0%} interval {trial.low_ns / 1e6:.2f} to {trial.high_ns / 1e6:.2f} ms, {len(trial.pairs)} pairs"
    sheet.paragraph(f"{trial.gain_ns / 1e6:.2f} ms a step ({interval} of {trial.steps} steps)", first="  measured gain: ")
    sheet.paragraph(verdict(trial), first="  ", style="green" if trial.found else "yellow")


def verdict(trial: Trial) -> str:
    """What the trial says in one sentence."""
    if trial.high_ns < 0:
        return "The patch makes steps slower."
    if not trial.found:
        return "No gain is certain: the interval holds 0. More pairs (--pairs) or longer runs (--steps) would tell."
    if trial.as_predicted:
        return "The gain is there, and as predicted."
    side = "less" if trial.gain_ns < trial.predicted_ns else "more"
    return f"The gain is there, {side} than predicted ({trial.gain_ns / trial.predicted_ns:.0%} of it)."
