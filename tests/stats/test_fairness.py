"""Fairness metrics against statsmodels and against counts by hand."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score

from rightreasons.errors import DataError, SettingError
from rightreasons.stats import fairness, resampling


def decide(y: np.ndarray, push: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (rng.random(len(y)) < 1 / (1 + np.exp(-(2 * y - 1 + push)))).astype(int)


@pytest.fixture
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    y, sex, race = rng.integers(0, 2, 1500), rng.integers(0, 2, 1500), rng.integers(0, 3, 1500)
    age = rng.integers(18, 95, 1500).astype(float)
    predicted = decide(y, 0.6 * sex + 0.02 * (age - 50) + 0.5 * (race == 2), rng)
    return {"y": y, "predicted": predicted, "sex": sex, "age": age, "race": race, "dose": age + rng.random(1500)}


def logit(outcome: np.ndarray, x: np.ndarray) -> float:
    return float(sm.Logit(outcome, sm.add_constant(x.astype(float))).fit(disp=0, tol=1e-12).params[1])


@pytest.mark.parametrize("attribute", ["sex", "age", "dose"])
def test_logistic_metrics_equal_statsmodels(rows: dict, attribute: str) -> None:
    y, p, a = rows["y"], rows["predicted"], rows[attribute]
    both = [abs(logit(p[y == k], a[y == k])) for k in (0, 1)]
    assert fairness.separation(y, p, a) == pytest.approx(np.mean(both), abs=1e-6)
    assert fairness.independence(y, p, a) == pytest.approx(abs(logit(p, a)), abs=1e-6)
    assert fairness.sufficiency(y, p, a) == pytest.approx(abs(logit(y[p == 1], a[p == 1])), abs=1e-6)


def test_each_value_of_a_categorical_attribute_stands_against_the_rest(rows: dict) -> None:
    y, p, a = rows["y"], rows["predicted"], rows["race"]
    names = np.array(["a", "b", "c"])[a]
    found = fairness.disparity("independence", y, p, names)
    expected = [abs(logit(p, a == k)) for k in range(3)]
    np.testing.assert_allclose([v.value for v in found.each.values()], expected, atol=1e-6)
    assert found.value == max(v.value for v in found.each.values())
    assert found.level == "c"


def test_gap_metrics_equal_their_definitions(rows: dict) -> None:
    y, p, a = rows["y"], rows["predicted"], rows["race"]
    rate = np.array([[p[(y == k) & (a == v)].mean() for v in range(3)] for k in (0, 1)])
    assert fairness.equalised_odds(y, p, a) == pytest.approx(np.ptp(rate, axis=1).sum() / 2)
    assert fairness.demographic_parity(y, p, a) == pytest.approx(np.ptp([p[a == v].mean() for v in range(3)]))
    assert fairness.max_gap(y, p, a) == pytest.approx(np.ptp((1 + rate[1] - rate[0]) / 2))
    assert fairness.max_gap(y, p, a, of="accuracy") == pytest.approx(np.ptp([(p == y)[a == v].mean() for v in range(3)]))
    assert fairness.max_gap(y, p, a, of="true_positive_rate") == pytest.approx(np.ptp(rate[1]))


def test_bins_are_closed_on_the_left_and_the_last_on_both_sides() -> None:
    y, p = np.ones(6, int), np.array([1, 0, 1, 1, 0, 0])
    found = fairness.disparity("demographic_parity", y, p, [18.0, 29.9, 30.0, 45.0, 12.0, np.nan], bins=[18, 30, 45])
    assert (found.rows, found.missing) == (4, 2)
    assert found.value == pytest.approx(0.5)


def test_a_continuous_attribute_has_no_gap_without_bins(rows: dict) -> None:
    found = fairness.disparity("equalised_odds", rows["y"], rows["predicted"], rows["age"])
    assert np.isnan(found.value)
    assert found.reason == "continuous attribute: needs bins"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sex": "constant"}, "constant attribute"),
        ({"predicted": "one"}, "one outcome only among label 1"),
        ({"y": "one"}, "no rows among label 0"),
    ],
)
def test_undefined_separation_says_why(rows: dict, change: dict, reason: str) -> None:
    new = {"constant": np.zeros(1500, int), "one": np.ones(1500, int), "sex": rows["sex"], "age": rows["age"]}
    new["old"] = (rows["age"] > 60).astype(int)
    rows = rows | {name: new[what] for name, what in change.items()}
    found = fairness.disparity("separation", rows["y"], rows["predicted"], rows["sex"])
    assert np.isnan(found.value)
    assert reason in found.reason
    assert np.isnan(fairness.separation(rows["y"], rows["predicted"], rows["sex"]))


@pytest.mark.parametrize("name", fairness.METRICS)
@pytest.mark.parametrize("attribute", ["sex", "race", "age", "dose"])
def test_draws_equal_the_metric_on_the_repeated_rows(rows: dict, name: str, attribute: str) -> None:
    y, p, a = rows["y"], rows["predicted"], rows[attribute]
    counts = resampling.resamples(1500, rng=np.random.default_rng(1), B=5).counts()
    repeated = [np.repeat(np.arange(1500), row) for row in counts]
    expected = [getattr(fairness, name)(y[r], p[r], a[r]) for r in repeated]
    np.testing.assert_allclose(fairness.disparity(name, y, p, a).draws(counts), expected, atol=1e-9)


def penalised(outcome: np.ndarray, x: np.ndarray) -> float:
    """Firth's slope, literally: the maximum of the log likelihood plus half the log determinant of its information."""
    design = np.stack([np.ones(len(x)), x - x.mean()], axis=1)

    def loss(beta: np.ndarray) -> float:
        p = 1 / (1 + np.exp(-design @ beta))
        information = design.T @ (design * (p * (1 - p))[:, None])
        return -float((outcome * np.log(p) + (1 - outcome) * np.log(1 - p)).sum() + np.linalg.slogdet(information)[1] / 2)

    return float(minimize(loss, [0, 0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).x[1])


def test_a_separated_fit_has_firths_slope() -> None:
    y, a = np.ones(12, int), np.arange(12.0)
    decided = (a > 5).astype(int)
    assert fairness.independence(y, decided, a, kind="continuous") == pytest.approx(penalised(decided, a), abs=1e-5)
    group = np.repeat([0, 1], 6)
    few = np.array([0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0])
    assert fairness.independence(y, few, group) == pytest.approx(penalised(few, group.astype(float)), abs=1e-5)
    assert fairness.independence(y, few, group) == pytest.approx(np.log(2.5 * 6.5 / (4.5 * 0.5)))


def test_resamples_of_a_nearly_separated_group_are_defined() -> None:
    """One error in a group: four resamples in ten have none, and had no fit."""
    y, a = np.ones(60, int), np.repeat([0, 1], 30)
    decided = np.where(a == 1, 1, np.tile([0, 1], 30)).astype(int)
    decided[59] = 0
    draws = fairness.disparity("independence", y, decided, a).draws(
        resampling.resamples(60, rng=np.random.default_rng(0)).counts()
    )
    assert not np.isnan(draws).any()


def test_a_gap_of_auc_equals_its_definition_under_resampling_and_exchange(rows: dict) -> None:
    y, p, a = rows["y"], rows["predicted"], rows["race"]
    score = p + np.random.default_rng(0).normal(size=1500)

    def gap(y: np.ndarray, score: np.ndarray, a: np.ndarray) -> float:
        return float(np.ptp([roc_auc_score(y[a == v], score[a == v]) for v in range(3)]))

    found = fairness.disparity("max_gap", y, p, a, of="auc", score=score)
    assert found.value == pytest.approx(gap(y, score, a))
    counts = resampling.resamples(1500, rng=np.random.default_rng(1), B=3).counts()
    repeated = [np.repeat(np.arange(1500), row) for row in counts]
    np.testing.assert_allclose(found.draws(counts), [gap(y[r], score[r], a[r]) for r in repeated])
    donors = np.stack([np.random.default_rng(k).permutation(1500) for k in range(3)])
    np.testing.assert_allclose(found.null(donors), [gap(y, score, a[d]) for d in donors])
    assert fairness.max_gap(y, p, a, of="auc", score=score) == found.value


def test_resamples_without_overlap_have_firths_slope_and_no_infinite_one() -> None:
    y, p, a = np.zeros(24, int), np.tile([0, 1], 12), np.arange(24.0)
    y[12:] = 1
    counts = np.ones((2, 24), dtype=np.uint8)
    counts[1, 12:] = np.where(p[12:] == (a[12:] > 18), 1, 0)
    draws = fairness.disparity("separation", y, p, a).draws(counts)
    r = np.repeat(np.arange(24), counts[1])
    expected = [penalised(p[r][y[r] == 1], a[r][y[r] == 1]), logit(p[:12], a[:12])]
    assert draws[1] == pytest.approx(np.abs(expected).mean(), abs=1e-5)


def test_newton_finds_steep_and_far_off_fits() -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(1e5, 1e-2, 400)
    p = (rng.random(400) < 1 / (1 + np.exp(-600 * (a - 1e5)))).astype(int)
    assert fairness.independence(p, p, a) == pytest.approx(abs(logit(p, (a - 1e5) * 100)) * 100, rel=1e-6)


def test_a_fair_model_is_fair_and_a_shortcut_is_not() -> None:
    rng = np.random.default_rng(3)
    y, a = rng.integers(0, 2, 20_000), rng.integers(0, 2, 20_000)
    fair, unfair = decide(y, np.zeros(20_000), rng), decide(y, 1.0 * a, rng)
    assert fairness.separation(y, fair, a) < 0.1
    assert fairness.separation(y, unfair, a) == pytest.approx(1.0, abs=0.15)


def test_signed_disparity_cancels_noise_in_one_group_and_keeps_a_shortcut() -> None:
    rng = np.random.default_rng(4)
    y, a = rng.integers(0, 2, 40_000), rng.integers(0, 2, 40_000)
    noisy = np.where((a == 1) & (rng.random(40_000) < 0.4), rng.integers(0, 2, 40_000), y)
    shortcut = np.where(rng.random(40_000) < 0.2, a, y)
    assert fairness.equalised_odds(y, noisy, a) > 0.15
    assert fairness.signed_disparity(y, noisy, a).value == pytest.approx(0.0, abs=0.02)
    assert fairness.signed_disparity(y, shortcut, a).value == pytest.approx(0.2, abs=0.02)
    assert fairness.signed_disparity(y, shortcut, a, level=0).value == pytest.approx(-0.2, abs=0.02)
    found = fairness.signed_disparity(y, shortcut, a)
    assert found.draws(resampling.whole(40_000))[0] == found.value


def test_signed_disparity_of_a_continuous_attribute_is_the_mean_coefficient(rows: dict) -> None:
    y, p, a = rows["y"], rows["predicted"], rows["age"]
    expected = np.mean([logit(p[y == k], a[y == k]) for k in (0, 1)])
    assert fairness.signed_disparity(y, p, a).value == pytest.approx(expected, abs=1e-6)
    assert fairness.signed_disparity(y, p, -a).value == pytest.approx(-expected, abs=1e-6)


def test_a_u_is_not_monotone_and_a_slope_is() -> None:
    rng = np.random.default_rng(6)
    a = rng.normal(50, 10, 3000)
    slope = (rng.random(3000) < 1 / (1 + np.exp(-(a - 50) / 10))).astype(int)
    u = (rng.random(3000) < 1 / (1 + np.exp(1.5 - ((a - 50) / 10) ** 2))).astype(int)
    assert fairness.monotonicity(slope, a).is_monotone
    found = fairness.monotonicity(u, a)
    assert found.is_monotone is False
    assert found.turn == pytest.approx(50, abs=2)
    assert fairness.monotonicity(u, a > 50).is_monotone is None
    assert fairness.monotonicity(np.ones(3000, int), a).reason == "one class or perfect separation"


def test_several_classes_need_a_positive_one(rows: dict) -> None:
    y, p, a = rows["race"], rows["race"] * rows["predicted"], rows["sex"]
    with pytest.raises(SettingError, match="positive="):
        fairness.separation(y, p, a)
    as_binary = fairness.independence((y == 2).astype(int), (p == 2).astype(int), a)
    assert fairness.independence(y, p, a, positive=2) == as_binary


def test_unknown_names_and_lengths_are_refused(rows: dict) -> None:
    y, p, a = rows["y"], rows["predicted"], rows["sex"]
    with pytest.raises(SettingError, match="known: separation"):
        fairness.disparity("equity", y, p, a)
    with pytest.raises(SettingError, match="known: balanced_accuracy"):
        fairness.max_gap(y, p, a, of="f1")
    with pytest.raises(SettingError, match="score="):
        fairness.max_gap(y, p, a, of="auc")
    with pytest.raises(DataError, match="one for every row"):
        fairness.max_gap(y, p, a, of="auc", score=np.zeros(3))
    with pytest.raises(DataError, match="same rows"):
        fairness.separation(y, p, a[:-1])
    with pytest.raises(DataError, match="must be numbers"):
        fairness.separation(y, p, np.array(["f", "m"])[a], kind="continuous")
    with pytest.raises(SettingError, match="rising"):
        fairness.max_gap(y, p, rows["age"], bins=[1, 2])


@pytest.mark.parametrize("name", fairness.METRICS)
def test_no_rows_and_only_missing_rows_are_undefined(name: str) -> None:
    for rows in ([], [-1, -1, -1]):
        found = fairness.disparity(name, [1] * len(rows), [0] * len(rows), np.array(rows, dtype=int))
        assert np.isnan(found.value)
        assert found.reason


def test_numbers_among_none_are_numbers(rows: dict) -> None:
    age = rows["age"].astype(object)
    age[5] = None
    found = fairness.disparity("separation", rows["y"], rows["predicted"], age)
    assert (found.unit, found.missing) == ("log odds per unit", 1)
    coded = fairness.disparity("separation", rows["y"], rows["predicted"], rows["age"].astype(int) // 6, kind="categorical")
    assert len(coded.each) > 10


@pytest.mark.parametrize("attribute", ["sex", "race", "age"])
def test_exchanged_attributes_give_the_metric_of_the_exchanged_rows(rows: dict, attribute: str) -> None:
    label, predicted, a = rows["y"], rows["predicted"], rows[attribute]
    donors = np.stack([np.random.default_rng(k).permutation(len(a)) for k in range(3)])
    kind = "continuous" if attribute == "age" else "categorical"
    for name in fairness.LOGISTIC if kind == "continuous" else fairness.METRICS:
        found = fairness.disparity(name, label, predicted, a, kind=kind).null(donors)
        expected = [fairness.disparity(name, label, predicted, a[d], kind=kind).value for d in donors]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    level = 1 if kind == "categorical" else None
    found = fairness.signed_disparity(label, predicted, a, level, kind=kind).null(donors)
    expected = [fairness.signed_disparity(label, predicted, a[d], kind=kind, level=level).value for d in donors]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_an_exchange_that_separates_perfectly_has_firths_slope() -> None:
    label, predicted, age = np.ones(6, int), np.array([0, 0, 0, 1, 1, 1]), np.arange(6.0)
    donors = np.stack([np.arange(6), np.array([0, 3, 2, 1, 4, 5])])
    independence = fairness.disparity("independence", label, predicted, age, kind="continuous")
    found = independence.null(donors)
    assert found[0] == pytest.approx(penalised(predicted, age), abs=1e-5)
    assert found[1] == pytest.approx(abs(logit(predicted, age[donors[1]])), abs=1e-6)
    with pytest.raises(DataError, match="donors"):
        independence.null(donors[:, :3])
