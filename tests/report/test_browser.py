"""The page in a real browser: drawn, without an error, without a horizontal scroll, read by keys. Skipped where there is no Chromium."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headway.report.page import page
from headway.spec.breakdown import Breakdown
from tests.report.examples import example, logs, mixed, png, run
from tests.report.test_page import HOSTILE, hostile
from tests.report.test_timeline import line

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--virtual-time-budget=4000",
    "--window-size=1400,1000", "--dump-dom",
]  # fmt: skip
PROBE = """<script>
const errors = [];
addEventListener("error", (e) => errors.push(e.message), true);
addEventListener("securitypolicyviolation", (e) => errors.push("policy: " + e.violatedDirective));
addEventListener("load", () => setTimeout(() => {
  const press = (query, key) => {
    const node = document.querySelector(query);
    if (node) node.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    const tip = node && node.querySelector(".tip");
    return tip && !tip.hidden ? tip.innerText.replaceAll("\\u200b", "") : "";
  };
  const tips = [press("#stack", "Home"), press("#heat", "End"), press("[data-curve]", "End")];
  const line = document.querySelector("#timeline"), shown = document.querySelector("#timeline-where"), zooms = [];
  if (line) {
    const key = (k) => line.dispatchEvent(new KeyboardEvent("keydown", { key: k, bubbles: true }));
    const box = line.getBoundingClientRect();
    zooms.push(shown.textContent);
    for (const k of ["+", "+", "ArrowRight"]) key(k);
    zooms.push(shown.textContent);
    document.querySelector("[data-zoom=all]").click();
    zooms.push(shown.textContent);
    line.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + 5, clientY: box.top + 50, bubbles: true }));
    zooms.push(line.querySelector(".tip").innerText);
    const pen = line.querySelector("canvas").getContext("2d"), wide = pen.canvas.width;
    const row = Math.round(50 * devicePixelRatio), at = (x) => String(pen.getImageData(x, row, 1, 1).data);
    zooms.push(new Set(Array.from({ length: wide }, (_, x) => at(x))).size);
  }
  const choose = document.querySelector("input[value=phases]");
  if (choose) choose.click();
  const visible = [...document.querySelectorAll("[data-table]")].filter((n) => !n.hidden).map((n) => n.dataset.table);
  parent.postMessage({ errors, tips, zooms, visible, width: document.documentElement.scrollWidth, seen: innerWidth,
    shapes: document.querySelectorAll("#stack .series").length, note: (document.querySelector("#stack-note") || {}).textContent,
    painted: [...document.querySelectorAll("canvas")].map((c) => c.width * c.height) }, "*");
}, 300));
</script>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")


def look(folder: Path, text: str, *, width: int) -> dict[str, Any]:
    """Open the page in a frame of `width` pixels and hand back what it says of itself."""
    (folder / "page.html").write_text(text.replace("<title>", PROBE + "<title>", 1), encoding="utf-8")
    outer = f"""<!doctype html><iframe src="page.html" style="width:{width}px;height:900px;border:0"></iframe><pre id="said"></pre>
<script>addEventListener("message", (e) => document.getElementById("said").textContent = JSON.stringify(e.data));</script>"""
    (folder / "outer.html").write_text(outer, encoding="utf-8")
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={folder / 'profile'}", (folder / "outer.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    said = re.search(r'<pre id="said">(.+?)</pre>', done.stdout, re.DOTALL)
    assert said, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(html.unescape(said[1]))
    return found


@pytest.mark.parametrize("width", [1280, 400])
def test_a_full_page(tmp_path: Path, width: int) -> None:
    b = example(2, 20)
    lines = [line(0), line(1)]
    said = look(tmp_path, page(breakdown=b, timelines=lines, run=run(), logs=logs(), samples_png=png()), width=width)
    assert said["errors"] == []
    assert said["seen"] == width and said["width"] <= width
    assert said["shapes"] > 5 and said["painted"][-1] == 40
    first = [r.steps[0] for r in b.ranks]
    gemm = sum(s.buckets["compute.gemm"] for s in first)
    stack, heat, loss = said["tips"]
    assert "step 100" in stack and "compute.gemm" in stack and f"{(gemm + 1) // 2:,} ns" in stack
    assert "r0, step 119" in heat and f"{b.ranks[0].steps[-1].wall_ns:,} ns" in heat
    assert "768,000 samples" in loss
    assert said["visible"] == ["phases"]
    whole, near, again, tip, colours = said["zooms"]
    assert whole == again != near and whole.startswith("0 ns to ")
    pieces = {(lines[0].names[c], f"{ns:,} ns") for c, ns in zip(lines[0].bucket, lines[0].end - lines[0].start, strict=True)}
    assert any(name in tip and length in tip for name, length in pieces)
    assert colours >= 4, "background and three buckets"


@pytest.mark.parametrize("name", ["hostile", "mixed", "thin"])
def test_odd_pages(tmp_path: Path, name: str) -> None:
    b = {"hostile": hostile(), "mixed": mixed(), "thin": Breakdown(ranks=())}[name]
    events = [{"samples": k, "loss": 1.0, HOSTILE: 2.0} for k in (1, 2)] if name == "hostile" else logs(1)
    said = look(tmp_path, page(breakdown=b, logs=events, title="x" * 300), width=400)
    assert said["errors"] == []
    assert said["width"] <= 400
    assert bool(said["shapes"]) == (name != "thin")


def test_a_slow_step_is_cut_and_said_so(tmp_path: Path) -> None:
    b = example(1, 30)
    steps = list(b.ranks[0].steps)
    wall = steps[4].wall_ns * 50
    more = wall - steps[4].wall_ns
    slow = {**steps[4].buckets, "idle.checkpoint": more}
    phases = {**steps[4].phases, "checkpoint": more}
    modules = {**steps[4].modules, "": steps[4].modules[""] + more}
    steps[4] = dataclasses.replace(steps[4], wall_ns=wall, buckets=slow, phases=phases, modules=modules)
    steps[4].check()
    said = look(tmp_path, page(breakdown=Breakdown(ranks=(dataclasses.replace(b.ranks[0], steps=tuple(steps)),))), width=1280)
    assert "1 bar reaches beyond the frame" in said["note"]
