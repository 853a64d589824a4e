"""Class-conditional DiT on any folder of images: sub-folders are classes, a flat folder is one class.

    headway train folder --data.path ~/pictures --data.size 32

Hardware: one GPU, or CPU cores for small images.
"""

from __future__ import annotations

from headway.spec.parts import CheckpointSpec, DataSpec, EmaSpec, ModelSpec, ObserveSpec, OptimSpec
from headway.spec.run import RunSpec


def folder() -> RunSpec:
    """A DiT on your own images, one size, centre crop."""
    return RunSpec(
        name="folder",
        global_batch=64,
        samples=64 * 2000,
        model=ModelSpec(depth=6, width=192, heads=6, patch=4),
        data=DataSpec(name="folder", size=32, channels=3, workers=2),
        optim=OptimSpec(lr=1e-3, warmup=64 * 50, decay="cosine", final_lr=0.02),
        ema=EmaSpec(half_life=5000),
        checkpoint=CheckpointSpec(every=64 * 500),
        observe=ObserveSpec(profile_steps="auto"),
    )
