"""Answers that are lists: problems of the settings, fields, recipes, the status of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console

from headway.report import format as fmt
from headway.report.sheet import sheet_of

_STATES: Final = {"running": "green", "ended": "blue", "dead": "bold red"}


def print_problems(problems: Sequence[str], console: Console, *, what: str = "the settings") -> None:
    """All problems at once, numbered; or that there are none."""
    sheet = sheet_of(console)
    if not problems:
        sheet.line(f"{what}: no problems.", "green")
        return
    count = f"{len(problems)} problem{'s' * (len(problems) != 1)}"
    sheet.line(f"{what}: {count}", "bold red")
    width = len(str(len(problems)))
    for i, problem in enumerate(problems, 1):
        sheet.paragraph(problem, first=f"  {i:>{width}}. ")


def print_fields(rows: Mapping[str, tuple[Any, str, str]], console: Console) -> None:
    """Every field of a spec as an option with its value, kind and meaning, by section. `rows` is `spec.run.describe(spec)`."""
    sheet = sheet_of(console)
    sheet.paragraph("On resume an identity field may not change, a layout field may, and a stage field may and is logged.")
    section = None
    for name in sorted(rows, key=lambda n: "." in n):  # fields of the run itself first; otherwise the order of the spec
        value, kind, doc = rows[name]
        head = name.rpartition(".")[0]
        if head != section:
            sheet.line()
            sheet.line(head or "run", "bold")
            section = head
        option = f"  {fmt.flag(name, value)}"
        sheet.line(f"{option:<{min(44, sheet.width - 12)}}  {kind}", "cyan")
        sheet.paragraph(doc, first="      ")


def print_recipes(recipes: Mapping[str, str], console: Console) -> None:
    """Recipes, each with what it says of itself: command, hardware, expected time and result."""
    sheet = sheet_of(console)
    if not recipes:
        sheet.line("no recipes")
    for name in sorted(recipes):
        sheet.line(name, "bold")
        for row in recipes[name].strip().splitlines():
            sheet.paragraph(row.strip(), first="    ")


def print_status(data: Mapping[str, Any], console: Console) -> None:
    """Where a run stands. All keys but "state" may be missing or None.

    Keys: name, state (running | ended | dead), step, steps, samples, total_samples, loss, samples_s, mfu, time_left_s (else from
    samples_s), age_s (since the last event), error (why it failed), last_checkpoint and last_warning (each text, or {"text", "samples",
    "age_s"}).
    """
    sheet = sheet_of(console)
    state = str(data.get("state", "unknown"))
    age = f", last event {fmt.clock(data['age_s'])} ago" if data.get("age_s") is not None else ""
    sheet.line(f"{data.get('name', 'run')}: {state}{age}", _STATES.get(state, "bold"))
    for label, text in _facts(data, state):
        sheet.paragraph(text, first=f"  {label:<12}")


def _facts(data: Mapping[str, Any], state: str) -> list[tuple[str, str]]:
    done, total = data.get("samples"), data.get("total_samples")
    facts = []
    if data.get("error"):
        facts.append(("reason", str(data["error"])))
    if data.get("step") is not None:
        facts.append(("step", _of(data["step"], data.get("steps"))))
    if done is not None:
        facts.append(("samples", _of(done, total)))
    if data.get("loss") is not None:
        facts.append(("loss", fmt.number(data["loss"])))
    if data.get("samples_s") is not None:
        mfu = f", MFU {fmt.percent(data['mfu'])}" if data.get("mfu") is not None else ""
        facts.append(("rate", fmt.rate(data["samples_s"], "samples") + mfu))
    if state == "running":
        left = data.get("time_left_s")
        if left is None and done is not None and total is not None:
            left = fmt.time_left(total, done, data.get("samples_s"))
        facts.append(("time left", fmt.clock(left) if left is not None else "not known yet"))
    facts.append(("checkpoint", _last(data.get("last_checkpoint")) or "none yet"))
    if warning := _last(data.get("last_warning")):
        facts.append(("warning", warning))
    return facts


def _of(done: float, total: float | None) -> str:
    if total is None:
        return fmt.integer(done)
    return f"{fmt.integer(done)} of {fmt.integer(total)} ({fmt.share(done, total)})"


def _last(item: Any) -> str:
    """The text of a last event: as it is, or with its samples and age."""
    if not isinstance(item, Mapping):
        return str(item) if item else ""
    parts = [str(item["text"])] if item.get("text") else []
    if item.get("samples") is not None:
        parts.append(f"at {fmt.integer(item['samples'])} samples")
    if item.get("age_s") is not None:
        parts.append(f"{fmt.clock(item['age_s'])} ago")
    return ", ".join(parts)
