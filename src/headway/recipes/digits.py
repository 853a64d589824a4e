"""Class-conditional DiT on scikit-learn's 1,797 real handwritten digits (8 x 8 grey). Nothing to download.

    headway train digits --mesh.dp-shard 2

Hardware: 2 CPU cores. README has the expected time and result.
"""

from __future__ import annotations

from headway.spec.parts import CheckpointSpec, DataSpec, EmaSpec, ModelSpec, ObjectiveSpec, ObserveSpec, OptimSpec
from headway.spec.run import RunSpec


def digits() -> RunSpec:
    """A small DiT that learns to write digits in minutes on two CPU cores."""
    return RunSpec(
        name="digits",
        global_batch=128,
        samples=128 * 600,
        model=ModelSpec(depth=4, width=96, heads=4, patch=2),
        data=DataSpec(name="digits", size=8, channels=1, window=1797),
        objective=ObjectiveSpec(condition_dropout=0.1),
        optim=OptimSpec(lr=2e-3, warmup=128 * 30, decay="cosine", final_lr=0.02),
        ema=EmaSpec(half_life=5000),
        checkpoint=CheckpointSpec(every=128 * 200),
        observe=ObserveSpec(profile_steps="auto"),
    )
