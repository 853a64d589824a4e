from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from headway.stats.tests import TestResult, holm, paired_t, sign_flip, wilcoxon

distinct = st.lists(st.integers(-(10**6), 10**6).filter(bool), min_size=2, max_size=30, unique_by=abs)


@given(distinct)
def test_paired_t_equals_scipy(d: list[int]) -> None:
    want = stats.ttest_1samp(d, 0.0)
    assert paired_t(d).p == pytest.approx(want.pvalue, rel=1e-8)
    assert paired_t(d).statistic == pytest.approx(want.statistic, rel=1e-9)


@given(distinct)
def test_wilcoxon_equals_scipy(d: list[int]) -> None:
    assert wilcoxon(d).p == pytest.approx(stats.wilcoxon(d, method="exact").pvalue, rel=1e-9)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_wilcoxon_with_ties_and_zeros_equals_enumeration(d: list[int]) -> None:
    """All sign patterns of the ranks, zeros ranked and then left out (Pratt)."""
    x = np.array(d, dtype=float)
    ranks = stats.rankdata(np.abs(x))[x != 0]
    away = abs(ranks[x[x != 0] > 0].sum() - ranks.sum() / 2)
    bits = (np.arange(1 << len(ranks))[:, None] >> np.arange(len(ranks))) & 1
    want = (np.abs(bits @ ranks - ranks.sum() / 2) >= away - 1e-9).mean()
    assert wilcoxon(d).p == pytest.approx(want)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8))
def test_sign_flip_equals_enumeration(d: list[float]) -> None:
    x = np.array(d)
    bits = 1 - 2 * ((np.arange(1 << len(x))[:, None] >> np.arange(len(x))) & 1)
    want = (np.abs(bits @ x) >= abs(x.sum()) - 1e-12 * np.abs(x).sum()).mean()
    assert sign_flip(d).p == pytest.approx(want)


def test_sampled_sign_flips_agree_with_all_of_them() -> None:
    x = np.random.default_rng(5).normal(0.4, 1, 16)
    many = sign_flip(np.concatenate([x, [0.0]]), resamples=40_000)  # a zero more: 17 differences are sampled
    assert many.method == "sign flips, sampled"
    assert many.p == pytest.approx(sign_flip(x).p, abs=0.01)


def test_large_wilcoxon_joins_the_exact_one() -> None:
    x = np.random.default_rng(5).normal(0.1, 1, 201)
    assert wilcoxon(x).method == "wilcoxon, normal"
    assert wilcoxon(x).p == pytest.approx(wilcoxon(x[:200]).p, rel=0.35)
    assert wilcoxon(x).p == pytest.approx(stats.wilcoxon(x, method="asymptotic").pvalue, rel=1e-6)


@pytest.mark.parametrize("test", [paired_t, sign_flip, wilcoxon])
def test_no_effect_is_found_at_the_rate_it_should_be(test: Callable[..., TestResult]) -> None:
    """Under no effect P(p <= 0.05) is at most 0.05; with an effect of one sigma it is found nearly always."""
    rng = np.random.default_rng(11)
    null = np.mean([test(rng.normal(0, 1, 12)).p <= 0.05 for _ in range(1000)])
    power = np.mean([test(rng.normal(1.2, 1, 12)).p <= 0.05 for _ in range(200)])
    assert 0.02 <= null <= 0.05 + 3.5 * (0.05 * 0.95 / 1000) ** 0.5
    assert power > 0.85


@pytest.mark.parametrize("test", [paired_t, sign_flip, wilcoxon])
def test_nothing_differs(test: Callable[..., TestResult]) -> None:
    assert test([0.0] * 5).p == 1.0


def test_the_same_difference_every_time() -> None:
    assert paired_t([2.0, 2.0, 2.0]).p == 0.0
    assert sign_flip([2.0, 2.0, 2.0]).p == pytest.approx(0.25)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_the_closed_test_of_bonferroni(p: list[float]) -> None:
    """A question's corrected p is the largest Bonferroni p of all sets of questions that hold it (Marcus, Peritz and Gabriel 1976)."""
    got = holm(p)
    for i, own in enumerate(p):
        others = sorted(p[:i] + p[i + 1 :], reverse=True)  # the set of each size with the largest minimum has the largest others
        want = max(min(1.0, (k + 1) * min([own, *others[:k]])) for k in range(len(p)))
        assert got[i] == pytest.approx(want)


def test_holm_of_equal_questions_is_bonferroni() -> None:
    assert holm([0.01] * 4) == pytest.approx([0.04] * 4)
    assert holm([]) == []
    rng = np.random.default_rng(0)
    false = np.mean([min(holm(rng.uniform(size=20))) < 0.05 for _ in range(2000)])
    assert 0.03 < false < 0.065
