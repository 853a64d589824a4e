"""The generated set: small, through the pool, every sum right, and memory that is seen."""

from __future__ import annotations

import pytest

from headway.bench import fleet


@pytest.mark.alone
def test_a_small_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "KERNELS", 400)
    monkeypatch.setattr(fleet, "BUSY_US", 400 * fleet.KERNEL_US + 900)
    result = fleet.measure(0.01, workers=2)
    assert result["files"] > 2 and result["ranks_with_a_wrong_sum"] == 0
    assert fleet.measure(0.005, workers=1)["ranks_with_a_wrong_sum"] == 0
