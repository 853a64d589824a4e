"""Commands that use and judge what a run has trained."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from headway.cli.options import JSON, RUN, Commands, console, count, number, print_json, print_notes, whole
from headway.cli.outputs import claim


def sample(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Draw samples from the EMA weights of a run as a PNG grid, a row a class."""
    from headway.report.progress import doing
    from headway.runtime import folder
    from headway.runtime.load import load_network
    from headway.runtime.sample import conditions, grid_png, guidance_of, write_bytes
    from headway.runtime.sample import sample as draw

    run = folder.open_run(args.run)
    claim(args, [args.text])
    condition, num = conditions(run, classes=args.classes, columns=args.columns, text=Path(args.text) if args.text else None)
    guidance = guidance_of(run, args.guidance)
    loaded = load_network(run, ema=not args.student)
    print_notes(loaded.notes)
    with doing(console(stderr=True)) as say:
        images = draw(run, loaded, condition, num, seed=args.seed, steps=args.steps, solver=args.solver, guidance=guidance, say=say)
    out = Path(args.out) if args.out else run.path / "samples.png"
    write_bytes(out, grid_png(images, args.columns, scale=args.scale or max(1, 64 // images.shape[-1])))
    print(f"{out}: {num} samples, {loaded.weights} weights at {loaded.samples:,} samples, seed {args.seed}")
    return 0


def evaluate(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Judge the samples of a run: does a classifier fitted on the real data see the asked class? Loss by timestep."""
    from headway.evaluate.judge import judge
    from headway.report.progress import doing
    from headway.runtime import folder
    from headway.runtime.sample import guidance_of

    run = folder.open_run(args.run)
    guidance = guidance_of(run, args.guidance)
    with doing(console(stderr=True)) as say:
        result = judge(run, num=args.num, seed=args.seed, steps=args.steps, guidance=guidance, rewards=args.reward, say=say)
    folder.write_json(run.path / "evaluate.json", result)
    if args.json:
        return print_json(result)
    print(result["text"])
    return 0


COMMANDS: Commands = {
    "sample": (
        sample,
        "headway sample digits --columns 10 --guidance 2        (10 s)",
        [
            RUN,
            ("--out", {"metavar": "FILE", "help": "PNG to write (RUN/samples.png)"}),
            ("--text", {"metavar": "FILE", "help": "text vectors [n, text_dim] as .npy, a row each"}),
            ("--classes", {"default": "", "metavar": "A,B", "help": "classes to draw (all)"}),
            ("--columns", {"type": count, "default": 10, "metavar": "N", "help": "samples a class (10)"}),
            ("--seed", {"type": whole, "default": 0, "metavar": "N", "help": "seed (0)"}),
            ("--steps", {"type": count, "default": 30, "metavar": "N", "help": "solver steps (30)"}),
            ("--solver", {"choices": ("euler", "heun"), "default": "heun", "help": "solver (heun)"}),
            ("--guidance", {"type": number, "metavar": "W", "help": "classifier-free guidance; 1: none (2)"}),
            ("--scale", {"type": whole, "default": 0, "metavar": "N", "help": "screen pixels a pixel (to about 64 a sample)"}),
            ("--student", {"action": "store_true", "help": "the trained weights instead of their average"}),
        ],
    ),
    "evaluate": (
        evaluate,
        "headway evaluate digits        (20 s)",
        [
            RUN,
            ("--num", {"type": count, "default": 200, "metavar": "N", "help": "samples to judge (200)"}),
            ("--seed", {"type": whole, "default": 0, "metavar": "N", "help": "seed (0)"}),
            ("--steps", {"type": count, "default": 30, "metavar": "N", "help": "solver steps (30)"}),
            ("--guidance", {"type": number, "metavar": "W", "help": "classifier-free guidance; 1: none (2)"}),
            ("--reward", {"action": "append", "default": [], "metavar": "FN", "help": "your own reward, path.py:fn (repeatable)"}),
            JSON,
        ],
    ),
}
