"""What is said of a whole run beside its numbers."""

from __future__ import annotations

from headway.trace import health


def test_a_profiler_that_slows_the_steps_is_said() -> None:
    spread = {"p10": 1, "p90": 1, "min": 1, "max": 1}
    summary = {"num_steps": 9, "num_profiled": 3, "step_ns": {"median": 100, **spread}, "profiled_step_ns": {"median": 180, **spread}}
    (note,) = health.of_steps(summary)
    assert "1.8 times" in note.text
    assert not health.of_steps({**summary, "profiled_step_ns": {"median": 110, **spread}})
    assert not health.of_steps({**summary, "num_profiled": 9}), "without other steps there is nothing to compare with"
    assert not health.of_steps({**summary, "step_ns": None})
