"""How well `headway scale` foretells a size that it has not seen: on synthetic ladders, and on published ones.

    python -m headway.bench.scaling --out docs/results/scaling.json                               # synthetic (1 minute)
    python -m headway.bench.scaling --published FILE.csv --out docs/results/scaling.json          # and every ladder of a table

Synthetic: step times of known laws with 1 % of noise a step, ten steps a size; the largest size is taken away and foretold from the
others. A ladder has one or two costs beside compute, of every pair there is, which take 2 to 30 % of compute each at the largest size.
Published: every ladder of four sizes or more with one configuration in the table, each listed with its error; none is left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from headway.runtime import folder
from headway.spec.scaling import Kind
from headway.stats.difference import moments
from headway.stats.intervals import wilson
from headway.trace.scaling.ladder import Group, ladders
from headway.trace.scaling.law import LEAST_SIZES, features, fit, names_of
from headway.trace.scaling.scale import held_out, law_of
from headway.trace.scaling.sheet import read_sheet

SCHEMA = "headway.scaling_bench/1"
SYNTHETIC, PUBLISHED = 0.05, 0.10  # largest error that is promised
MOST_OFF = 0.95  # share of synthetic ladders that keep it
FIRST, SIZES = (1, 8, 64), (4, 5, 6)  # smallest size, and number of sizes that are shown
STEPS, NOISE = 10, 0.01


def synthetic(kind: Kind, seeds: int, *, noise: float = NOISE, steps: int = STEPS) -> dict[str, Any]:
    """Errors over all pairs of costs, first sizes and numbers of sizes, `seeds` of each."""
    names = names_of(kind)
    costs = [(), *((i,) for i in range(1, len(names))), *combinations(range(1, len(names)), 2)]
    errors, inside = [], 0
    for i, (first, num, some) in enumerate((f, n, c) for f in FIRST for n in SIZES for c in costs):
        sizes = [float(first << i) for i in range(num + 1)]
        x = features(kind, sizes)
        for seed in range(seeds):
            rng = np.random.Generator(np.random.Philox([seed, i, kind == "weak"]))
            share = np.zeros(len(names))
            share[0] = 1.0
            share[list(some)] = rng.uniform(0.02, 0.3, len(some))
            measured = (x @ (share / x[-1]))[:, None] * (1 + noise * rng.standard_normal((num + 1, steps)))
            spread = [moments(row) for row in measured]
            error = float(np.median([s.deviation / (s.mean * s.n**0.5) for s in spread]))
            law = fit(kind, sizes[:-1], [s.mean for s in spread[:-1]], noise=error, seed=seed)
            assert law is not None
            errors.append(abs(float(law.at([sizes[-1]])[0]) / spread[-1].mean - 1))
            low, high = law.interval(sizes[-1])
            inside += low <= spread[-1].mean <= high
    found = np.array(errors)
    within = int((found <= SYNTHETIC).sum())
    return {
        "kind": kind,
        "ladders": len(errors),
        "noise_of_a_step": noise,
        "steps_a_size": steps,
        "median_error": round(float(np.median(found)), 4),
        "p95_error": round(float(np.quantile(found, 0.95)), 4),
        "largest_error": round(float(found.max()), 4),
        "within_5_percent": round(within / len(errors), 4),
        "within_5_percent_low": round(wilson(within, len(errors)).low, 4),
        "interval_holds": round(inside / len(errors), 4),  # of 95 %
    }


def published(path: Path) -> list[dict[str, Any]]:
    """Every ladder of four sizes or more: the largest foretold from the others."""
    groups, _ = ladders(read_sheet(path)[0])
    return [_row(g) for g in groups if len(g.points) > LEAST_SIZES]


def _row(group: Group) -> dict[str, Any]:
    first, last = group.points[0], group.points[-1]
    error = held_out(group)
    law, whole = law_of(group, len(group.points) - 1), law_of(group)
    assert error is not None and law is not None and whole is not None
    low, high = law.interval(last.size)
    return {
        "ladder": group.name,
        "source": first.configuration.get("source", ""),
        "kind": group.kind,
        "why": group.why,
        "sizes": [p.size for p in group.points],
        "efficiency": round(first.time / last.time * (first.size / last.size if group.kind == "strong" else 1), 4),
        "error": round(error, 4),
        "interval": [round(low / last.time - 1, 4), round(high / last.time - 1, 4)],
        "interval_holds": low <= last.time <= high,
        "points_off_the_law": round(whole.residual, 4),
        "holds": abs(error) <= PUBLISHED,
        "notes": list(group.notes),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 if a bound is missed."""
    parser = argparse.ArgumentParser(prog="python -m headway.bench.scaling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--published", type=Path, metavar="FILE", help="table of measured runs: model, n_gpus, batch, metric, value, ...")
    parser.add_argument("--seeds", type=int, default=4, help="ladders of each kind of cost and size (4)")
    parser.add_argument("--out", type=Path, help="JSON to write")
    args = parser.parse_args(argv)
    rows = [synthetic(kind, args.seeds) for kind in ("weak", "strong")]
    harsh = [synthetic(kind, args.seeds, steps=3, noise=NOISE * 3**0.5) for kind in ("weak", "strong")]  # the mean itself is 1 % off
    for r in rows:
        low, share = r["within_5_percent_low"], r["within_5_percent"]
        print(f"{r['kind']:<7} {r['ladders']} ladders: {share:.1%} [{low:.1%}, ...] within 5 %, p95 {r['p95_error']:.1%}")
    found = published(args.published) if args.published else []
    for p in sorted(found, key=lambda p: -abs(p["error"])):
        print(f"{p['error']:+7.1%}  {p['kind']:<7}{p['sizes']}  {p['ladder']}")
    held = all(r["within_5_percent"] >= MOST_OFF for r in rows) and all(p["holds"] for p in found)
    if args.out:
        data = {
            "schema": SCHEMA, "date": date.today().isoformat(), "passed": held, "synthetic": rows, "synthetic_mean_off_by_1_percent": harsh,
            "published_file": args.published.name if args.published else None, "published": found,
        }  # fmt: skip
        folder.write_json(args.out, data)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
