"""What a run's network is worth: its samples against the asked classes and the real data, and its loss by timestep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.dataset import Dataset
from headway.data.registry import open_data
from headway.evaluate.agreement import class_agreement
from headway.evaluate.diversity import diversity
from headway.evaluate.losses import loss_by_timestep
from headway.evaluate.reward import find, score
from headway.runtime.folder import Run
from headway.runtime.load import Loaded, load_network
from headway.runtime.sample import sample
from headway.spec.codec import encode
from headway.spec.errors import DataError, RunError
from headway.stats.intervals import Interval

SCHEMA = "headway.evaluation/1"
Said = tuple[list[str], dict[str, Any]]  # lines for people, keys of the result
Images = NDArray[np.float32]
Say = Callable[[str], None]


def _nothing(text: str) -> None: ...


def judge(
    run: Run, *, num: int, seed: int, steps: int, guidance: float, rewards: Sequence[str] = (), say: Say = _nothing
) -> dict[str, Any]:
    """Figures and a text for people, as plain data. `num` samples, evenly over the classes; `rewards` are the user's own.

    `say` hears what is being done.

    A figure that these data or samples do not allow is named under `not_measured` with the reason. Raises HeadwayError.
    """
    for name in rewards:
        find(name)  # before minutes of sampling
    if run.spec.model.condition == "text":
        raise RunError(
            "a text-conditioned run has no classes to agree with",
            where=f"run {run.path}",
            fix="Look at its samples: headway sample RUN --text FILE.",
        )
    data = open_data(run.spec.data, cache=run.path / "data")
    loaded = load_network(run)
    labels = np.arange(num) % max(1, data.num_classes)
    asked = {"label": labels} if run.spec.model.condition == "class" else {}
    images = sample(run, loaded, asked, num, seed=seed, steps=steps, guidance=guidance, say=say)
    figures: list[tuple[str, Callable[[], Said]]] = [
        ("near copies and variety", partial(_diversity, images, labels, data)),
        ("loss by timestep", partial(_losses, loaded, data, run.spec.observe.timestep_bins, seed)),
        *((f"reward {name}", partial(_reward, name, images, asked, data, seed)) for name in rewards),
    ]
    if asked and data.num_classes > 1:
        figures.insert(0, ("class agreement", partial(_agreement, images, labels, data, seed)))

    lines = [f"{num} samples, {loaded.weights} weights at {loaded.samples:,} samples seen, guidance {guidance:g}, seed {seed}"]
    result: dict[str, Any] = {"schema": SCHEMA, "samples": loaded.samples, "num": num, "seed": seed, "steps": steps, "guidance": guidance}
    not_measured, scores = {}, []
    for figure, measure in figures:
        say(figure)
        try:
            said, values = measure()
        except DataError as error:
            not_measured[figure] = str(error)
            said, values = [f"not measured      {figure}: {error}"], {}
        lines += said
        scores += [values.pop("reward")] if "reward" in values else []
        result |= values
    if scores:
        result["rewards"] = scores
    return result | {"not_measured": not_measured, "text": "\n".join(lines)}


def _agreement(images: Images, labels: NDArray[np.int64], data: Dataset, seed: int) -> Said:
    found = class_agreement(images, labels, dataset=data, seed=seed)
    at, share = found.interval, found.agree / found.n
    lines = [
        f"class agreement   {found.agree} of {found.n} ({share:.1%}, 95 % interval {at.low:.1%} to {at.high:.1%})",
        f"                  the classifier is right on {found.classifier_accuracy:.1%} of real samples it has not seen",
    ]
    return lines, {"agreement": encode(found)}


def _diversity(images: Images, labels: NDArray[np.int64], data: Dataset) -> Said:
    found = diversity(images, labels, dataset=data)
    near, ratio = found.near_copies, found.median_variance_ratio if found.variance_ratio else None
    variety = "unknown: no class has two samples and two real images that differ" if ratio is None else f"{ratio:.2f} of the real one"
    lines = [
        f"near copies       {near.estimate:.1%} of samples are as close to a training image as the closest 5 % of those are",
        f"variety           variance inside a class {variety}",
    ]
    return lines, {"near_copies": encode(near), "median_variance_ratio": ratio}


def _losses(loaded: Loaded, data: Dataset, bins: int, seed: int) -> Said:
    found = loss_by_timestep(loaded.network, data, bins=bins, seed=seed)
    lines = [f"loss, t {b.low:.2f}-{b.high:.2f}   {b.loss.estimate:.4f} +- {b.loss.half_width:.4f}" for b in found]
    return lines, {"loss_by_timestep": encode(found)}


def _reward(name: str, images: Images, asked: Mapping[str, NDArray[Any]], data: Dataset, seed: int) -> Said:
    found = score(name, images, asked, dataset=data, seed=seed)
    label = found.name.rpartition(":")[2]
    return [f"reward {label}   {_shown(found.samples)}; real images {_shown(found.real)}"], {"reward": encode(found)}


def _shown(of: Interval) -> str:
    return f"{of.estimate:.4g} +- {of.half_width:.2g}"
