"""Statistics over model units, against slow twins, under the null and with a planted association."""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from rightreasons.errors import DataError, SettingError
from rightreasons.stats import over_models, resampling
from rightreasons.stats.calibration import ece

ARCHITECTURE = np.repeat(["cnn", "resnet", "vit"], 10)
REGIME = np.tile(np.repeat(["erm", "ccr"], 5), 3)
SEED = np.tile(np.arange(5), 6)
CLUSTER = (ARCHITECTURE, REGIME)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def associated(seed: int, n: int = 30, rho: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    return tuple(rng(seed).multivariate_normal([0, 0], [[1, rho], [rho, 1]], n).T)  # type: ignore[return-value]


def clustered(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """No association, but the seeds of an architecture and regime are alike."""
    g = rng(seed)
    code = np.repeat(np.arange(6), 5)
    return g.normal(size=6)[code] + 0.3 * g.normal(size=30), g.normal(size=6)[code] + 0.3 * g.normal(size=30)


# ---- correlation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", over_models.METHODS)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("within", [False, True])
def test_draws_are_what_scipy_says_of_each_resample(method: str, ties: bool, within: bool) -> None:
    x, y = associated(1, 24)
    if ties:
        x, y = np.round(x), np.round(2 * y)
    group = np.repeat(np.arange(3), 8)
    counts = resampling.resamples(24, rng=rng(), B=60).counts()
    found = over_models.correlation_draws(x, y, counts, method, group if within else None)
    for b, row in enumerate(counts):
        drawn = np.repeat(np.arange(24), row)
        a, c, g = x[drawn], y[drawn], group[drawn]
        if within:
            a, c = (v - np.array([v[g == k].mean() for k in g]) for v in (a, c))
            a, c = np.round(a, 9), np.round(c, 9)
        expected = stats.spearmanr(a, c).statistic if method == "spearman" else stats.pearsonr(a, c).statistic
        assert found[b] == pytest.approx(expected, abs=1e-9)


def test_the_value_is_scipys_whatever_the_scale() -> None:
    x, y = associated(2)
    for scale, shift in ((1, 0), (1e-150, 0), (1e200, 0), (1e-3, 1e3)):
        found = over_models.correlation(x * scale + shift, y, rng=rng(), method="pearson", B=10)
        assert found.coefficient.value == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-9)


def test_resamples_of_a_constant_are_undefined_and_counted() -> None:
    counts = np.array([[3, 0, 0], [1, 1, 1], [0, 2, 1]])
    found = over_models.correlation_draws([0.0, 1.0, 2.0], [5.0, 7.0, 7.0], counts, "pearson")
    assert np.isnan(found).tolist() == [True, False, True]
    assert np.isnan(over_models.correlation_draws([0.0, 1.0, 2.0], [5.0, 7.0, 7.0], counts)).tolist() == [True, False, True]


@pytest.mark.parametrize("method", over_models.METHODS)
def test_the_interval_covers_and_p_keeps_its_level(method: str) -> None:
    rho = 0.6
    truth = rho if method == "pearson" else 6 / math.pi * math.asin(rho / 2)
    covered, alarms, seen = [], [], []
    for seed in range(300):
        x, y = associated(seed, rho=rho)
        one = over_models.correlation(x, y, rng=rng(seed), method=method, B=400)
        covered.append(one.coefficient.low <= truth <= one.coefficient.high)
        seen.append(one.p < 0.05)
        alarms.append(over_models.correlation(x, rng(9000 + seed).normal(size=30), rng=rng(seed), method=method, B=400).p <= 0.05)
    assert 0.88 <= np.mean(covered) <= 0.98
    assert np.mean(alarms) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)
    assert np.mean(seen) > 0.9


def test_the_permutation_p_is_exact_with_few_units() -> None:
    x, y = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 3, 5, 4])
    observed = abs(stats.spearmanr(x, y).statistic)
    every = [abs(stats.spearmanr(x, y[list(o)]).statistic) >= observed - 1e-12 for o in itertools.permutations(range(5))]
    assert over_models.correlation(x, y, rng=rng(), B=20_000).p == pytest.approx(np.mean(every), abs=0.01)


def test_clusters_widen_the_interval_and_keep_the_level_where_units_do_not() -> None:
    plain, kept, wider = [], [], []
    for seed in range(200):
        x, y = clustered(seed)
        one = over_models.correlation(x, y, rng=rng(seed), B=300)
        other = over_models.correlation(x, y, rng=rng(seed), B=300, cluster=CLUSTER)
        plain.append(one.p <= 0.05)
        kept.append(other.p <= 0.05)
        wider.append(other.coefficient.high - other.coefficient.low > one.coefficient.high - one.coefficient.low)
    assert other.clusters == 6
    assert np.mean(plain) > 0.25
    assert np.mean(kept) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
    assert np.mean(wider) > 0.7


def test_permuted_clusters_stay_whole_and_keep_their_size() -> None:
    cluster = np.array([0, 1, 1, 0, 2, 3, 3, 4, 5])
    rows = over_models._Exchange(cluster, None, 9).permutations(rng(), 200)
    assert (np.sort(rows, axis=1) == np.arange(9)).all()
    for row in rows:
        for c in range(6):
            donors = set(cluster[row[cluster == c]])
            assert len(donors) == 1
            assert np.sum(cluster == c) == np.sum(cluster == donors.pop())
    assert len({tuple(row) for row in rows}) > 100


def test_permutations_within_groups_do_not_leave_them() -> None:
    group = np.array([2, 0, 1, 0, 1, 1, 2, 0])
    rows = over_models._Exchange(None, group, 8).permutations(rng(), 100)
    assert (group[rows] == group).all()
    np.testing.assert_allclose(np.mean(rows == np.arange(8), axis=0), [1 / 2, *[1 / 3] * 5, 1 / 2, 1 / 3], atol=0.2)


def test_centring_within_architecture_turns_a_reversed_association() -> None:
    """Simpson: architectures with larger x have larger y, and inside each the relation is negative."""
    offset = np.repeat([0.0, 5.0, 10.0], 10)
    inside = rng().normal(size=30)
    x, y = offset + inside, offset - inside + 0.1 * rng(1).normal(size=30)
    assert over_models.correlation(x, y, rng=rng(), B=200).coefficient.low > 0
    centred = over_models.correlation(x, y, rng=rng(), B=200, within=ARCHITECTURE)
    assert centred.coefficient.high < 0
    assert centred.p < 0.01
    assert centred.within


def test_p_of_several_tests_are_adjusted_together() -> None:
    x, y = associated(3)
    noise = rng(4).normal(size=(4, 30))
    tests = {"planted": (x, y), **{f"noise {k}": (x, n) for k, n in enumerate(noise)}}
    found = over_models.correlations(tests, rng=rng(), B=999)
    expected = stats.false_discovery_control([one.p for one in found.values()])
    np.testing.assert_allclose([one.p_adjusted for one in found.values()], expected)
    alone = over_models.correlation(x, y, rng=rng(), B=999)
    assert asdict(alone.coefficient) == asdict(found["planted"].coefficient)
    assert alone.p_adjusted == alone.p == found["planted"].p


def test_undefined_correlations_say_why() -> None:
    x, y = associated(5)
    few = over_models.correlation(x[:2], y[:2], rng=rng())
    assert math.isnan(few.coefficient.value) and math.isnan(few.p)
    assert few.coefficient.reason == few.p_reason == "2 units, at least 3 needed"
    assert over_models.correlation(np.full(30, 0.1 + 0.2), y, rng=rng(), B=10).coefficient.reason == "all x are equal"
    assert over_models.correlation(x, np.ones(30), rng=rng(), method="pearson", B=10).coefficient.reason == "all y are equal"
    of_groups = np.repeat([0.1, 0.7, 0.3], 10)
    assert "within groups" in over_models.correlation(of_groups, y, rng=rng(), B=10, within=ARCHITECTURE).coefficient.reason
    y[3], x[4] = np.nan, np.inf
    assert (over_models.correlation(x, y, rng=rng(), B=10).n, over_models.correlation(x, y, rng=rng(), B=10).left_out) == (28, 2)


def test_too_few_clusters_have_no_interval_and_no_p() -> None:
    x, y = associated(6)
    found = over_models.correlation(x, y, rng=rng(), B=50, cluster=ARCHITECTURE)
    assert not math.isnan(found.coefficient.value)
    assert math.isnan(found.coefficient.low) and "3 clusters" in found.coefficient.reason
    assert math.isnan(found.p) and "fewer than 20 ways" in found.p_reason


def test_wrong_inputs_are_refused() -> None:
    x, y = associated(7)
    with pytest.raises(SettingError, match="known: spearman, pearson"):
        over_models.correlation(x, y, rng=rng(), method="kendall")
    with pytest.raises(DataError, match="one value per unit"):
        over_models.correlation(x, y[:-1], rng=rng())
    with pytest.raises(DataError, match="for 30 units"):
        over_models.correlation(x, y, rng=rng(), cluster=ARCHITECTURE[:-1])
    with pytest.raises(SettingError, match="B must be"):
        over_models.correlation(x, y, rng=rng(), B=0)


# ---- inside against outside ----------------------------------------------------------------------------------------------


def predictions(seed: int, n: int, skill: tuple[float, ...]) -> over_models.Predictions:
    g = rng(seed)
    label = np.arange(n) % 2
    logit = np.stack([g.normal(size=n) + s * (2 * label - 1) for s in skill])
    p = 1 / (1 + np.exp(-logit))
    return over_models.Predictions(label, np.stack([1 - p, p], axis=-1))


def test_degradation_is_the_coupled_bootstrap_taken_literally() -> None:
    inside, outside = predictions(0, 60, (1.0, 0.5)), predictions(1, 50, (0.2, 0.5))
    for metric, sign in (("auc", 1), ("ece", -1)):
        found = over_models.degradation(inside, outside, rng=rng(5), metric=metric, B=40)
        same = rng(5)
        rows = [resampling.resamples(n, rng=same, B=40).counts() for n in (60, 50)]
        for u, b in itertools.product(range(2), range(40)):
            values = []
            for data, counts in zip((inside, outside), rows, strict=True):
                drawn = np.repeat(np.arange(len(counts[b])), counts[b])
                values.append(literal(metric, np.asarray(data.label)[drawn], np.asarray(data.probability)[u][drawn]))
            assert found.draws[b, u] == pytest.approx(sign * (values[0] - values[1]), abs=1e-12)
        np.testing.assert_allclose([c.low for c in found.change], np.quantile(found.draws, 0.025, axis=0), atol=1e-12)


def literal(metric: str, label: np.ndarray, p: np.ndarray) -> float:
    if metric == "ece":
        return ece(p, label)
    pairs = [(a > b) + (a == b) / 2 for a in p[label == 1, 1] for b in p[label == 0, 1]]
    return float(np.mean(pairs))


def test_degradation_finds_what_was_planted_and_nothing_else() -> None:
    found = over_models.degradation(predictions(0, 400, (1.0, 0.5)), predictions(1, 400, (0.2, 0.5)), rng=rng(), B=999)
    assert found.change[0].low > 0.1
    assert found.change[1].low < 0 < found.change[1].high
    assert found.p[0] == pytest.approx(0.002) and found.p[1] > 0.05
    assert found.p_adjusted[0] == pytest.approx(0.004)


def test_p_of_no_degradation_keeps_its_level() -> None:
    alarms = []
    for s in range(200):
        inside, outside = predictions(2 * s, 150, (0.7,)), predictions(2 * s + 1, 150, (0.7,))
        alarms.append(over_models.degradation(inside, outside, rng=rng(s), B=300).p[0] <= 0.05)
    assert np.mean(alarms) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_draws_that_are_there_need_no_predictions() -> None:
    inside, outside = rng(0).normal(0.9, 0.01, size=(500, 3)), rng(1).normal(0.8, 0.01, size=(500, 3))
    found = over_models.coupled(inside, outside, [0.9] * 3, [0.8] * 3)
    np.testing.assert_array_equal(found.draws, inside - outside)
    assert found.change[1].value == pytest.approx(0.1)
    single = over_models.coupled(inside[:, 0], outside[:, 0], 0.9, 0.8, larger_is_better=False)
    assert single.change[0].value == pytest.approx(-0.1) and single.draws.shape == (500, 1)
    with pytest.raises(DataError, match="one shape"):
        over_models.coupled(inside, outside[:-1], [0.9] * 3, [0.8] * 3)
    with pytest.raises(DataError, match="one value per unit"):
        over_models.coupled(inside, outside, 0.9, 0.8)


def test_a_missing_class_outside_is_undefined_with_its_reason() -> None:
    outside = predictions(1, 50, (0.5,))
    one_class = over_models.Predictions(np.zeros(50, dtype=int), outside.probability)
    found = over_models.degradation(predictions(0, 50, (0.5,)), one_class, rng=rng(), B=50)
    assert math.isnan(found.change[0].value) and found.change[0].reason == "a class is missing inside or outside"
    assert np.isnan(found.p).all()
    with pytest.raises(SettingError, match="known: auc"):
        over_models.degradation(outside, outside, rng=rng(), metric="f1")


# ---- regression ----------------------------------------------------------------------------------------------------------


def test_a_line_is_the_textbooks() -> None:
    x, y = associated(8)
    found = over_models.regression(x, y)
    expected = stats.linregress(x, y)
    half = stats.t.ppf(0.975, 28) * expected.stderr
    assert found.slope.value == pytest.approx(expected.slope)
    assert (found.slope.low, found.slope.high) == pytest.approx((expected.slope - half, expected.slope + half))
    assert found.intercept.value == pytest.approx(expected.intercept)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.r2 == pytest.approx(expected.rvalue**2)


def test_diagnostics_are_their_definitions() -> None:
    x, y = associated(9)
    found = over_models.regression(x, y)
    design = np.column_stack([np.ones(30), x])
    hat = design @ np.linalg.inv(design.T @ design) @ design.T
    residual = y - hat @ y
    np.testing.assert_allclose(found.leverage, np.diag(hat))
    beta = np.linalg.lstsq(design, y, rcond=None)[0]
    for i in (0, 7, 29):  # Cook: how far all fitted values move when one unit leaves
        left = np.delete(np.arange(30), i)
        moved = design @ (beta - np.linalg.lstsq(design[left], y[left], rcond=None)[0])
        assert found.cook[i] == pytest.approx(moved @ moved / (2 * (residual @ residual) / 28))
    squares = residual**2
    explained = 1 - np.sum((squares - hat @ squares) ** 2) / np.sum((squares - squares.mean()) ** 2)
    assert found.equal_variance_p == pytest.approx(stats.chi2.sf(30 * explained, 1))
    assert found.normal_p == pytest.approx(stats.shapiro(residual).pvalue)
    skew, kurtosis = stats.skew(residual), stats.kurtosis(residual)
    assert found.jarque_bera_p == pytest.approx(stats.chi2.sf(30 / 6 * (skew**2 + kurtosis**2 / 4), 2))
    bread = np.linalg.inv(design.T @ design)
    meat = design.T @ np.diag((residual / (1 - np.diag(hat))) ** 2) @ design
    half = stats.t.ppf(0.975, 28) * math.sqrt((bread @ meat @ bread)[1, 1])
    assert found.slope_robust.high - found.slope.value == pytest.approx(half)


def test_diagnostics_see_what_was_planted() -> None:
    x = np.linspace(0, 1, 60)
    noise = rng(0).normal(size=60)
    assert over_models.regression(x, x + 0.1 * noise).equal_variance_p > 0.01
    assert over_models.regression(x, x + 0.05 * noise * (1 + 20 * x)).equal_variance_p < 0.01
    assert over_models.regression(x, x + np.exp(1.5 * noise)).normal_p < 1e-4
    y = x + 0.05 * noise
    y[59] += 3
    found = over_models.regression(x, y)
    assert found.influential[59] and np.argmax(found.cook) == 59
    assert found.cook_max == found.cook[59] and found.leverage_max == pytest.approx(found.leverage[0])


def test_slopes_of_noise_within_clusters_are_called_less_often_when_clusters_are_told() -> None:
    plain, told = [], []
    for seed in range(200):
        x, y = clustered(seed)
        found = over_models.regression(x, y, cluster=CLUSTER)
        plain.append(found.p <= 0.05)
        told.append(found.p_robust <= 0.05)
    assert np.mean(plain) > 0.25
    assert np.mean(told) < np.mean(plain) - 0.1


def test_lines_that_cannot_be_fitted_say_why() -> None:
    assert over_models.regression([0, 1], [0, 1]).reason == "2 units, at least 3 needed"
    assert over_models.regression(np.ones(9), np.arange(9)).reason == "all x are equal"
    assert over_models.regression(np.arange(9), np.full(9, 0.3)).slope.reason == "all y are equal"
    assert math.isnan(over_models.regression([], []).cook_max)
    three = over_models.regression([0, 1, 2], [0, 1.2, 1.9])
    assert not math.isnan(three.slope.low) and three.residual_reason == "3 units, at least 4 needed"
    exact = over_models.regression(np.arange(6.0), 2 * np.arange(6.0))
    assert exact.slope.value == pytest.approx(2) and exact.residual_reason == "the line goes through every unit"
    lone = over_models.regression([0, 0, 0, 0, 5.0], [1.0, 2, 3, 4, 9])
    assert "leverage 1" in lone.slope_robust.reason and not lone.influential.any()
    missing = over_models.regression([0, 1, np.nan, 2, 3], [0, 1, 2, np.nan, 4])
    assert (missing.n, missing.left_out, missing.kept.tolist()) == (3, 2, [True, True, False, False, True])
    few = over_models.regression(*associated(1), cluster=ARCHITECTURE)
    assert math.isnan(few.p_robust) and "3 clusters" in few.slope_robust.reason


# ---- seeds and pairs -----------------------------------------------------------------------------------------------------


def test_the_mean_over_seeds_has_the_t_interval() -> None:
    values = np.array([0.81, 0.84, 0.79, 0.9, 0.85])
    found = over_models.over_seeds(values)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), low, high))
    with_gap = over_models.over_seeds([*values, np.nan])
    assert (with_gap.draws, with_gap.undefined) == (6, 1)
    assert (with_gap.low, with_gap.high) == pytest.approx((low, high))
    one = over_models.over_seeds([0.8])
    assert one.value == 0.8 and math.isnan(one.low) and one.reason == "no interval: one seed"
    assert over_models.over_seeds([]).reason == "no seed has a value"


def test_intervals_over_seeds_cover() -> None:
    found = [over_models.over_seeds(rng(s).normal(size=5)) for s in range(2000)]
    assert np.mean([i.low <= 0 <= i.high for i in found]) == pytest.approx(0.95, abs=0.015)


def test_the_signed_rank_test_counts_every_assignment_of_signs() -> None:
    for d in ([1.0, 2, -3, 4, 5], [1.0, 1, -1, 2, 2, 3], [-0.5, 0.5, 0.5, 0.5, 0, 0]):
        kept = np.array([v for v in d if v])
        ranks = stats.rankdata(np.abs(kept))
        centre = ranks.sum() / 2
        observed = abs(ranks[kept > 0].sum() - centre)
        sums = [abs(ranks[list(s)].sum() - centre) for s in itertools.product([False, True], repeat=len(kept))]
        assert over_models.signed_rank_p(d) == pytest.approx(np.mean(np.array(sums) >= observed - 1e-9))
    untied = rng(0).normal(0.3, 1, size=25)
    assert over_models.signed_rank_p(untied) == pytest.approx(stats.wilcoxon(untied, method="exact").pvalue)
    many = rng(1).normal(0.1, 1, size=400)
    assert over_models.signed_rank_p(many) == pytest.approx(stats.wilcoxon(many, method="asymptotic").pvalue)


def test_pairs_are_compared_seed_by_seed() -> None:
    baseline = np.array([0.50, 0.52, 0.47, 0.55, 0.6, 0.51])
    better = baseline - np.array([0.1, 0.2, 0.05, 0.12, 0.3, 0.0])
    found = over_models.paired(baseline, better)
    assert (found.positive, found.negative, found.zero) == (5, 0, 1)
    assert found.sign_p == found.wilcoxon_p == found.least_p == pytest.approx(2 / 32)
    assert found.difference.value == pytest.approx(np.mean(baseline - better))
    with_gap = over_models.paired([*baseline, np.nan], [*better, 1.0])
    assert with_gap.left_out == 1 and with_gap.wilcoxon_p == found.wilcoxon_p


def test_pairs_without_a_difference_decide_nothing() -> None:
    same = over_models.paired([0.1 + 0.2, 0.5], [0.3, 0.5])
    assert same.zero == 2 and math.isnan(same.sign_p) and same.reason == "all pairs are equal"
    assert over_models.paired([], []).reason == "no pair has both values"
    p = [over_models.paired(rng(s).normal(size=12), rng(500 + s).normal(size=12)) for s in range(400)]
    assert np.mean([one.wilcoxon_p <= 0.05 for one in p]) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    assert np.mean([one.sign_p <= 0.05 for one in p]) <= 0.05


def test_a_planted_association_is_stable_over_subsets_of_seeds() -> None:
    x, y = associated(10, rho=0.9)
    found = over_models.seed_stability(x, y, SEED, rng=rng())
    assert found.whole == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found.seeds.tolist() == [1, 2, 3, 4] and found.subsets.tolist() == [5, 10, 10, 5]
    kept = [stats.spearmanr(x[s != SEED], y[s != SEED]).statistic for s in range(5)]
    assert (found.low[-1], found.mean[-1], found.high[-1]) == pytest.approx((min(kept), np.mean(kept), max(kept)))
    assert (found.same_sign == 1).all()
    noise = over_models.seed_stability(x, rng(3).normal(size=30), SEED, rng=rng())
    assert noise.same_sign.min() < 1


def test_subsets_too_small_are_counted_and_many_are_sampled() -> None:
    x, y = associated(11, 40)
    found = over_models.seed_stability(x, y, np.arange(40), rng=rng())
    assert found.subsets.max() == over_models.MOST_SUBSETS
    assert found.undefined[:2].tolist() == found.subsets[:2].tolist()
    assert np.isnan(found.mean[:2]).all() and np.isnan(found.same_sign[0])
    alone = over_models.seed_stability(x, y, np.zeros(40), rng=rng())
    assert not alone.seeds.size and not math.isnan(alone.whole)
    assert "at least 3" in over_models.seed_stability(x[:2], y[:2], [0, 1], rng=rng()).reason
