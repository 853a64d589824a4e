from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headway.report.format import flags
from headway.report.lists import print_fields, print_problems, print_recipes, print_status
from headway.report.terminal import print_breakdown
from headway.spec.breakdown import Breakdown, RankBreakdown, StepBreakdown
from headway.spec.codec import apply_overrides
from headway.spec.finding import Finding
from headway.spec.run import RunSpec, describe
from tests.report.examples import breakdowns, example, mixed

Golden = Callable[[str, str], None]
STATUS = {
    "name": "digits", "state": "running", "age_s": 3, "step": 120, "steps": 400, "samples": 12_000, "total_samples": 40_000,
    "loss": 0.1234, "samples_s": 702.4, "mfu": 0.4, "last_checkpoint": {"text": "step 100", "samples": 10_000, "age_s": 40},
    "last_warning": {"text": "1 of 1,000 images cannot be read: photos/a.jpg", "age_s": 75.0},
}  # fmt: skip


def shown(draw: Callable[..., None], data: Any, width: int = 80, *, terminal: bool = False, **more: Any) -> str:
    """What `draw` prints on a console of `width` columns."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system="truecolor" if terminal else None, legacy_windows=False)
    draw(data, console, **more)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "width"),
    [
        ("breakdown_2_ranks_80", example(), 80),
        ("breakdown_2_ranks_60", example(), 60),
        ("breakdown_8_ranks_80", example(8), 80),
        ("breakdown_1_rank_100", example(1), 100),
        ("breakdown_mixed_80", mixed(), 80),
    ],
)
def test_breakdown_text(golden: Golden, name: str, data: Breakdown, width: int) -> None:
    golden(f"{name}.txt", shown(print_breakdown, data, width))


def test_lists_text(golden: Golden) -> None:
    golden("fields.txt", shown(print_fields, describe(RunSpec(name="digits"))))
    golden("status.txt", shown(print_status, STATUS))
    problems = ["--data.path is needed: the folder that holds the images", "--mesh.tp 2: " + "not implemented for this network " * 4]
    golden("problems.txt", shown(print_problems, problems, what="digits"))
    golden(
        "recipes.txt", shown(print_recipes, {"folder": "Any folder of images.\n  headway train folder", "digits": "Real digits, 8 x 8."})
    )


def test_a_patch_is_shown_as_it_is_typed() -> None:
    """What a finding says to try parses to the patch itself, whatever the type of a field."""
    patch = {"checkpoint.blocking": False, "observe.log_every": 10, "data.workers": 2}
    spec = apply_overrides(RunSpec(name="digits"), [word for option in flags(patch) for word in option.split()])
    assert (spec.checkpoint.blocking, spec.observe.log_every, spec.data.workers) == tuple(patch.values())
    finding = Finding(what="w", bucket="idle.sync", recoverable_ns=5, confidence=0.5, patch=patch)
    assert "--checkpoint.blocking false" in shown(print_breakdown, Breakdown(ranks=(), findings=(finding,)))


def test_every_field_is_listed_once_under_its_section() -> None:
    text = shown(print_fields, describe(RunSpec()))
    for name, (_, kind, doc) in describe(RunSpec()).items():
        lines = [row for row in text.splitlines() if row.startswith(f"  --{name.replace('_', '-')} ")]
        assert len(lines) == 1 and lines[0].endswith(kind)
        assert doc.split()[0] in text


@pytest.mark.parametrize("state", ["running", "ended", "dead"])
def test_status_of_a_run_that_has_said_nothing_yet(state: str) -> None:
    text = shown(print_status, {"name": "r", "state": state, "samples": None})
    assert text.startswith(f"r: {state}")
    assert "none yet" in text
    assert ("not known yet" in text) == (state == "running")


def test_status_with_a_stalled_rate_knows_no_time_left() -> None:
    assert "not known yet" in shown(print_status, STATUS | {"samples_s": 0.0})
    assert "time left   0:40" in shown(print_status, STATUS)
    assert "time left   1:30" in shown(print_status, STATUS | {"time_left_s": 90})


@given(breakdowns(), st.integers(60, 110), st.booleans())
def test_no_line_is_wider_than_the_console(b: Breakdown, width: int, terminal: bool) -> None:
    finding = Finding(what="w" * 150, bucket="idle." + "x" * 90, recoverable_ns=10**15, confidence=0.5, action="a " * 90)
    text = shown(print_breakdown, Breakdown(ranks=b.ranks, findings=(finding,)), width, terminal=terminal)
    assert max(map(len, _without_escapes(text).splitlines())) <= width


def test_plain_text_has_neither_colour_nor_characters_that_break_in_logs() -> None:
    text = shown(print_breakdown, example())
    assert text.isascii() and "\x1b" not in text
    fancy = shown(print_breakdown, example(), terminal=True)
    assert "\x1b[" in fancy and "█" in fancy
    assert "\x1b" not in _without_escapes(fancy)


def test_totals_are_those_of_the_input() -> None:
    b = example(1, 7)
    walls = [s.wall_ns for s in b.ranks[0].steps]
    rows = [row.split() for row in shown(print_breakdown, b).splitlines() if row.startswith("total")]
    assert [r[1] for r in rows] == [f"{sum(walls) / 7 / 1e6:.2f}"] * 2
    gemm = sum(s.buckets["compute.gemm"] for s in b.ranks[0].steps)
    assert f"{gemm / 7 / 1e6:.2f}" in shown(print_breakdown, b)


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (StepBreakdown(step=0, start_ns=0, wall_ns=0, buckets={"compute.gemm": 0}, phases={"forward": 0}),),
        (StepBreakdown(step=0, start_ns=0, wall_ns=7, buckets={}, phases={"forward": 7}),),
        (StepBreakdown(step=0, start_ns=0, wall_ns=7, buckets={}, phases={}),),
        (StepBreakdown(step=0, start_ns=0, wall_ns=7, buckets={"idle.unknown": 7}, phases={}),),
    ],
    ids=["no steps", "zero wall", "phases only", "wall only", "buckets only"],
)
def test_thin_input_is_drawn(steps: tuple[StepBreakdown, ...]) -> None:
    b = Breakdown(ranks=(RankBreakdown(rank=0, device="cpu", steps=steps),))
    text = shown(print_breakdown, b)
    assert ("nothing to account for" in text) == (not steps)
    assert ("Where a step goes" in text) == any(s.buckets for s in steps)
    assert ("By phase" in text) == any(s.phases for s in steps)


def test_names_cannot_steer_the_terminal() -> None:
    nasty = "idle.\x1b[2J\r\n[red]x"
    step = StepBreakdown(step=0, start_ns=0, wall_ns=5, buckets={nasty: 5}, phases={})
    finding = Finding(what="\x1b]0;owned\x07", bucket=nasty, recoverable_ns=1, confidence=1.0)
    text = shown(print_breakdown, Breakdown(ranks=(RankBreakdown(rank=0, device="cpu", steps=(step,)),), findings=(finding,)))
    assert "\x1b" not in text and "\r" not in text and "\x07" not in text
    assert "[red]x" in text  # shown as it is, not read as a style


def test_problems_say_when_there_are_none() -> None:
    assert shown(print_problems, [], what="digits") == "digits: no problems.\n"


def _without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
