"""Memory in the terminal and on the page: the same numbers in both, sums that hold, names that cannot become markup."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headway.report.memory import COLOURS, fullest, heads, memory_section, print_memory, rows
from headway.report.page import page
from headway.report.sheet import sheet_of
from headway.report.terminal import print_breakdown
from headway.spec.breakdown import Breakdown, Health
from headway.spec.memory import KINDS, Failure, Growth, Held, MemoryBreakdown, Pin, Saving
from tests.report.test_browser import CHROMIUM, look

GIB = 1 << 30


def memory(rank: int = 0, **changes: object) -> MemoryBreakdown:
    parts = {
        "activations.blocks": 20 * GIB,
        "fragmentation.pinned": 6 * GIB,
        "optimizer": 8 * GIB,
        "parameters": 4 * GIB,
        "unknown.before": GIB,
        "gradients": 4 * GIB,
        "fragmentation.cached": GIB,
    }
    held = (Held(where="dit.py:88 forward", part="activations.blocks", num_blocks=28, num_bytes=20 * GIB),)
    made = MemoryBreakdown(
        rank=rank,
        device="cuda:0",
        reserved_bytes=44 * GIB,
        allocated_bytes=37 * GIB,
        parts=parts,
        time_ns=10**18,
        step=7,
        num_events=9000,
        num_segments=40,
        held=held,
        pins=(Pin(address=1 << 46, segment_bytes=4 * GIB, free_bytes=3 * GIB, largest_free_bytes=2 * GIB, blocks=held),),
        growth=(
            Growth(
                where="train.py:9 main",
                part="unknown.frames",
                slope=2.0**20,
                low=2.0**19,
                high=2.0**21,
                confidence=0.95,
                num_steps=30,
                num_bytes=30 << 20,
            ),
        ),
        num_steps=30,
        steps_from="step marks",
        savings=(
            Saving(
                what="Activations are kept",
                part="activations",
                saves_bytes=19 * GIB,
                confidence=0.7,
                assumes="blocks repeat",
                action="Recompute.",
                evidence=("28 blocks",),
                patch={"remat.mode": "full"},
            ),
        ),
        failures=(
            Failure(
                requested_bytes=8 * GIB,
                reserved_bytes=44 * GIB,
                allocated_bytes=34 * GIB,
                largest_free_bytes=3 * GIB,
                device_free_bytes=1 << 20,
            ),
        ),
        curve=((10**18, 10 * GIB, 5 * GIB), (10**18 + 10**9, 44 * GIB, 37 * GIB)),
        health=(Health(what="recorded_late", count=12, rank=rank, text="blocks are older than the recording"),),
    )
    made.check()
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def printed(b: Breakdown, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    print_memory(sheet_of(console), b)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_terminal_says_what_held_the_peak_and_what_to_do() -> None:
    text = printed(Breakdown(ranks=(), memory=(memory(), memory(3, reserved_bytes=GIB, allocated_bytes=GIB, parts={"parameters": GIB}))))
    for part in (
        "44.00 GiB reserved at the peak, 37.00 GiB of it allocated",
        "activations.blocks",
        "45.5 %",
        "a request of 8.000 GiB failed while 10.00 GiB were reserved and free, 3.000 GiB at most in one piece",
        "dit.py:88 forward",
        "train.py:9 main",
        "grows by 1.000 MiB a step",
        "Recompute. --remat.mode full",
        "rank 3 cuda:0",
        "recorded_late 12",
    ):
        assert part in " ".join(text.split()), part
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_narrow_terminal_keeps_its_width() -> None:
    long = memory(parts={"activations." + "very_long_module_name." * 8: 37 * GIB, "fragmentation.pinned": 7 * GIB})
    assert all(len(line) <= 60 for line in printed(Breakdown(ranks=(), memory=(long,)), 60).splitlines())


def test_without_memory_nothing_is_said_and_without_steps_no_steps_are_missed() -> None:
    assert printed(Breakdown(ranks=())) == ""
    assert memory_section(Breakdown(ranks=())) is None
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    print_breakdown(Breakdown(ranks=(), memory=(memory(),)), console)
    assert isinstance(console.file, io.StringIO)
    assert "No steps" not in console.file.getvalue()


def test_counters_show_their_total_and_no_parts() -> None:
    told = memory(measured="counters", allocated_bytes=None, parts={"unknown.counters": 44 * GIB}, pins=(), held=(), growth=(), savings=())
    told.check()
    text = printed(Breakdown(ranks=(), memory=(told,)))
    assert "totals only" in text and "unknown" not in text
    assert "<table" not in str(memory_section(Breakdown(ranks=(), memory=(told,))))


PARTS = st.dictionaries(st.builds("{}.{}".format, st.sampled_from(KINDS), st.integers(0, 60)), st.integers(1, 1 << 40), max_size=60)


@given(PARTS, st.integers(1, 20))
def test_rows_and_heads_sum_to_the_peak(parts: dict[str, int], limit: int) -> None:
    total = sum(parts.values())
    free = sum(n for name, n in parts.items() if name.startswith("fragmentation"))
    made = memory(parts=parts, reserved_bytes=total, allocated_bytes=total - free)
    made.check()
    assert sum(n for _, n in rows(made, limit)) == total
    assert len(rows(made, limit)) <= limit + len(KINDS)
    assert sum(heads(made).values()) == total
    assert set(COLOURS) == set(KINDS)


def test_the_page_has_the_section_with_bar_table_and_curve() -> None:
    text = page(breakdown=Breakdown(ranks=(), memory=(memory(),)))
    assert 'href="#memory"' in text and 'id="memory"' in text
    widths = [float(w) for w in re.findall(r'<rect x="[\d.]+" y="0" width="([\d.]+)"', text)]
    assert abs(sum(widths) - 1000) < 0.1
    assert text.count('class="line"') == 2
    assert "--remat.mode full" in text and "Assumes: blocks repeat" in text


def test_many_devices_fill_one_table() -> None:
    many = tuple(
        memory(rank, reserved_bytes=(rank + 1) * GIB, allocated_bytes=(rank + 1) * GIB, parts={"parameters": (rank + 1) * GIB})
        for rank in range(64)
    )
    b = Breakdown(ranks=(), memory=many)
    assert [m.rank for m in fullest(b)][:2] == [63, 62]
    section = str(memory_section(b))
    assert section.count("reserved at the peak") == 4
    assert section.count("<tr>") >= 60
    assert printed(b).count("reserved at the peak") == 5
    assert "and 59 devices with less" in printed(b)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("width", [1280, 400])
def test_in_a_browser_nothing_breaks_and_nothing_is_too_wide(tmp_path: Path, width: int) -> None:
    long = memory(1, parts={"activations." + "a_very_long_name_of_a_module." * 6: 37 * GIB, "fragmentation.pinned": 7 * GIB})
    said = look(tmp_path, page(breakdown=Breakdown(ranks=(), memory=(memory(), long))), width=width)
    assert said["errors"] == []
    assert said["seen"] == width and said["width"] <= width


def test_a_hostile_name_stays_text() -> None:
    evil = "<script>alert(1)</script>\x1b[31m"
    made = memory(
        held=(Held(where=evil, part="activations." + evil, num_blocks=1, num_bytes=1),),
        parts={"activations." + evil: 44 * GIB},
        device=evil,
        allocated_bytes=44 * GIB,
    )
    assert "<script>alert" not in str(memory_section(Breakdown(ranks=(), memory=(made,))))
    assert "\x1b" not in printed(Breakdown(ranks=(), memory=(made,)))
