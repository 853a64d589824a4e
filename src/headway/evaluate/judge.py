"""What a run's network is worth: its samples against the asked classes and the real data, and its loss by timestep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headway.data.registry import open_data
from headway.evaluate.agreement import class_agreement
from headway.evaluate.diversity import diversity
from headway.evaluate.losses import loss_by_timestep
from headway.evaluate.reward import find, score
from headway.runtime.folder import Run
from headway.runtime.load import load_network
from headway.runtime.sample import sample
from headway.spec.codec import encode
from headway.spec.errors import RunError

SCHEMA = "headway.evaluation/1"


def judge(run: Run, *, num: int, seed: int, steps: int, guidance: float, rewards: Sequence[str] = ()) -> dict[str, Any]:
    """Figures and a text for people, as plain data. `num` samples, evenly over the classes; `rewards` are the user's own.

    Raises HeadwayError.
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
    condition = {"label": labels} if run.spec.model.condition == "class" else {}
    images = sample(run, loaded, condition, num, seed=seed, steps=steps, guidance=guidance)
    bins = loss_by_timestep(loaded.network, data, bins=run.spec.observe.timestep_bins, seed=seed)
    spread = diversity(images, labels, dataset=data)
    head = f"{num} samples, {loaded.weights} weights at {loaded.samples:,} samples seen, guidance {guidance:g}, seed {seed}"
    lines = [head]
    result: dict[str, Any] = {"schema": SCHEMA, "samples": loaded.samples, "num": num, "seed": seed, "steps": steps, "guidance": guidance}
    if condition and data.num_classes > 1:
        agreement = class_agreement(images, labels, dataset=data, seed=seed)
        at, real, share = agreement.interval, agreement.classifier_accuracy, agreement.agree / agreement.n
        lines += [
            f"class agreement   {agreement.agree} of {agreement.n} ({share:.1%}, 95 % interval {at.low:.1%} to {at.high:.1%})",
            f"                  the classifier is right on {real:.1%} of real samples it has not seen",
        ]
        result["agreement"] = encode(agreement)
    lines.append(
        f"near copies       {spread.near_copies.estimate:.1%} of samples are as close to a training image as the closest 5 % of those are"
    )
    lines.append(f"variety           variance inside a class {spread.median_variance_ratio:.2f} of the real one")
    lines += [f"loss, t {b.low:.2f}-{b.high:.2f}   {b.loss.estimate:.4f} +- {(b.loss.high - b.loss.low) / 2:.4f}" for b in bins]
    result["near_copies"], result["median_variance_ratio"] = encode(spread.near_copies), spread.median_variance_ratio
    result["loss_by_timestep"] = encode(bins)
    for found in (score(name, images, condition, dataset=data, seed=seed) for name in rewards):
        half, of_real = (found.samples.high - found.samples.low) / 2, found.real
        label = found.name.rpartition(":")[2]
        real_half = (of_real.high - of_real.low) / 2
        lines.append(f"reward {label}   {found.samples.estimate:.4g} +- {half:.2g}; real images {of_real.estimate:.4g} +- {real_half:.2g}")
        result.setdefault("rewards", []).append(encode(found))
    return result | {"text": "\n".join(lines)}
