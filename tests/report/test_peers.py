"""Ranks against each other, in the terminal and on the page."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable

from rich.console import Console

from headway.report.account import communication_section
from headway.report.page import page
from headway.report.peers import clock_text, late_ranks, peers_section
from headway.report.terminal import print_breakdown
from headway.spec.breakdown import Breakdown, RankBreakdown
from headway.spec.finding import Finding
from headway.spec.straggler import Straggler
from tests.report.examples import example

LATE = {
    "rank": 1, "wait_ns": 480_000_000, "exposed_ns": 440_000_000, "share": 0.8, "waiting": {"0": 480_000_000}, "phases": {}, "modules": {},
    "buckets": {"idle.launch": 277_000_000, "compute.gemm": 99_000_000, "copy.h2d": 1}, "excess_ns": 200_000_000,
    "excess": {"compute.gemm": 210_000_000, "idle.launch": -10_000_000},
}  # fmt: skip
SMALL = LATE | {"rank": 0, "wait_ns": 50_000, "share": 0.2}
SIZES = {
    "collective": "all_gather", "axis": "dp_shard", "num_ranks": 2, "size_bytes": [1 << 20, 2 << 20], "count": 440, "split": 400,
    "total_ns": 10**9, "wait_ns": 25 * 10**7, "transfer_ns": {"median": 2e6, "p10": 1e6, "p90": 3e6},
    "bus_bytes_s": {"median": 2.1e11, "p10": 1.9e11, "p90": 2.2e11},
}  # fmt: skip
SLOW = Straggler(rank=1, kind="compute", excess_ns=3_600_000, interval_ns=(3_100_000, 4_100_000), p=2e-9)
LINK = Straggler(rank=0, kind="link", excess_ns=900_000, interval_ns=(500_000, 1_300_000), p=0.003, ranks=(0, 1))


def peers() -> Breakdown:
    b = example()
    summary = {**b.summary, "num_profiled": 10, "lateness": [SMALL, LATE], "collectives": [SIZES]}
    clocks = [
        dataclasses.replace(r, clock_source="collectives", clock_offset_ns=ns, clock_interval_ns=3_000, clock_drift_ppm=0.5)
        for r, ns in zip(b.ranks, (0, -1_234_000), strict=True)
    ]
    return dataclasses.replace(b, ranks=tuple(clocks), summary=summary, stragglers=(SLOW, LINK))


def section(b: Breakdown) -> str:
    out = io.StringIO()
    print_breakdown(b, Console(file=out, width=80))
    text = out.getvalue()
    return text[text.index("Ranks against each other") : text.index("Findings: ")]


def test_terminal(golden: Callable[[str, str], None]) -> None:
    golden("peers.txt", section(peers()))


def test_waits_that_are_no_part_of_a_step_are_left_out() -> None:
    assert [row["rank"] for row in late_ranks(peers())] == [1]


def test_nothing_to_compare() -> None:
    assert peers_section(example()) is None and 'id="peers"' not in page(breakdown=example())
    assert clock_text(Breakdown(ranks=(RankBreakdown(rank=0, device="cpu", steps=()),))) == ""


def test_few_steps_clear_no_rank() -> None:
    b = dataclasses.replace(peers(), stragglers=())
    assert "no rank is slower" in section(b)
    few = dataclasses.replace(b, summary={**b.summary, "num_profiled": 2})
    assert "no rank is slower" not in section(few) and "No rank is slower" not in page(breakdown=few)


def test_page_tables() -> None:
    text = re.sub(r"<[^>]+>", " ", page(breakdown=peers()))
    told = ("48.00 ms", "27.70 ms idle.launch", "3.600 ms", "compute: the same kernels", "(ranks 0, 1)", "-1.234 ms +- 3.000 us")
    for shown in told:
        assert shown in text, shown
    sizes = re.sub(r"<[^>]+>", " ", communication_section(peers()) or "")
    assert "1.000 MiB to 2.000 MiB" in sizes and "210.0 GB/s" in sizes and "25.0 %" in sizes


def test_a_finding_says_what_others_wait_beyond_its_bucket() -> None:
    wide = Finding(what="slow", bucket="idle.launch", recoverable_ns=64_700_000, confidence=0.5, bucket_ns=23_700_000)
    inside = dataclasses.replace(wide, bucket_ns=70_000_000)
    for finding, said in ((wide, "23.70 ms of idle.launch and what waits for it"), (inside, "of idle.launch, confidence 50 %")):
        b = dataclasses.replace(example(), findings=(finding,))
        out = io.StringIO()
        print_breakdown(b, Console(file=out, width=120))
        assert said in out.getvalue()
        assert ("what waits for it" in page(breakdown=b)) == (finding is wide)
