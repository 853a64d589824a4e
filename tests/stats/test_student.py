from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from headway.stats.student import incomplete_beta, t_critical, t_tail

dofs = st.floats(0.5, 1e7)


@given(st.floats(1e-12, 0.5), dofs)
def test_critical_value_equals_scipy(tail: float, dof: float) -> None:
    assert t_critical(tail, dof) == pytest.approx(stats.t.isf(tail, dof), rel=1e-8, abs=1e-12)


@given(st.floats(-60, 60), dofs)
def test_tail_equals_scipy(t: float, dof: float) -> None:
    assert t_tail(t, dof) == pytest.approx(stats.t.sf(t, dof), rel=1e-7, abs=1e-300)


@given(st.floats(0.05, 500), st.floats(0.05, 500), st.floats(0, 1))
def test_incomplete_beta_equals_scipy(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-9, abs=1e-15)


@given(st.floats(1e-6, 1 - 1e-6), dofs)
def test_critical_value_inverts_the_tail(tail: float, dof: float) -> None:
    assert t_tail(t_critical(tail, dof), dof) == pytest.approx(tail, rel=1e-7)


def test_known_values() -> None:
    assert t_critical(0.025, 1) == pytest.approx(math.tan(0.475 * math.pi), rel=1e-12)  # Cauchy
    assert t_critical(0.25, 2) == pytest.approx(math.sqrt(2 / 3), rel=1e-12)  # closed form for v = 2
    assert t_critical(0.5, 7) == 0.0


@pytest.mark.parametrize(("tail", "dof"), [(0.0, 3), (1.0, 3), (math.nan, 3), (0.1, 0), (0.1, -1), (0.1, math.nan)])
def test_refuses_what_has_no_answer(tail: float, dof: float) -> None:
    with pytest.raises(ValueError, match=r"probability|degrees of freedom"):
        t_critical(tail, dof)
