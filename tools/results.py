"""The tables of the README, from the measurements in docs/results.

    python tools/results.py            print them
    python tools/results.py --write    put them into README.md, between the marks

Each row names the command that makes its file again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"


def read(name: str) -> dict[str, Any]:
    """One measurement."""
    data: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return data


def results() -> str:
    """What is promised and what was measured, a row each."""
    parity, kills, truth, overhead, explain = map(read, ("parity", "kills", "truth", "overhead", "explain_speed"))
    large, scaling, fleet = map(read, ("explain_large", "scaling", "fleet"))
    ladders = sum(r["ladders"] for r in scaling["synthetic"])
    worst = {p: max(r["worst_relative"] for r in parity["rows"] if r["precision"] == p) for p in ("fp32", "fp64")}
    layouts = len({r["layout"] for r in parity["rows"]})
    same, other = kills["same_layout"], kills["other_layouts"]
    writing = sum(bool(k["writing"]) for k in same["kills"])
    promises = [r for r in truth["rows"] if "predicted_gain_ms" in r]
    shares = [s for r in truth["rows"] for s in (r["bucket_share"], r["phase_share"]) if s is not None]
    equal = "bitwise equal losses and weights" if same["worst_relative"] == 0 and same["tensors_equal"] else "DIFFERENT"
    peer = f"HolisticTraceAnalysis {explain['peer']['HolisticTraceAnalysis']}"
    rows = [
        (
            f"{layouts} layouts (1, 2, 4 processes, HSDP 2 x 2, accumulation 1, 2, 4), {parity['steps']} steps: worst relative loss gap",
            f"{worst['fp32']:.1e} in fp32, {worst['fp64']:.1e} in fp64; draws bitwise equal",
            "1e-6, 1e-11",
            "make parity",
        ),
        (
            f"SIGKILL at {len(same['kills'])} moments, {writing} of them while a checkpoint is written, same layout",
            equal,
            "equal",
            "make kills",
        ),
        (f"SIGKILL {len(other['kills'])} times, each life on another layout", f"{other['worst_relative']:.1e}", "1e-6", "make kills"),
        (
            f"{len(truth['rows'])} kinds of planted delay: share found in the right bucket and phase",
            f"{min(shares):.1%} to {max(shares):.1%}",
            ">= 95 %",
            "make truth",
        ),
        (
            f"{len(promises)} real runs with one planted cause: what the first finding promises over what a step without it gains",
            "; ".join(f"{r['case']} {r['predicted_gain_ms']:.1f} of {r['measured_gain_ms']:.1f} ms" for r in promises),
            "first; within 15 %",
            "make truth",
        ),
        (
            f"CPU time of the loop over a bare PyTorch loop ({overhead['minutes_cpu']:.0f} minutes, paired)",
            f"{overhead['ratio']:.3f} [{overhead['ratio_low']:.3f}, {overhead['ratio_high']:.3f}]",
            "<= 1.03",
            "make overhead",
        ),
        (
            f"cost of observing: {overhead['spans_a_step']:.0f} spans a step x {overhead['span_us']:.2f} us and a look at the counters",
            f"{overhead['observation_share']:.3%} of a step",
            "<= 1 %",
            "make overhead",
        ),
        (
            "`headway explain` of a 35 MB trace, whole process, CPU seconds",
            f"{explain['headway_cpu_s']['mean']:.2f}; {explain['ratio']['mean']:.2f} of {peer}",
            "<= 0.85; <= 1/3",
            "[bench](src/headway/bench/README.md)",
        ),
        (
            f"`headway explain` of {large['bytes'] / 1e6:.0f} MB, {large['events'] / 1e6:.1f} million events: CPU seconds; peak memory",
            f"{large['headway']['cpu_s']:.1f}, 1/{1 / large['cpu_over_peer']:.1f} of {peer}; "
            f"{large['headway']['peak_mb']:.0f} MB, {large['memory_over_peer']:.0%}",
            "<= 1/8; <= 60 %",
            "[bench](src/headway/bench/README.md)",
        ),
        (
            "the same over a bare typed decode of its bytes; where its CPU seconds go",
            f"{large['cpu_over_bare_decode']:.1f}; "
            + ", ".join(f"{stage} {s:.1f}" for stage, s in sorted(large["stages_cpu_s"].items(), key=lambda x: -x[1])),
            "",
            "[bench](src/headway/bench/README.md)",
        ),
        (
            "another million events, from 2 to 5 and from 5 to 10 copies of a trace, CPU seconds",
            " and ".join(f"{s:.2f}" for s in large["cpu_s_per_million_events"]),
            "linear",
            "[bench](src/headway/bench/README.md)",
        ),
        (
            f"`headway explain` of {fleet['files']} ranks, {fleet['json_gb']:.0f} GB of traces, through {fleet['workers']} processes: "
            "time; peak memory of one that reads, of the one that replays all ranks",
            f"{fleet['wall_s']:.0f} s; {fleet['worker_peak_mb']} MB, {fleet['parent_peak_not_mapped_mb'] / 1000:.1f} GB",
            "one file a process",
            "[bench](src/headway/bench/README.md)",
        ),
        (
            f"`headway scale`: the largest size foretold from the others, {ladders} synthetic ladders "
            f"(1 % noise a step): within 5 %; {len(scaling['published'])} published ladders: largest error",
            f"{' and '.join('{within_5_percent:.1%} ({kind})'.format(**r) for r in scaling['synthetic'])}; "
            f"{max(abs(p['error']) for p in scaling['published']):.1%}",
            ">= 95 %; <= 10 %",
            "[bench](src/headway/bench/README.md)",
        ),
    ]
    head = "| what | measured | bound | command |\n|---|---|---|---|\n"
    return head + "\n".join(f"| {a} | {b} | {c} | {d if d.startswith('[') else f'`{d}`'} |" for a, b, c, d in rows)


def budget() -> str:
    """What more steps give."""
    lines = [
        "| steps | seconds | class agreement, guidance 1 | guidance 2 | variety, guidance 1 | guidance 2 |",
        "|---|---|---|---|---|---|",
    ]
    for r in read("budget")["rows"]:
        cells = [f"{r[f'agree_guidance_{g}']:.1%}" for g in (1, 2)] + [f"{r[f'variety_guidance_{g}']:.2f}" for g in (1, 2)]
        lines.append(f"| {r['steps']:,} | {r['seconds']:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES = {"results": results, "budget": budget}


def filled(text: str) -> str:
    """`text` with every table between its marks made anew."""
    for name, make in TABLES.items():
        head, mark, rest = text.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition(f"<!-- /{name} -->")
        if mark and end:
            text = f"{head}{mark}{make()}\n{end}{tail}"
    return text


def main() -> None:
    """Print the tables or write them."""
    parser = argparse.ArgumentParser(description="The tables of the README, from docs/results.")
    parser.add_argument("--write", action="store_true", help="put them into README.md")
    args = parser.parse_args()
    if args.write:
        readme = ROOT / "README.md"
        readme.write_text(filled(readme.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print("\n\n".join(make() for make in TABLES.values()))


if __name__ == "__main__":
    main()
