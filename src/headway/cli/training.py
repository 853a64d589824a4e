"""Commands that start, watch and end a run."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from headway.cli.options import JSON, RUN, TIMEOUT, Commands, console, count, print_json
from headway.spec.errors import RunError, SpecError, joined


def recipes(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """List the recipes: what each trains, on what, and the command."""
    from headway.recipes.registry import about
    from headway.report.lists import print_recipes

    texts = about()
    if args.json:
        return print_json({"schema": "headway.recipes/1", "recipes": texts})
    print_recipes(texts, console())
    return 0


def check(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Find every problem of a recipe at once, without torch."""
    from headway.report.lists import print_problems
    from headway.spec.codec import encode, overridden

    spec, problems = overridden(_resolve(args.recipe), rest)
    problems += _problems(spec)
    if args.json:
        print_json({"schema": "headway.check/1", "problems": problems, "spec": encode(spec)})
    else:
        print_problems(problems, console(), what=args.recipe)
    return 2 if problems else 0


def train(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Train a recipe, or resume its run: the same command again goes on where it stopped."""
    import dataclasses

    from headway.report.lists import print_fields
    from headway.runtime import folder, launch
    from headway.spec.codec import overridden
    from headway.spec.run import describe

    spec, problems = overridden(_resolve(args.recipe), rest)
    if args.fields and not problems:
        print_fields(describe(spec), console())
        return 0
    path = folder.place(args.run or spec.name)
    spec = dataclasses.replace(spec, name=path.name)
    place = launch.standing(os.environ)
    if problems := problems + _problems(spec):
        raise SpecError(joined(problems))
    launch.match_world(spec.mesh, place)
    if place is None and spec.mesh.world > 1:
        if not args.fresh:
            folder.compatible(path, spec)
        folder.make_folder(path.parent)
        return launch.start_local(args.argv, spec.mesh.world)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # before torch is loaded: its profiler writes notes for tracers of the kernel to stderr
    from headway.train import run

    if place is not None:
        launch.adopt_slurm(os.environ, place)
    launch.follow_parent()
    return run.train(spec, path, place or launch.Place(), fresh=args.fresh)


def status(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Say where a run stands."""
    from headway.report.lists import print_status
    from headway.runtime import folder

    path = folder.place(args.run)
    begun = (path / "run.json").is_file() or not (path / "status.json").is_file()  # else it failed at its start: all there is is its status
    data = folder.summary(folder.open_run(args.run)) if begun else {"name": path.name, **folder.status(path)}
    if args.json:
        return print_json({"schema": "headway.status/1", **data})
    print_status(data, console())
    return 0


def profile(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Trace the next steps of a live run on every rank."""
    from headway.runtime import folder

    run = folder.open_run(args.run)
    before = set((run.path / "traces").glob("*.json.gz"))
    folder.require_live(run.path)
    folder.ask(run.path, "profile", steps=args.steps)
    world = run.info.get("world", 1)
    files = folder.wait_for(lambda: folder.new_traces(run.path, before, world), args.timeout, lambda: folder.ended(run.path))
    if not files:
        raise RunError(
            f"no trace came within {args.timeout:.0f} s",
            where=f"run {run.path}",
            fix="Give it longer with --timeout; see `headway status`.",
        )
    print(f"{len(files)} traces in {run.path / 'traces'}; headway explain {run.path}")
    return 0


def stop(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """End a live run cleanly, with a checkpoint."""
    from headway.runtime import folder

    run = folder.open_run(args.run)
    folder.require_live(run.path)
    folder.ask(run.path, "stop")
    if not folder.wait_for(lambda: folder.ended(run.path), args.timeout):
        raise RunError(
            f"it has not stopped within {args.timeout:.0f} s",
            where=f"run {run.path}",
            fix="It stops at its next log line; wait, or look with `headway status`.",
        )
    print(f"{run.path}: stopped at {folder.status(run.path).get('samples', 0):,} samples; the same train command goes on")
    return 0


# ---- parts ----


def _resolve(name: str) -> Any:
    from headway.recipes.registry import resolve

    return resolve(name)


def _problems(spec: Any) -> list[str]:
    from headway.data.probe import problems
    from headway.spec.run import check as rules

    return rules(spec) + problems(spec.data) + _own_problems(spec) + _role_problems(spec)


def _own_problems(spec: Any) -> list[str]:
    """What keeps a user's own network, data set or objective from being found; nothing of it is run."""
    from headway.spec.locate import is_own, look

    names = {f"--{part}.name {name}": name for part in ("model", "data", "objective") if is_own(name := getattr(spec, part).name)}
    return [f"{flag}: {why}" for flag, name in names.items() if (why := look(name))]


def _role_problems(spec: Any) -> list[str]:
    """Roles that start from a run that is not there."""
    from headway.runtime import folder

    out = []
    for role in spec.roles:
        try:
            _ = role.init == "student" or folder.open_run(role.init)
        except RunError as error:
            out.append(f"role '{role.name}': {error}")
    return out


COMMANDS: Commands = {
    "recipes": (recipes, "headway recipes", [JSON]),
    "check": (
        check,
        "headway check digits --mesh.dp-shard 2        (0.2 s)",
        [("recipe", {"metavar": "RECIPE", "help": "name, path.py:fn or run.json"}), JSON],
    ),
    "train": (
        train,
        "headway train digits --mesh.dp-shard 2 --optim.lr 1e-3        (3 minutes on 2 cores)",
        [
            ("recipe", {"metavar": "RECIPE", "help": "name, path.py:fn, or run.json of an earlier run"}),
            ("--run", {"metavar": "NAME", "help": "name or folder of the run (default: the recipe's name)"}),
            ("--fresh", {"action": "store_true", "help": "start over; an old run of that name is set aside as NAME.1"}),
            ("--fields", {"action": "store_true", "help": "list every field of the recipe with its value and meaning"}),
        ],
    ),
    "status": (status, "headway status digits", [RUN, JSON]),
    "profile": (
        profile,
        "headway profile digits --steps 3        (until the next log line)",
        [RUN, ("--steps", {"type": count, "default": 3, "metavar": "N", "help": "steps to trace (3)"}), TIMEOUT],
    ),
    "stop": (stop, "headway stop digits        (until the next log line)", [RUN, TIMEOUT]),
}
