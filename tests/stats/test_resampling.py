"""Bootstrap counts, intervals, p-values, corrections and the permutation of an attribute within label."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, chisquare, false_discovery_control
from sklearn.metrics import roc_auc_score

from rightreasons.errors import DataError, SettingError
from rightreasons.stats import resampling as rs


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_every_resample_has_as_many_draws_as_rows() -> None:
    counts = rs.resamples(37, rng=rng(), B=500).counts()
    assert counts.shape == (500, 37)
    assert (counts.sum(axis=1) == 37).all()


def test_counts_follow_the_multinomial_law() -> None:
    counts = rs.resamples(50, rng=rng(), B=20_000).counts()
    assert chisquare(counts.sum(axis=0)).pvalue > 0.001
    copies = np.bincount(counts.ravel(), minlength=9)[:9]
    expected = binom.pmf(np.arange(9), 50, 1 / 50)
    assert (np.abs(copies / copies.sum() - expected) <= 5 * np.sqrt(expected / 1e6) + 1e-5).all()
    covariance = np.cov(counts[:, :2].T.astype(float))
    np.testing.assert_allclose(covariance, [[0.98, -0.02], [-0.02, 0.98]], atol=0.04)


def test_a_resample_depends_neither_on_blocks_nor_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = rs.resamples(300, rng=rng(), B=1000)
    values = rng(1).normal(size=300)
    whole = rs.sums(draws.counts(), values)
    monkeypatch.setattr(rs, "BLOCK_BYTES", 0)
    for fewest, threads in ((1000, 1), (7, 1), (7, 4), (64, 2)):
        monkeypatch.setattr(rs, "FEWEST_IN_BLOCK", fewest)
        np.testing.assert_array_equal(draws.apply(lambda counts: rs.sums(counts, values), threads), whole)
    np.testing.assert_array_equal(draws.counts(10, 20), draws.counts()[10:20])


def test_rows_of_a_subject_travel_together() -> None:
    subject = np.array(["b", "a", "b", "", "c", "a", ""])
    draws = rs.resamples(7, rng=rng(), B=200, subject=subject)
    counts = draws.counts()
    assert draws.units == 5  # a, b, c and two rows without a subject
    np.testing.assert_array_equal(counts[:, 0], counts[:, 2])
    np.testing.assert_array_equal(counts[:, 1], counts[:, 5])
    assert (counts[:, [0, 1, 3, 4, 6]].sum(axis=1) == 5).all()
    assert (counts[:, 3] != counts[:, 6]).any()


def test_a_single_row_is_always_drawn() -> None:
    assert (rs.resamples(1, rng=rng(), B=9).counts() == 1).all()


def test_a_task_has_one_generator_whoever_asks() -> None:
    assert rs.task_rng(3, "groups test").random() == rs.task_rng(3, "groups test").random()
    assert rs.task_rng(3, "groups test").random() != rs.task_rng(3, "probes test").random()
    assert rs.task_rng(3, "groups test").random() != rs.task_rng(4, "groups test").random()


@pytest.mark.parametrize("decimals", [0, 1, 12])
def test_auc_of_a_resample_equals_scikit_learn_on_the_repeated_rows(decimals: int) -> None:
    g = rng(2)
    y = g.integers(0, 2, 60)
    score = np.round(g.normal(size=60) + y, decimals)
    counts = rs.resamples(60, rng=g, B=25).counts()
    rows = [np.repeat(np.arange(60), row) for row in counts]
    expected = [roc_auc_score(y[r], score[r]) for r in rows]
    np.testing.assert_allclose(rs.auc_draws(y, score, counts), expected, atol=1e-14)


def test_auc_is_undefined_where_a_class_is_missing() -> None:
    counts = np.array([[2, 0, 0], [1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(rs.auc_draws([0, 1, 1], [0.0, 1.0, 2.0], counts), [np.nan, 1.0, np.nan])


def test_concordance_equals_a_count_of_pairs() -> None:
    g = rng(3)
    target, score = np.round(g.normal(size=40), 1), np.round(g.normal(size=40), 1)
    counts = rs.resamples(40, rng=g, B=10).counts()

    def literal(rows: np.ndarray) -> float:
        t, s = target[rows], score[rows]
        above = t[:, None] > t[None, :]
        return float(((s[:, None] > s[None, :]) + 0.5 * (s[:, None] == s[None, :]))[above].sum() / above.sum())

    expected = [literal(np.repeat(np.arange(40), row)) for row in counts]
    np.testing.assert_allclose(rs.concordance_draws(target, score, counts), expected, atol=1e-14)
    assert np.isnan(rs.concordance_draws(np.ones(5), np.arange(5.0), rs.whole(5))[0])


def test_concordance_with_two_values_is_the_auc() -> None:
    g = rng(4)
    y, score = g.integers(0, 2, 80), np.round(g.normal(size=80), 1)
    assert rs.concordance_draws(y, score, rs.whole(80))[0] == pytest.approx(roc_auc_score(y, score), abs=1e-14)


def test_sums_and_tally_equal_the_matrix_product() -> None:
    g = rng(5)
    counts, matrix, code = g.integers(0, 9, (6, 30)), g.normal(size=(30, 4)), g.integers(-1, 3, 30)
    np.testing.assert_allclose(rs.sums(counts, matrix), counts @ matrix, atol=1e-12)
    one_hot = np.eye(4)[code][:, :3]
    np.testing.assert_array_equal(rs.tally(counts, code, 3), counts @ one_hot)
    np.testing.assert_allclose(rs.tally(counts, code, 3, matrix[:, 0]), counts @ (one_hot * matrix[:, :1]), atol=1e-12)


def test_the_interval_of_a_mean_covers_it_as_often_as_it_says() -> None:
    g = rng(6)
    covered = 0
    for _ in range(300):
        x = g.normal(size=60)
        draws = rs.resamples(60, rng=g, B=400).apply(lambda counts, x=x: rs.sums(counts, x) / 60)
        found = rs.interval(x.mean(), draws)
        covered += found.low <= 0 <= found.high
    assert 0.90 <= covered / 300 <= 0.98


def test_undefined_resamples_are_counted_and_many_of_them_leave_no_interval() -> None:
    draws = np.arange(100.0)
    draws[:3] = np.nan
    few = rs.interval(50.0, draws)
    assert (few.undefined, few.draws, few.reason) == (3, 100, "")
    assert few.low == pytest.approx(np.quantile(draws[3:], 0.025))
    draws[:10] = np.nan
    many = rs.interval(50.0, draws)
    assert np.isnan(many.low)
    assert np.isnan(many.high)
    assert "10 of 100" in many.reason
    assert rs.interval(np.nan, draws, reason="one class").reason == "one class"


def test_p_counts_the_data_among_the_permutations() -> None:
    assert rs.p_value(2.0, [-3.0, 1.0, 2.0, 0.0]) == pytest.approx(3 / 5)
    assert rs.p_value(2.0, [-3.0, 1.0, 2.0, 0.0], "greater") == pytest.approx(2 / 5)
    assert rs.p_value(2.0, [np.nan, 0.0, 0.0]) == pytest.approx(2 / 4)
    assert np.isnan(rs.p_value(np.nan, [1.0]))
    with pytest.raises(SettingError, match="known: two-sided, greater"):
        rs.p_value(1.0, [1.0], "less")


def test_corrections_for_many_tests() -> None:
    p = rng(7).random(20) ** 2
    np.testing.assert_allclose(rs.benjamini_hochberg(p), false_discovery_control(p))
    np.testing.assert_allclose(rs.benjamini_hochberg([0.01, np.nan, 0.04]), [0.02, np.nan, 0.04])


def test_without_subjects_rows_exchange_within_label() -> None:
    g = rng(8)
    y, a = g.integers(0, 3, 200), g.normal(size=200)
    exchange = rs.exchange_within_label(y, a)
    assert (exchange.exchangeable, exchange.reason) == (200, "")
    rows = exchange.permutation(g)
    np.testing.assert_array_equal(np.sort(rows), np.arange(200))
    np.testing.assert_array_equal(y[rows], y)
    assert (rows != np.arange(200)).mean() > 0.9


def test_permutations_of_a_stratum_are_equally_likely() -> None:
    exchange = rs.exchange_within_label(np.zeros(3, int), np.arange(3))
    g = rng(9)
    seen = [tuple(rows) for rows in exchange.permutations(6000, g)]
    _, number = np.unique(seen, axis=0, return_counts=True)
    assert len(number) == 6
    assert chisquare(number).pvalue > 0.001


def test_an_attribute_constant_in_subjects_is_exchanged_by_whole_subjects_of_one_label_pattern() -> None:
    g = rng(10)
    subject = np.repeat(np.arange(60), 3)
    pattern = g.integers(0, 3, 60)  # all 0, all 1, mixed
    y = np.where(pattern[subject] < 2, pattern[subject], np.tile([0, 1, 1], 60))
    sex = g.integers(0, 2, 60)[subject]
    exchange = rs.exchange_within_label(y, sex, subject)
    assert exchange.exchangeable == 60
    for rows in exchange.permutations(20, g):
        new = sex[rows].reshape(60, 3)
        assert (new == new[:, :1]).all()
        np.testing.assert_array_equal(pattern[subject[rows]], pattern[subject])
        np.testing.assert_array_equal(np.sort(subject[rows][::3]), np.arange(60))


def test_an_attribute_that_varies_in_subjects_stays_in_them_and_single_rows_exchange_among_each_other() -> None:
    g = rng(11)
    subject = np.r_[np.repeat(np.arange(30), 6), 30 + np.arange(40)]
    y, a = g.integers(0, 2, 220), g.integers(0, 2, 220)
    exchange = rs.exchange_within_label(y, a, subject)
    alone = subject >= 30
    for rows in exchange.permutations(20, g):
        np.testing.assert_array_equal(np.sort(rows), np.arange(220))
        np.testing.assert_array_equal(y[rows], y)
        np.testing.assert_array_equal(subject[rows][~alone], subject[~alone])
        assert alone[rows[alone]].all()
    assert exchange.reason == ""


def test_few_exchangeable_subjects_are_named() -> None:
    subject = np.repeat(np.arange(15), 4)
    y = (subject % 2).astype(int)
    exchange = rs.exchange_within_label(y, subject % 3 == 0, subject)
    assert exchange.reason == "15 exchangeable subjects, at least 20 needed"
    constant = rs.exchange_within_label(np.zeros(100, int), np.zeros(100, int))
    assert constant.exchangeable == 0


def test_rows_without_label_or_attribute_cannot_be_permuted() -> None:
    with pytest.raises(DataError, match="1 of 3 rows have no attribute"):
        rs.exchange_within_label([0, 1, 1], [0, -1, 1])
    with pytest.raises(DataError, match="2 of 3 rows have no label"):
        rs.exchange_within_label([np.nan, np.nan, 1.0], [0, 1, 1])


def test_wrong_counts_and_sizes_are_refused() -> None:
    with pytest.raises(DataError, match=r"\(B, 3\)"):
        rs.sums(np.ones((2, 4), dtype=int), np.ones(3))
    with pytest.raises(DataError, match="one subject for every row"):
        rs.resamples(3, rng=rng(), subject=["a"])
    with pytest.raises(SettingError, match="at least 1"):
        rs.resamples(0, rng=rng())
    with pytest.raises(DataError, match="NaN"):
        rs.auc_draws([0, 1], [0.0, np.nan], rs.whole(2))
    with pytest.raises(DataError, match="expected"):
        rs.resamples(5, rng=rng(), B=4).apply(lambda counts: np.zeros(3))


def test_a_share_that_never_varies_has_wilsons_interval_and_others_the_bootstraps() -> None:
    from statsmodels.stats.proportion import proportion_confint

    for right, n in ((20, 20), (0, 20), (0, 7)):
        low, high = proportion_confint(right, n, method="wilson")
        found = rs.share_interval(right / n, np.full(100, right / n), n)
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    draws = np.linspace(0.4, 0.6, 101)
    assert rs.share_interval(0.5, draws, 20) == rs.interval(0.5, draws)
