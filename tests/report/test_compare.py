"""Differences and ladders as text and as pages."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headway.report.diff import print_diff
from headway.report.diff_page import diff_page
from headway.report.scaling import print_scaling
from headway.report.scaling_page import scaling_page
from headway.spec.diff import Change, Diff, KernelChange, Setting, Side
from headway.spec.scaling import Point, Scaling
from headway.trace.scaling.scale import of_points
from tests.report.test_terminal import shown

Golden = Callable[[str, str], None]
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


def side(step_ns: int, **more: object) -> Side:
    known = {"paths": ("runs/a",), "devices": ("NVIDIA H100 80GB HBM3",), "ranks": (0, 1), "world": 2, "num_steps": 10, "first_step": 20,
             "last_step": 29, "left_out": (), "step_ns": step_ns, "low_ns": step_ns - 10**5, "high_ns": step_ns + 10**5, "batch": 64,
             "sample_ns": step_ns // 64}  # fmt: skip
    return Side(**{**known, **more})  # type: ignore[arg-type]


def change(name: str, a: int, b: int, verdict: str = "real") -> Change:
    half = abs(b - a) // 2 if verdict == "real" else 2 * abs(b - a) + 1
    return Change(name=name, a=a, b=b, delta=b - a, low=b - a - half, high=b - a + half, verdict=verdict)  # type: ignore[arg-type]


def example(name: str = "compute.gemm") -> Diff:
    kernels = (
        KernelChange(
            what="more calls", name_a="sm90_xmma_gemm", name_b="Cijk_Alik_Bljk", kind="compute.gemm", count_a=10, count_b=12,
            a_ns=50_000_000, b_ns=60_500_000, delta_ns=10_500_000, count_ns=10_041_667, duration_ns=458_333, matched="module and operator",
            operator="aten::mm", module="blocks.*.attn.and.a.very.long.path.of.modules.proj", verdict="real",
        ),
        KernelChange(
            what="vanished", name_a=name, name_b="", kind="compute.other", count_a=1, count_b=0, a_ns=500_000, b_ns=0, delta_ns=-500_000,
            count_ns=-500_000, duration_ns=0, matched="", verdict="unknown",
        ),
    )  # fmt: skip
    found = Diff(
        a=side(90_000_000),
        b=side(105_000_000, paths=("runs/b",)),
        step=change("step", 90_000_000, 105_000_000),
        confidence=0.99,
        text="B is slower by 16.7% of a step: more than the noise between steps.",
        buckets=(
            change(name, 50_000_000, 60_000_000), change("idle.input", 20_000_000, 25_500_000),
            change("idle.launch", 20_000_000, 19_500_000, "noise"),
        ),
        phases=(change("forward", 90_000_000, 105_000_000),),
        kernels=kernels,
        kernel_time=change("kernels", 60_000_000, 70_000_000),
        overlap=change("overlap", 1_000_000, 1_500_000),
        busy=change("busy", 59_000_000, 68_500_000),
        memory=(change("activations.blocks", 1 << 30, 3 << 29),),
        memory_total=change("reserved", 1 << 30, 3 << 29),
        memory_of=("rank 0 cuda:0", "rank 1 cuda:0"),
        settings=(Setting(name="optim.lr", kind="identity", a=0.001, b=0.002), Setting(name="versions.torch", kind="", a="2.12", b=None)),
        events=(Change(name="cliffs: gc", a=0, b=3, delta=3),),
        loss={"samples": 1000.0, "a": 0.5, "b": 0.25},
        warnings=("different steps were captured: 20 to 29 and 30 to 39", name),
    )  # fmt: skip
    found.check()
    return found


def ladder(name: str = "dit on digits") -> Scaling:
    times = (1.0, 1.02, 1.08, 1.19, 1.44)
    points = [
        Point(
            source=f"n{8 << i}", family=name, configuration={}, size=8 << i, batch=32.0 * (8 << i), time=t, error=0.002, mfu=0.5 / t,
            buckets={"compute.gemm": 900_000_000, "comm.all_reduce.dp.transfer": round(t * 1e9) - 900_000_000},
        )
        for i, t in enumerate(times)
    ]  # fmt: skip
    strong = [
        Point(source=f"s{n}", family="video", configuration={}, size=n, batch=None, time=8 / n + 0.01, relative=True) for n in (8, 16)
    ]
    weak = of_points(points)
    return replace(weak, ladders=(*weak.ladders, *of_points(strong, kind="strong").ladders), apart=("wan: one size only",))


@pytest.mark.parametrize("width", [80, 60])
def test_text(golden: Golden, width: int) -> None:
    golden(f"diff_{width}.txt", shown(print_diff, example(), width))
    golden(f"scaling_{width}.txt", shown(print_scaling, ladder(), width))


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("name", ["x" * 200, HOSTILE])
def test_no_line_is_too_wide_and_no_name_moves_the_cursor(width: int, name: str) -> None:
    text = shown(print_diff, example(name), width) + shown(print_scaling, ladder(name), width)
    assert max(map(len, text.splitlines())) <= width and "\x1b" not in text


@pytest.mark.parametrize("name", ["compute.gemm", HOSTILE])
def test_pages_hold_the_numbers_and_no_script(name: str) -> None:
    one, other = diff_page(example(name)), scaling_page(ladder(name))
    for text in (one, other):
        assert "<script" not in text and "default-src" in text and "http" not in text.replace("http-equiv", "")
        ids = re.findall(r'id="([^"]+)"', text)
        assert len(ids) == len(set(ids)) and set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)
    assert "+10,000,000 ns" in one and "optim.<wbr>lr" in one and "Cijk_" in one
    assert "128 to" not in other and "256, predicted" in other and "efficiency" in other


def test_nothing_is_drawn_outside_its_chart() -> None:
    for d in re.findall(r'<path d="([^"]+)"', scaling_page(ladder())):
        points = [(float(x), float(y)) for x, y in re.findall(r"([\d.-]+) ([\d.-]+)", d)]
        assert all(-1 <= x <= 1001 and -1 <= y <= 401 for x, y in points), d


def test_a_sample_is_compared_where_batches_differ() -> None:
    other = replace(example(), b=side(105_000_000, batch=128, sample_ns=105_000_000 // 128))
    assert "a sample: 1.406 ms -> 820.3 us (-41.67 %)" in " ".join(shown(print_diff, other).split())
    assert "a sample:" not in shown(print_diff, example())


def test_a_waterfall_ends_at_b() -> None:
    text = diff_page(example())
    bars = [(float(x), float(w)) for x, w in re.findall(r'<rect x="([\d.]+)" y="0" width="([\d.]+)"', text)][:5]
    (a0, a), *steps, (b0, b) = bars
    assert a0 == b0 == 0
    ends = [a]
    for x, w in steps:
        assert min(abs(x - ends[-1]), abs(x + w - ends[-1])) < 0.2, "each bar begins where the one before ended"
        ends.append(x + w if abs(x - ends[-1]) < 0.2 else x)
    assert ends[-1] == pytest.approx(b, abs=0.3)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PROBE = '<script>addEventListener("load",()=>{document.title=[document.documentElement.scrollWidth,innerWidth].join(" ")})</script>'


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("which", ["diff", "scaling"])
def test_no_page_scrolls_sideways(tmp_path: Path, width: int, which: str) -> None:
    text = diff_page(example("c" * 120)) if which == "diff" else scaling_page(ladder("a name of a ladder " * 4))
    text = re.sub(r"<meta http-equiv[^>]*>", "", text).replace("</body>", PROBE + "</body>")
    (tmp_path / "inner.html").write_text(text)
    onload = "document.title=this.contentDocument.title"
    frame = f'<iframe src="inner.html" style="width:{width}px;height:900px;border:0" onload="{onload}"></iframe>'
    (tmp_path / "outer.html").write_text(f"<!doctype html><body>{frame}</body>")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--virtual-time-budget=3000", "--dump-dom"]
    done = subprocess.run(
        [str(CHROMIUM), *flags, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1000", str(tmp_path / "outer.html")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = re.search(r"<title>(\d+) (\d+)</title>", done.stdout)
    assert found is not None, done.stdout[-500:]
    assert int(found[2]) == width and int(found[1]) <= width
