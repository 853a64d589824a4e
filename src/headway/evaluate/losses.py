"""The loss of a network by timestep, with draws that never change.

Sample i in bin k is always met with the same t, the same noise and without dropout of its condition, so two networks (or one network at two
times) are compared on equal terms: the difference of their losses has none of the noise of a training loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.data.dataset import Dataset
from headway.data.loader import Batch
from headway.diffusion import path
from headway.diffusion.objective import condition, squared_error
from headway.evaluate.real import batches
from headway.kernels.draw import Draw
from headway.spec.errors import DataError
from headway.stats.intervals import Interval, mean_interval


@dataclass(frozen=True, kw_only=True)
class BinLoss:
    """Mean squared error of the velocity for t in [low, high), with an interval over samples."""

    low: float
    high: float
    loss: Interval


def loss_by_timestep(
    network: nn.Module, dataset: Dataset, *, bins: int = 4, num_samples: int = 512, batch: int = 128, seed: int = 0
) -> list[BinLoss]:
    """Loss of `network` in `bins` equal bins of t, over `num_samples` samples of `dataset`, each once in every bin.

    The loss is flow matching's, |v - (eps - x0)|^2 a pixel, whatever the network was trained with. Runs where the network's parameters are.
    Raises DataError if there is one sample only: its mean has no interval.
    """
    if min(len(dataset), num_samples) < 2:
        raise DataError("an interval needs at least two samples", where=f"data set '{dataset.name}'")
    device = next(network.parameters()).device
    was_training = network.training
    network.eval()
    try:
        rows = []  # a batch each: losses [bins, b]
        for part in batches(dataset, num_samples, seed=seed, batch=batch):
            here = {k: v.to(device) for k, v in part.items()}
            with torch.no_grad():
                rows.append(torch.stack([_losses(network, dataset, here, b, bins, seed) for b in range(bins)]))
    finally:
        network.train(was_training)
    losses = torch.cat(rows, dim=1).double().cpu().numpy()
    return [BinLoss(low=b / bins, high=(b + 1) / bins, loss=mean_interval(losses[b])) for b in range(bins)]


def _losses(network: nn.Module, dataset: Dataset, batch: Batch, b: int, bins: int, seed: int) -> Tensor:
    """Loss of each sample of `batch` at its own t of bin `b`. Bins draw as visits do: each has noise of its own."""
    draw = Draw(seed, dataset.name, batch["sample_id"], torch.full_like(batch["visit"], b))
    x0 = batch["image"]
    t = (b + draw.uniform("evaluate.timestep")) / bins
    eps = draw.normal("evaluate.noise", x0.shape[1:])
    v = network(path.interpolate(x0, eps, t), t, condition(batch, draw, 0.0))
    return squared_error(v, path.velocity(x0, eps), t).per_sample
