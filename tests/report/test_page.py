from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from headway.report.curve import curves
from headway.report.page import page, write_page
from headway.report.svg import figure
from headway.spec.breakdown import Breakdown, Health, RankBreakdown, StepBreakdown
from headway.spec.errors import RunError
from headway.spec.finding import Finding
from tests.report.examples import example, logs, mixed, png, run

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u2028\x00\x1b[31m void f<int>(a&&)"
LOADS = {"src", "href", "srcset", "data", "action", "formaction", "poster", "xlink:href", "background", "cite", "ping", "manifest"}


class Reader(HTMLParser):
    """Elements, attributes, text and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input", "wbr"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts.append(data)
            return
        self.text.append(data)
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


def data_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Reader(text).scripts[0])
    return found


def hostile() -> Breakdown:
    """A breakdown in which every text is hostile."""
    step = StepBreakdown(
        step=3,
        start_ns=0,
        wall_ns=10,
        buckets={HOSTILE: 4, f"comm.{HOSTILE}.wait": 6},
        phases={HOSTILE: 10},
        modules={HOSTILE: 10},
        hidden_comm_by_axis_ns={HOSTILE: 1},
        comm=({"collective": HOSTILE, "axis": HOSTILE, "count": 1},),
    )
    ranks = tuple(RankBreakdown(rank=0, device=f"{HOSTILE}{i}", steps=(step,), source=HOSTILE) for i in range(2))
    health = Health(what=HOSTILE, count=2, affects=HOSTILE, text=HOSTILE)
    finding = Finding(
        what=HOSTILE, bucket=HOSTILE, recoverable_ns=4, confidence=1, evidence=(HOSTILE,), action=HOSTILE, patch={HOSTILE: HOSTILE}
    )
    return Breakdown(ranks=ranks, health=(health,), findings=(finding,))


def test_the_page_refers_to_nothing_outside_itself() -> None:
    text = page(breakdown=example(), run=run(), logs=logs(), samples_png=png())
    assert "://" not in text and "@import" not in text and "url(" not in text
    reader = Reader(text)
    assert reader.open == []
    for name, attributes in reader.elements:
        assert name not in ("link", "iframe", "object", "embed", "base", "form")
        for key in LOADS & attributes.keys():
            value = attributes[key] or ""
            assert value.startswith(("#", "data:image/png;base64,")), (name, key, value)
    policy = next(a["content"] for n, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'")


def test_every_link_has_a_target_and_no_id_is_used_twice() -> None:
    reader = Reader(page(breakdown=example(), run=run(), logs=logs(), samples_png=png()))
    ids = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(ids) == len(set(ids))
    links = [str(a["href"]) for _, a in reader.elements if "href" in a]
    assert {h[1:] for h in links} <= set(ids)
    rows = {a["id"]: i for i, (_, a) in enumerate(reader.elements) if str(a.get("id", "")).startswith("buckets-")}
    assert sum(h[1:] in rows for h in links) == 3  # each finding leads to the row of its bucket


def test_hostile_text_stays_text() -> None:
    events = [{"samples": 1, "loss": 1.0, "loss_by_t": {HOSTILE: 1.0}, HOSTILE: 2.0}]
    facts = {
        "spec": {"name": HOSTILE, HOSTILE: {HOSTILE: HOSTILE}, "data": {"name": HOSTILE}},
        "info": {"device": HOSTILE, "versions": {HOSTILE: HOSTILE}},
    }
    text = page(breakdown=hostile(), run=facts, logs=events, title=HOSTILE)
    plain = Reader(page(breakdown=example(2, 1), run=run(), logs=logs(1)))
    reader = Reader(text)
    assert {n for n, _ in reader.elements} <= {n for n, _ in plain.elements} | {"wbr"}
    assert [n for n, _ in reader.elements].count("script") == 2
    assert not any(key.startswith("on") for _, a in reader.elements for key in a)
    assert "\x00" not in text and "\x1b" not in text
    assert any("alert(1)" in t for t in reader.text)
    assert data_of(text)["time"]["phases"]["names"] == [HOSTILE]


def test_totals_shown_are_those_of_the_input() -> None:
    b = example(2, 20)
    text = page(breakdown=b)
    steps = [s for r in b.ranks for s in r.steps]
    wall = sum(s.wall_ns for s in steps)
    total = [row for row in Reader(text).rows if row and row[0] == "total"]
    assert [row[1] for row in total] == [f"{wall / 40 / 1e6:.2f}"] * 3
    assert f'title="{wall:,} ns in 40 steps"' in text
    gemm = sum(s.buckets["compute.gemm"] for s in steps)
    assert f'title="{gemm:,} ns in 40 steps"' in text
    for kind in ("buckets", "phases", "modules"):
        view = data_of(text)["time"][kind]["views"][0]
        assert sum(map(sum, view["cells"])) == sum(view["wall"]) == wall


def test_rows_of_every_partition_are_in_the_tables() -> None:
    b = example(1, 2)
    cells = {row[0] for row in Reader(page(breakdown=b)).rows if row}
    for name in ("compute", "gemm", "reduce_scatter.dp_shard.wait", "idle", "backward", "blocks.3", "(no module)"):
        assert name in cells


@pytest.mark.parametrize(("ranks", "steps"), [(1, 10_000), (10, 1000), (1000, 10)])
def test_ten_thousand_rows_stay_small(ranks: int, steps: int) -> None:
    one = example(1, 1).ranks[0].steps[0]
    rows = tuple(dataclasses.replace(one, step=k, modules={f"m{i}": one.wall_ns // 200 for i in range(199)}) for k in range(steps))
    rows = tuple(dataclasses.replace(s, modules={**s.modules, "rest": s.wall_ns - sum(s.modules.values())}) for s in rows)
    b = Breakdown(ranks=tuple(RankBreakdown(rank=r, device="cuda:0", steps=rows) for r in range(ranks)))
    text = page(breakdown=b, run=run(), logs=logs(10_000))
    assert len(text.encode()) < 3_000_000
    view = data_of(text)["time"]["modules"]["views"][0]
    assert sum(view["wall"]) == one.wall_ns * ranks * steps
    assert "mean of" in text


@pytest.mark.parametrize(
    "b",
    [
        None,
        Breakdown(ranks=()),
        Breakdown(ranks=(RankBreakdown(rank=0, device="cpu", steps=()),)),
        Breakdown(
            ranks=(RankBreakdown(rank=0, device="cpu", steps=(StepBreakdown(step=5, start_ns=1, wall_ns=0, buckets={}, phases={}),)),)
        ),
        Breakdown(
            ranks=(
                RankBreakdown(
                    rank=0, device="cpu", steps=(StepBreakdown(step=5, start_ns=1, wall_ns=0, buckets={"idle.gc": 0}, phases={}),)
                ),
            )
        ),
        Breakdown(ranks=(), findings=(Finding(what="x", bucket="idle.gc", recoverable_ns=0, confidence=0),)),
        dataclasses.replace(example(1, 1), findings=(), health=()),
        mixed(),
    ],
    ids=["none", "no ranks", "no steps", "wall only", "zero wall", "finding only", "one step", "mixed"],
)
@pytest.mark.parametrize(
    "events", [(), ({"samples": 0, "loss": None},), ({"loss": 1.0},), ({"samples": 10, "loss": float("inf"), "lr": 0},)]
)
def test_thin_input_is_a_page(b: Breakdown | None, events: tuple[dict[str, Any], ...]) -> None:
    text = page(breakdown=b, logs=events)
    assert Reader(text).open == []
    assert ("nothing to show yet" in text) == (not [a for n, a in Reader(text).elements if n == "section" and "id" in a])
    data_of(text)


def test_gaps_between_steps_are_kept() -> None:
    data = data_of(page(breakdown=mixed()))
    assert data["time"]["buckets"]["bins"] == [[n, n] for n in range(120, 125)]
    assert len(data["time"]["phases"]["bins"]) == 40
    compute = data["heat"]["metrics"]["compute"][0]
    assert compute[0] is None and compute[20] is not None


def test_curves_say_what_they_leave_out() -> None:
    text = page(logs=logs(900))
    assert "a point is the mean of 3 log periods, the band their range" in text
    assert "not finite in 1 log period" in text
    data = {c["key"]: c for c in data_of(text)["curves"]}
    assert list(data) == ["loss", "loss_by_t", "samples_s", "mfu", "grad_norm", "lr", "memory_bytes"]
    means = [v for v in data["loss"]["lines"][0]["mean"] if v is not None]
    assert len(means) == 300 and [n["name"] for n in data["loss_by_t"]["lines"]][1] == "0.25 to 0.5"


def test_figures_of_an_objective_of_ones_own_are_curves_too() -> None:
    data = data_of(page(logs=[{"kind": "log", "samples": k, "step": k, "time_ns": k, "flops_s": 1.0, "psnr": 20.0 + k} for k in range(3)]))
    assert [(c["key"], c["lines"][0]["mean"]) for c in data["curves"]] == [("psnr", [20.0, 21.0, 22.0])]


def test_the_page_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    write_page(target, breakdown=example(1, 2), title="first")
    before = target.read_text(encoding="utf-8")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]

    def full(self: Path, text: str, encoding: str) -> None:
        with self.open("w", encoding=encoding) as file:
            file.write(text[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_page(target, breakdown=example(1, 2), title="second")
    assert target.read_text(encoding="utf-8") == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_that_is_not_there_is_one_paragraph(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"report\.html: the page cannot be written: No such file") as caught:
        write_page(tmp_path / "none" / "report.html")
    assert "\n" not in str(caught.value)


def test_text_has_contrast_in_both_themes() -> None:
    """WCAG 2.2: 4.5 to 1 for text, computed from the page's own colours."""
    text = page()
    for block in re.findall(r":root \{([^}]*)\}", text):
        colour = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", block))
        for ink, ground in (("ink", "bg"), ("ink", "card"), ("soft", "bg"), ("soft", "card"), ("link", "card"), ("warn", "warn-bg")):
            assert contrast(colour[ink], colour[ground]) >= 4.5, (ink, ground)


def contrast(a: str, b: str) -> float:
    """(L1 + 0.05) / (L2 + 0.05) of the relative luminances."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_values_that_no_axis_can_hold_are_marked_and_not_drawn() -> None:
    logs = [{"kind": "log", "step": k, "samples": 8 * k, "loss": v} for k, v in enumerate((1.0, 1e308, 2.0, 10**200, 1e-320, -1e308), 1)]
    (loss,) = curves(logs)
    assert loss.bad == (16, 32, 48)
    assert loss.lines[0].mean == (1.0, None, 2.0, None, 0.0, None)
    assert "<svg" in str(figure(loss, 0))
