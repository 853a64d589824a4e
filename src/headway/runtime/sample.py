"""Samples of a run: noise keyed by (seed, number of the sample), so the same seed gives the same pictures in any batch size."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from headway.diffusion.guidance import guided
from headway.diffusion.sampler import SAMPLERS
from headway.diffusion.schedule import sampling_times
from headway.kernels.draw import Draw
from headway.report import output
from headway.runtime.folder import Run
from headway.runtime.load import Loaded
from headway.spec.errors import RunError, SpecError


@torch.no_grad()
def sample(
    run: Run,
    loaded: Loaded,
    condition: Mapping[str, NDArray[Any]],
    num: int,
    *,
    seed: int = 0,
    steps: int = 30,
    solver: Literal["euler", "heun"] = "heun",
    guidance: float = 2.0,
    batch: int = 256,
    say: Callable[[str], None] = lambda text: None,
) -> NDArray[np.float32]:
    """`num` pictures [num, C, H, W] in [-1, 1]; `condition` holds what the network is told, e.g. {"label": [num]} or {"text": [num, d]}.

    Noise is drawn on the CPU, so that a seed means the same noise on every device. `say` hears how far it is, before each batch.
    """
    info = run.info
    weight = next(loaded.network.parameters())
    times = sampling_times(steps, run.spec.objective.shift, device=weight.device)
    out = []
    for start in range(0, num, batch):
        say(f"sampling, {start} of {num} drawn")
        ids = torch.arange(start, min(start + batch, num))
        draw = Draw(seed=seed, data="sample", sample_id=ids, visit=torch.zeros_like(ids))
        x = draw.normal("noise", (info["channels"], info["size"], info["size"])).to(weight)
        told = {k: torch.as_tensor(v[start : start + batch], device=weight.device) for k, v in condition.items()}
        model = guided(loaded.network, told, guidance if told else 1.0)
        out.append(SAMPLERS[solver](model, x, times).clamp(-1, 1).float().cpu().numpy())
    return np.concatenate(out)


def conditions(run: Run, *, classes: str, columns: int, text: Path | None = None) -> tuple[dict[str, NDArray[Any]], int]:
    """What the network is told, and how many samples that makes: a row a class, a row a text vector, or one row of nothing.

    `text`: a .npy file of vectors [n, text_dim]. Raises SpecError if it is missing or does not fit, or classes are asked where there are
    none.
    """
    kind = run.spec.model.condition
    if classes and (kind != "class" or not run.info["num_classes"]):
        raise SpecError("this network is told no class", where=f"--classes {classes}", fix="Leave --classes out.")
    if kind == "text":
        if text is None:
            raise SpecError("this network is told a text vector", fix="Give them with --text VECTORS.npy, [n, text_dim].")
        try:
            vectors = np.load(text, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise SpecError(f"cannot read text vectors: {error}", where=str(text), fix="Save them with numpy.save.") from error
        if vectors.ndim != 2 or vectors.shape[1] != run.spec.model.text_dim:
            raise SpecError(f"text vectors must be [n, {run.spec.model.text_dim}], got {list(vectors.shape)}", where=str(text))
        return {"text": np.repeat(vectors.astype(np.float32), columns, axis=0)}, len(vectors) * columns
    if text is not None:
        raise SpecError("this network is told no text vector", where=f"--text {text}", fix="Leave --text out.")
    if kind == "none" or not run.info["num_classes"]:
        return {}, columns
    labels = np.repeat(np.asarray(_classes(classes, int(run.info["num_classes"])), np.int64), columns)
    return {"label": labels}, len(labels)


def guidance_of(run: Run, asked: float | None) -> float:
    """Weight of classifier-free guidance: as asked, else 2; 1 for a network that is told nothing. Raises SpecError if it cannot be."""
    if run.spec.model.condition != "none":
        return 2.0 if asked is None else asked
    if asked not in (None, 1.0):
        fix = "Leave --guidance out; guidance compares samples with and without a condition."
        raise SpecError("this network is told nothing", where=f"--guidance {asked:g}", fix=fix)
    return 1.0


def _classes(text: str, num_classes: int) -> list[int]:
    """The classes of '0,3,7'; all of them for ''."""
    try:
        classes = [int(c) for c in text.split(",") if c.strip()]
    except ValueError as error:
        raise SpecError(f"--classes '{text}' is not a list of whole numbers", fix="Write --classes 0,3,7.") from error
    if any(not 0 <= c < num_classes for c in classes):
        raise SpecError(f"--classes {text}: classes run from 0 to {num_classes - 1}")
    return classes or list(range(num_classes))


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
    """Write a file: all of it or nothing. Raises RunError if it cannot be written."""
    output.target(path)
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        fix = "Name a file in a folder that exists and is writable."
        raise RunError(f"cannot be written: {error.strerror}", where=str(path), fix=fix) from error
