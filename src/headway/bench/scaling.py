"""How well the largest size of a ladder is predicted from the smaller ones: ladders of known laws, and any table of measured runs.

    python -m headway.bench.scaling --out docs/results/scaling.json [--table measured.csv]

Made ladders: a step is work + fixed time + at most one of a tree's, a ring's and the slowest rank's growth, or all of them, at four to six
sizes, weak and strong, with relative noise on every size. The largest is held out. Of a table every ladder with three smaller sizes counts,
each by its name; nothing is dropped.
"""

from __future__ import annotations

import argparse
import math
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from headway.runtime import folder
from headway.spec.scaling import Point
from headway.trace.scaling import sheet
from headway.trace.scaling.growth import held_out, terms

SCHEMA = "headway.scaling-truth/1"
LADDERS: Final = 400  # of each kind
NOISES: Final = (0.0, 0.003, 0.01)
LAWS: Final = ("one growth", "all at once")
WITHIN: Final = 0.05


def made(rng: np.random.Generator, *, weak: bool, law: str, noise: float) -> tuple[list[Point], float]:
    """The sizes of a ladder as they would be measured, and the true step at the largest. At the largest size work takes 1 s."""
    first, num = int(rng.choice((1, 8, 32))), int(rng.integers(4, 7))
    sizes = [first << k for k in range(num)]
    batch = [64.0 * n for n in sizes] if weak else [64.0 * sizes[-1]] * num
    most = terms(sizes[-1], batch[-1])
    shares = {"fixed": rng.uniform(0.0, 0.15), "log": rng.uniform(0.0, 0.15), "ring": rng.uniform(0.0, 0.15), "skew": rng.uniform(0.0, 0.1)}
    if law == "one growth":
        kept = rng.choice(("log", "ring", "skew"))
        shares = {name: share for name, share in shares.items() if name in ("fixed", kept)}
    work = 1e9 / most["work"]  # nanoseconds of a sample: at the largest size work takes 1 s, and shares are of that

    def step(n: int, b: float) -> float:
        return work * terms(n, b)["work"] + sum(1e9 * v * terms(n, b)[k] / most[k] for k, v in shares.items())

    true = [step(n, b) for n, b in zip(sizes, batch, strict=True)]
    seen = [t * (1 + noise * rng.standard_normal()) for t in true]
    return [Point(devices=n, global_batch=b, step=t) for n, b, t in zip(sizes, batch, seen, strict=True)], true[-1]


def of_made(*, weak: bool, law: str, noise: float, ladders: int) -> dict[str, Any]:
    """Errors over many ladders of one kind."""
    rng = np.random.default_rng((int(weak), LAWS.index(law), round(1e4 * noise)))
    errors, inside = [], 0
    for _ in range(ladders):
        points, truth = made(rng, weak=weak, law=law, noise=noise)
        (held,) = held_out(points)
        errors.append(abs(held.predicted / truth - 1))
        inside += held.interval[0] <= points[-1].step <= held.interval[1]
    return {
        "scaling": "weak" if weak else "strong",
        "law": law,
        "noise": noise,
        "within_5_percent": sum(e <= WITHIN for e in errors) / ladders,
        "median_error": float(np.median(errors)),
        "p95_error": float(np.quantile(errors, 0.95)),
        "interval_holds": inside / ladders,
    }


def of_table(path: Path) -> list[dict[str, Any]]:
    """Every ladder of a table that has a largest size to hold out."""
    found, _ = sheet.ladders(path)
    return [
        {
            "ladder": ladder.name,
            "mode": ladder.mode,
            "sizes": sorted({p.devices for p in ladder.points}),
            "held_out_devices": held.devices,
            "global_batch": held.global_batch,
            "error": round(held.error, 4),
            "in_interval": bool(held.interval[0] <= held.step <= held.interval[1]),
        }
        for ladder in found
        for held in ladder.held_out
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run it and print the verdicts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", type=Path, metavar="CSV", help="measured runs (see headway scale)")
    parser.add_argument("--ladders", type=int, default=LADDERS, metavar="N", help=f"made ladders of each kind ({LADDERS})")
    parser.add_argument("--out", metavar="FILE", help="write the figures as JSON")
    args = parser.parse_args(argv)
    kinds = [(weak, law, noise) for law in LAWS for weak in (True, False) for noise in NOISES]
    rows = [of_made(weak=weak, law=law, noise=noise, ladders=args.ladders) for weak, law, noise in kinds]
    for row in rows:
        print(
            f"{row['scaling']:<7}{row['law']:<13}noise {100 * row['noise']:.1f} %: within 5 % in {row['within_5_percent']:.1%}, "
            f"median {row['median_error']:.2%}, p95 {row['p95_error']:.2%}, interval holds in {row['interval_holds']:.1%}"
        )
    measured = of_table(args.table) if args.table else []
    for row in measured:
        print(f"{row['ladder']}: {row['held_out_devices']} devices {100 * row['error']:+.1f} %")
    worst = max((abs(row["error"]) for row in measured), default=math.nan)
    if measured:
        print(f"{len({row['ladder'] for row in measured})} measured ladders, largest error {worst:.1%}")
    if args.out:
        table = {"measured": measured, "measured_largest_error": worst} if measured else {}
        folder.write_json(
            Path(args.out), {"schema": SCHEMA, "ladders": args.ladders, "made": rows, **table, "python": platform.python_version()}
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
