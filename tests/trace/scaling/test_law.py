from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from headway.trace.scaling import law as law_room
from headway.trace.scaling.law import Kind, features, fit, names_of

KINDS = st.sampled_from(("weak", "strong"))
TIMES = st.lists(st.floats(0.1, 10), min_size=3, max_size=9)


@given(KINDS, TIMES)
def test_the_best_subset_is_the_non_negative_least_squares_of_all_it_may_hold(kind: Kind, times: list[float]) -> None:
    n = 8.0 * 2 ** np.arange(len(times))
    x = features(kind, n) / np.array(times)[:, None]
    models = law_room._models(kind, len(times))
    _, rss = law_room._solve(x, np.ones((len(times), 1)), models)
    largest = [m for m in models if len(m) == max(map(len, models))]
    best = min(nnls(x[:, m], np.ones(len(times)))[1] ** 2 for m in largest)
    inside = rss[np.isfinite(rss)].min()
    assert inside >= best - 1e-9
    assert inside == pytest.approx(best, rel=1e-6, abs=1e-9) or inside > best  # every model here has the first term; nnls may leave it out
    first = [nnls(x[:, m], np.ones(len(times))) for m in largest]
    if all(c[0] > 0 for c, _ in first):
        assert inside == pytest.approx(best, rel=1e-6, abs=1e-9)


@given(KINDS, TIMES)
def test_no_term_is_negative_and_parts_add_up(kind: Kind, times: list[float]) -> None:
    n = (8.0 * 2 ** np.arange(len(times))).tolist()
    law = fit(kind, n, times)
    assert law is not None and (law.coefficients >= 0).all()
    assert sum(law.parts(n[-1]).values()) == pytest.approx(law.at([n[-1]])[0])
    assert sum(law.support[t] for t in ("compute",)) == pytest.approx(1)
    low, high = law.interval(2 * n[-1])
    inner = law.interval(2 * n[-1], noisy=False)
    assert 0 < low <= high and inner[1] - inner[0] <= high - low


@pytest.mark.parametrize("kind", ["weak", "strong"])
@pytest.mark.parametrize("cost", [None, "bandwidth", "tree", "ring", "skew"])
def test_a_law_without_noise_is_found(kind: Kind, cost: str | None) -> None:
    n = [8.0 * 2**i for i in range(7)]
    x = features(kind, n)
    share = np.zeros(len(names_of(kind)))
    share[0] = 1.0
    if cost:
        share[names_of(kind).index(cost)] = 0.3
    y = x @ (share / x[-1])
    law = fit(kind, n[:-1], y[:-1].tolist(), noise=1e-5)
    assert law is not None and law.residual < 1e-4
    assert law.at([n[-1]])[0] == pytest.approx(y[-1], rel=2e-3)


def test_two_sizes_are_no_law() -> None:
    assert fit("weak", [8, 16], [1.0, 1.1]) is None


def test_a_perfect_fit_of_three_points_is_no_proof() -> None:
    law = fit("weak", [8, 16, 32], [1.0, 1.0, 1.0])
    assert law is not None
    low, high = law.interval(64)
    assert high - low > 0.02, "three equal times do not make the noise of a step vanish"


def test_it_is_the_same_each_time() -> None:
    a, b = (fit("weak", [8, 16, 32, 64], [1.0, 1.02, 1.05, 1.12]) for _ in range(2))
    assert a is not None and b is not None and a.interval(128) == b.interval(128)
