"""A lasting change of pace is found once; spikes and noise are none."""

from __future__ import annotations

import numpy as np

from headway.train.pace import MOST, Pace


def heard(walls: list[float], steps: int = 10) -> list[int]:
    pace = Pace()
    return [i for i, wall in enumerate(walls) if pace.slower(wall, steps)]


def test_noise_and_spikes_are_no_change() -> None:
    rng = np.random.default_rng(0)
    walls = (100 + 5 * rng.standard_normal(500)).tolist()
    walls[100] = walls[200] = walls[350] = 400.0
    assert heard(walls) == []


def test_a_lasting_change_is_heard_at_its_second_period_and_once() -> None:
    assert heard([100.0, 101.0] * 10 + [150.0] * 40) == [21]


def test_short_periods_wait_for_enough_steps() -> None:
    assert heard([100.0, 101.0] * 10 + [150.0] * 40, steps=1) == [27]


def test_a_run_that_goes_from_bad_to_worse_is_traced_a_few_times() -> None:
    walls = [100.0 * 2**k for k in range(12) for _ in range(10)]
    assert len(heard(walls)) == MOST
