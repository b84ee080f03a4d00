"""Correlations over families of models."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr
from scipy.stats import t as student

from rightreasons.errors import DataError, SettingError
from rightreasons.stats import sweeps


def test_spearman_equals_scipy_with_ties_and_over_columns() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, 40).astype(float), rng.integers(0, 5, (40, 3)).astype(float)
    found = sweeps.spearman(x, y)
    for k in range(3):
        assert found[k] == pytest.approx(spearmanr(x, y[:, k]).statistic)
        assert sweeps.spearman_p(found[k], 40) == pytest.approx(spearmanr(x, y[:, k]).pvalue)


def test_a_model_without_a_value_leaves_its_column_only() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=20), rng.normal(size=(20, 2))
    y[3, 1] = np.nan
    rest = np.arange(20) != 3
    found = sweeps.spearman(x, y)
    assert found[0] == pytest.approx(spearmanr(x, y[:, 0]).statistic)
    assert found[1] == pytest.approx(spearmanr(x[rest], y[rest, 1]).statistic)
    assert math.isnan(sweeps.spearman(x, np.ones(20)))
    assert math.isnan(sweeps.spearman(x[:2], y[:2, 0]))


def test_the_permutation_p_counts_what_is_at_least_as_far_from_zero() -> None:
    rng = np.random.default_rng(2)
    e, d, null = rng.normal(size=15), rng.normal(size=15), rng.normal(size=(15, 99))
    found = sweeps.permutation_test(e, d, null)
    reached = sum(abs(spearmanr(e, null[:, b]).statistic) >= abs(found.rho) - 1e-12 for b in range(99))
    assert found.p == pytest.approx((1 + reached) / 100)
    assert found.n == 15


def test_what_is_the_same_for_all_models_has_no_correlation_and_says_so() -> None:
    found = sweeps.permutation_test(np.ones(8), np.arange(8.0), np.zeros((8, 19)))
    assert math.isnan(found.p)
    assert "the same for all models" in found.reason
    assert "2 models" in sweeps.permutation_test([1, 2], [1, 2], np.zeros((2, 19))).reason


def test_models_that_share_their_noise_fool_spearmans_p_and_not_the_exchange() -> None:
    """All models err alike on the same rows: disparity follows encoding in a random direction, and Spearman's p believes it."""
    usual = own = 0
    for world in range(60):
        rng = np.random.default_rng(world)
        strength = np.linspace(0, 1, 40)
        draws = rng.normal(size=200)
        disparity = strength * draws[0] + 0.2 * rng.normal(size=40)
        null = strength[:, None] * draws[1:] + 0.2 * rng.normal(size=(40, 199))
        found = sweeps.permutation_test(strength, disparity, null)
        usual += found.usual_p < 0.05
        own += found.p < 0.05
    assert usual > 30
    assert own < 10


def test_partial_spearman_takes_out_the_third() -> None:
    rng = np.random.default_rng(3)
    given = rng.normal(size=300)
    x, y = given + 0.3 * rng.normal(size=300), given + 0.3 * rng.normal(size=300)
    assert sweeps.spearman(x, y) > 0.8
    assert abs(sweeps.partial_spearman(x, y, given)) < 0.2
    r = [rankdata(v) - 150.5 for v in (x, y, given)]
    left = [v - (v @ r[2]) / (r[2] @ r[2]) * r[2] for v in r[:2]]
    expected = left[0] @ left[1] / np.sqrt((left[0] @ left[0]) * (left[1] @ left[1]))
    assert sweeps.partial_spearman(x, y, given) == pytest.approx(expected)


def test_the_bootstrap_holds_the_value_and_widens_with_noise() -> None:
    rng = np.random.default_rng(4)
    e, d = np.arange(30.0), np.arange(30.0) + rng.normal(0, 8, 30)
    value = float(sweeps.spearman(e, d))
    low, high, width = math.inf, -math.inf, []
    for noise in (0.1, 20.0):
        found = sweeps.bootstrap(np.repeat(e[:, None], 400, axis=1), d[:, None] + rng.normal(0, noise, (30, 400)), rng=rng)
        limits = np.quantile(found, [0.025, 0.975])
        width.append(np.ptp(limits))
        low, high = min(low, limits[0]), max(high, limits[1])
    assert width[1] > width[0]
    assert low < value < high
    assert np.isnan(sweeps.bootstrap(np.zeros((2, 5)), np.zeros((2, 5)), rng=rng)).all()


def of_seeds(e: np.ndarray, d: np.ndarray, seeds: int, draws: np.ndarray | None = None) -> sweeps.Family:
    names = tuple(str(k) for k in np.repeat(np.arange(seeds), len(e) // seeds))
    return sweeps.Family(e, d, names, np.zeros(0) if draws is None else draws)


def test_two_families_differ_where_they_do() -> None:
    rng = np.random.default_rng(5)
    e = rng.normal(size=60)
    follows, not_ = e + 0.5 * rng.normal(size=60), rng.normal(size=60)
    found = sweeps.difference(of_seeds(e, follows, 5), of_seeds(e + 5, not_ + 3, 5))
    assert found.p < 0.01
    assert found.value == pytest.approx(spearmanr(e, follows).statistic - spearmanr(e, not_).statistic)
    assert found.low < found.value < found.high
    same = sweeps.difference(of_seeds(e, follows, 5), of_seeds(e + 5, follows + 3, 5))
    assert same.p > 0.5
    assert sweeps.exchange_p((e, follows), (e, not_), rng=rng, P=999, ranked=False) < 0.01


def test_the_error_of_a_difference_equals_a_literal_jackknife() -> None:
    rng = np.random.default_rng(6)
    e, seeds = rng.normal(size=40), np.repeat(np.arange(4), 10)
    d = [e + rng.normal(size=4)[seeds] * 2 + rng.normal(size=40) for _ in range(2)]
    draws = [rng.normal(0, 0.1, 50) for _ in range(2)]
    squared = []
    for values in d:
        left = np.array([spearmanr(e[seeds != k], values[seeds != k]).statistic for k in range(4)])
        independent = (1 - spearmanr(e, values).statistic ** 2) ** 2 / 39
        squared.append(max(3 / 4 * ((left - left.mean()) ** 2).sum(), independent))
    for same_rows, rows in ((True, np.var(draws[0] - draws[1])), (False, np.var(draws[0]) + np.var(draws[1]))):
        found = sweeps.difference(*(of_seeds(e, v, 4, w) for v, w in zip(d, draws, strict=True)), same_rows=same_rows)
        total = sum(squared) + rows
        df = total**2 / sum(s**2 / 3 for s in squared)
        assert found.p == pytest.approx(2 * student.sf(abs(found.value) / math.sqrt(total), df))


def test_one_replicate_gives_no_p_and_says_so() -> None:
    rng = np.random.default_rng(7)
    e, d = rng.normal(size=(2, 12))
    found = sweeps.difference(of_seeds(e, d, 1), of_seeds(e, d, 3))
    assert math.isnan(found.p)
    assert "at least two seeds" in found.reason


@pytest.mark.parametrize(("models", "seeds"), [(10, 2), (40, 5), (120, 5)])
def test_families_whose_seeds_go_their_own_way_are_rarely_called_different(models: int, seeds: int) -> None:
    """Models of a seed share what no scale changes: exchanging models calls such pairs different, replicates do not."""
    called = exchanged = 0
    for world in range(100):
        rng = np.random.default_rng(world)
        pair = []
        for _ in range(2):
            e = np.tile(np.linspace(-1, 1, models // seeds), seeds)
            slope = np.repeat(0.3 + rng.normal(size=seeds), models // seeds)
            pair.append((e, slope * e + 0.3 * rng.normal(size=models)))
        called += sweeps.difference(*(of_seeds(e, d, seeds) for e, d in pair)).p < 0.05
        exchanged += sweeps.exchange_p(*pair, rng=rng, P=99) < 0.05
    assert called <= 9
    assert exchanged > called


def test_the_smallest_visible_correlation_is_called_in_four_families_of_five() -> None:
    rng = np.random.default_rng(8)
    e, noise, called = np.linspace(-1, 1, 60), 1.0, 0
    null = sweeps.permutation_test(e, rng.normal(size=60), rng.normal(size=(60, 499))).null
    visible = sweeps.smallest_visible(null)
    slope = noise * math.sqrt(3) * visible / math.sqrt(1 - visible**2)  # e is uniform, its standard deviation 1 / sqrt(3)
    for _ in range(200):
        d = slope * e + noise * rng.normal(size=60)
        called += sweeps.permutation_test(e, d, rng.normal(size=(60, 199))).p < 0.05
    assert 0.7 < called / 200 < 0.92
    assert math.isnan(sweeps.smallest_visible(np.full(5, np.nan)))


def test_the_front_has_what_nothing_beats() -> None:
    auc, unfair = [0.9, 0.8, 0.85, 0.7, np.nan], [0.3, 0.1, 0.4, 0.2, 0.0]
    assert sweeps.pareto_front(auc, unfair).tolist() == [True, True, False, False, False]


def test_floors_and_odd_input() -> None:
    e, d, auc = np.arange(10.0), np.arange(10.0), np.linspace(0.5, 0.9, 10)
    rho, n = sweeps.over_floors(e, d, auc, [0.0, 0.7, 0.89])
    assert rho[:2].tolist() == pytest.approx([1.0, 1.0])
    assert math.isnan(rho[2])
    assert n.tolist() == [10, 5, 1]
    with pytest.raises(DataError, match="expected"):
        sweeps.spearman(e, d[:3])
    with pytest.raises(SettingError, match="at least 3"):
        sweeps.difference(of_seeds(e[:2], d[:2], 2), of_seeds(e, d, 2))
    with pytest.raises(SettingError, match="at least 3"):
        sweeps.exchange_p((e[:2], d[:2]), (e, d), rng=np.random.default_rng(0))
