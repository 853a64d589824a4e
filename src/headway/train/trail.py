"""The trail: a hash of what each rank drew in each step, so that two layouts can be compared bit by bit.

A sample's hash covers its id, its visit and its draws; the hash of a step is the sum over its samples, so that neither their order nor
who had them matters: the sum over ranks is equal on every layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from headway.kernels.draw import Draw
from headway.runtime.build import TrainState
from headway.train.step import Batch, draw_of


def hash_of(state: TrainState, batches: Sequence[Batch]) -> str:
    """16 hex digits for this rank's part of a global batch."""
    total = 0
    for batch in batches:
        draw: Draw = draw_of(state, batch)
        noise = draw.normal("noise", tuple(batch["image"].shape[1:])).cpu().numpy()
        t = draw.uniform("timestep").cpu().numpy()
        image = batch["image"].cpu().numpy()
        for row in range(len(t)):
            words = np.asarray([int(batch["sample_id"][row]), int(batch["visit"][row])], np.int64)
            digest = blake2b(words.tobytes() + noise[row].tobytes() + t[row].tobytes() + image[row].tobytes(), digest_size=8)
            total = (total + int.from_bytes(digest.digest(), "little")) % (1 << 64)
    return f"{total:016x}"
