"""Samples of a run: noise keyed by (seed, number of the sample), so the same seed gives the same pictures in any batch size."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from headway.diffusion.guidance import guided
from headway.diffusion.sampler import sample_euler, sample_heun
from headway.diffusion.schedule import sampling_times
from headway.kernels.draw import Draw
from headway.runtime.folder import Run
from headway.runtime.load import Loaded

SOLVERS = {"euler": sample_euler, "heun": sample_heun}


@torch.no_grad()
def sample(
    run: Run,
    loaded: Loaded,
    labels: NDArray[np.int64],
    *,
    seed: int = 0,
    steps: int = 30,
    solver: Literal["euler", "heun"] = "heun",
    guidance: float = 2.0,
    batch: int = 256,
) -> NDArray[np.float32]:
    """One picture a label: [n, C, H, W] in [-1, 1]."""
    info = run.info
    dtype = next(loaded.network.parameters()).dtype
    times = sampling_times(steps, shift=run.spec.objective.shift)
    out = []
    for start in range(0, len(labels), batch):
        ids = torch.arange(start, min(start + batch, len(labels)))
        draw = Draw(seed=seed, data="sample", sample_id=ids, visit=torch.zeros_like(ids))
        x = draw.normal("noise", (info["channels"], info["size"], info["size"])).to(dtype)
        condition = {} if run.spec.model.condition == "none" else {"label": torch.as_tensor(labels[start : start + batch])}
        model = guided(loaded.network, condition, scale=guidance)
        out.append(SOLVERS[solver](model, x, times).clamp(-1, 1).float().numpy())
    return np.concatenate(out)


def class_rows(num_classes: int, columns: int) -> NDArray[np.int64]:
    """Labels of a grid with a row a class: 0 0 0 ... 1 1 1 ..."""
    return np.repeat(np.arange(num_classes), columns)


def grid_png(images: NDArray[np.float32], columns: int, *, scale: int = 1, gap: int = 1) -> bytes:
    """A PNG of pictures [n, C, H, W] in [-1, 1], `columns` a row, each pixel `scale` x `scale`."""
    n, channels, height, width = images.shape
    rows = -(-n // columns)
    canvas = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap, channels), 255, np.uint8)
    pixels = np.round((images.clip(-1, 1) + 1) * 127.5).astype(np.uint8).transpose(0, 2, 3, 1)
    for i, picture in enumerate(pixels):
        top, left = (i // columns) * (height + gap) + gap, (i % columns) * (width + gap) + gap
        canvas[top : top + height, left : left + width] = picture
    image = Image.fromarray(canvas[..., 0] if channels == 1 else canvas)
    image = image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file: all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_bytes(data)
    temporary.replace(path)
