"""Shapes written in annotations are checked under pytest: this one proves that the check bites."""

from __future__ import annotations

from pathlib import Path

import jaxtyping
import pytest

DRAW = Path(__file__).resolve().parent.parent.parent / "src" / "headway" / "kernels" / "draw.py"


@pytest.mark.skipif(not DRAW.is_file(), reason="headway.kernels.draw does not exist yet")
def test_a_wrong_shape_raises() -> None:
    import torch

    from headway.kernels.draw import Draw

    ids = torch.zeros(3, dtype=torch.int64)
    Draw(0, "digits", ids, ids).bits("noise", 4)
    with pytest.raises(jaxtyping.TypeCheckError):
        Draw(0, "digits", ids[None], ids)
