"""Groups: every number against a plain twin, whole subjects in the bootstrap, nothing silently grouped, guessed or dropped."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import softmax
from sklearn import metrics

from rightreasons.audits import audit, audit_all
from rightreasons.audits.groups import measure
from rightreasons.data.cohort import Cohort
from rightreasons.errors import EvidenceError, NotRun, SettingError
from rightreasons.evidence import Evidence


def cohort_of(label, sex=None, name="test", split=None, **columns) -> Cohort:
    n = len(label)
    given = {"id": [f"{name}{i}" for i in range(n)], "label": list(label)}
    if sex is not None:
        given["sex"] = list(sex)
    parts = {key: key for key in ("subject", "case", "split") if key in columns or (key == "split" and split is not None)}
    if split is not None:
        given["split"] = split
    more = {key: columns.pop(key) for key in ("kinds", "bins") if key in columns}
    attribute = "sex" if sex is not None else [k for k in columns if k not in parts]
    return Cohort.from_columns({**given, **columns}, attribute=attribute, name=name, **parts, **more)


def told(evidence: Evidence, B: int = 50, seed: int = 0, **settings):
    return measure(evidence, rng=np.random.default_rng(seed), B=B, **settings)


def plain_ece(p, y, bins=15):
    confidence, right = p.max(1), p.argmax(1) == y
    total = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        mask = (confidence >= low) & ((confidence <= high) if b == bins - 1 else (confidence < high))
        if mask.any():
            total += mask.mean() * abs(right[mask].mean() - confidence[mask].mean())
    return total


def logistic(x, y):
    """|coefficient| of an unpenalised fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return abs(sm.Logit(y, sm.add_constant(x.astype(float))).fit(disp=0).params[1])


# ---- the numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_every_binary_number_equals_its_plain_twin(seed):
    rng = np.random.default_rng(seed)
    n = 300
    y, a = rng.integers(0, 2, n), rng.integers(0, 2, n)
    z = rng.normal(size=n) + 1.2 * y + 0.8 * a - 1
    z[:3] = 800.0  # a confidence of exactly 1.0
    m = told(Evidence.from_arrays(cohort_of(y, np.array(["f", "m"])[a]), {"logits": z}), aligned={"f": 0, "m": 1})
    p = softmax(np.stack([np.zeros(n), z], 1), axis=1)
    guess = (z > 0).astype(int)
    assert p.max() == 1.0
    for group, rows in (("", np.ones(n, bool)), ("sex = f", a == 0), ("sex = m", a == 1)):
        yy, gg, pp = y[rows], guess[rows], p[rows]
        expected = {
            "accuracy": metrics.accuracy_score(yy, gg),
            "balanced accuracy": metrics.balanced_accuracy_score(yy, gg),
            "AUC": metrics.roc_auc_score(yy, pp[:, 1]),
            "F1": metrics.f1_score(yy, gg),
            "ECE": plain_ece(pp, yy),
            "Brier": 2 * metrics.brier_score_loss(yy, pp[:, 1]),  # summed over both classes
        }
        for name, value in expected.items():
            assert m.get(name, group).value == pytest.approx(value, abs=1e-9), (name, group)
    cells = {(i, j): (guess == y)[(y == i) & (a == j)].mean() for i in (0, 1) for j in (0, 1)}
    for (i, j), value in cells.items():
        assert m.get("group accuracy", f"label = {i}, sex = {'fm'[j]}").value == pytest.approx(value)
    assert m.get("worst-group accuracy").value == pytest.approx(min(cells.values()))
    assert m.get("group-balanced accuracy").value == pytest.approx(np.mean(list(cells.values())))
    assert m.get("conflict shortcut rate").value == pytest.approx((guess == a)[y != a].mean())
    rate = {(i, j): guess[(y == i) & (a == j)].mean() for i in (0, 1) for j in (0, 1)}
    balanced = [metrics.balanced_accuracy_score(y[a == j], guess[a == j]) for j in (0, 1)]
    expected = {
        "separation": np.mean([logistic(a[y == i], guess[y == i]) for i in (0, 1)]),
        "independence": logistic(a, guess),
        "sufficiency": logistic(a[guess == 1], y[guess == 1]),
        "equalised odds": (abs(rate[1, 1] - rate[1, 0]) + abs(rate[0, 1] - rate[0, 0])) / 2,
        "demographic parity": abs(guess[a == 1].mean() - guess[a == 0].mean()),
        "max gap": abs(balanced[0] - balanced[1]),
    }
    for name, value in expected.items():
        assert m.get(name).value == pytest.approx(value, abs=1e-5), name


def test_every_multiclass_number_equals_its_plain_twin(rng):
    n, C = 400, 3
    y, a = rng.integers(0, C, n), rng.integers(0, 3, n)
    logits = rng.normal(size=(n, C)) + 1.5 * np.eye(C)[y]
    m = told(Evidence.from_arrays(cohort_of(y, np.array(["a", "b", "c"])[a]), {"logits": logits}), positive=2)
    p, guess = softmax(logits, axis=1), logits.argmax(1)
    assert m.get("AUC").value == pytest.approx(metrics.roc_auc_score(y, p, multi_class="ovr"))
    assert m.get("F1").value == pytest.approx(metrics.f1_score(y, guess, average="macro"))
    assert m.get("Brier").value == pytest.approx(((p - np.eye(C)[y]) ** 2).sum(1).mean())
    assert m.get("ECE").value == pytest.approx(plain_ece(p, y))
    against = [logistic(a == k, (guess == 2).astype(int)) for k in range(3)]
    assert m.get("independence").value == pytest.approx(max(against), abs=1e-5)


def test_f1_of_a_group_with_two_of_three_classes_is_still_macro():
    y = np.array([0, 0, 2, 2, 1, 1] * 5)
    a = np.where(y == 1, "x", "y")  # among y, only classes 0 and 2 occur
    guess = np.array([0, 2, 2, 2, 1, 1] * 5)
    m = told(Evidence.from_arrays(cohort_of(y, a), {"logits": 9.0 * np.eye(3)[guess]}))
    rows = a == "y"
    assert m.get("F1", "sex = y").value == pytest.approx(metrics.f1_score(y[rows], guess[rows], average="macro"))


def test_classes_in_another_order_than_the_manifests_change_nothing(rng):
    y = np.array(["cat", "dog"])[rng.integers(0, 2, 120)]
    sex, z = np.array(["f", "m"])[rng.integers(0, 2, 120)], rng.normal(size=(120, 2))
    cohort = cohort_of(y, sex)
    one = told(Evidence.from_arrays(cohort, {"logits": z}, classes=["cat", "dog"]), positive="dog", aligned={"f": "cat"})
    two = told(Evidence.from_arrays(cohort, {"logits": z[:, ::-1]}, classes=["dog", "cat"]), positive="dog", aligned={"f": "cat"})
    same = {
        "accuracy",
        "balanced accuracy",
        "AUC",
        "ECE",
        "Brier",
        "worst-group accuracy",
        "conflict shortcut rate",
        "separation",
    }
    for name in same:
        assert one.get(name).value == pytest.approx(two.get(name).value), name
    assert one.get("group accuracy", "label = cat, sex = f") == two.get("group accuracy", "label = cat, sex = f")


def test_a_model_with_more_classes_than_the_manifest_is_scored_on_all_of_them(rng):
    y = np.array(["b", "c"])[rng.integers(0, 2, 100)]
    logits = rng.normal(size=(100, 4))
    m = told(Evidence.from_arrays(cohort_of(y, np.array(["f", "m"] * 50)), {"logits": logits}, classes=["a", "b", "c", "d"]))
    assert m.get("accuracy").value == pytest.approx((np.array(list("abcd"))[logits.argmax(1)] == y).mean())


def test_a_model_of_the_attribute_names_its_groups_by_its_own_target():
    y, a = np.array([0, 1] * 30), np.array(["f"] * 20 + ["m"] * 40)
    cohort = Cohort.from_columns(
        {"id": np.arange(60), "label": y, "sex": a, "site": ["A", "B", "B"] * 20}, attribute=["sex", "site"]
    )
    evidence = Evidence.from_arrays(cohort, {"logits": np.zeros((60, 2))}, classes=["f", "m"], target="sex")
    m = told(evidence, attribute="site")
    assert m.groups_of("group accuracy") == tuple(f"sex = {s}, site = {t}" for s in "fm" for t in "AB")
    assert m.get("accuracy").value == pytest.approx(1 / 3)


# ---- intervals -----------------------------------------------------------------------------------------------------------


def test_the_bootstrap_draws_whole_subjects(rng):
    """Twenty equal rows of a subject are one observation: treating them as independent makes the interval √20 too narrow."""
    y, z = np.repeat(rng.integers(0, 2, 40), 20), np.repeat(rng.normal(size=40), 20)
    subject, sex = np.repeat(np.arange(40), 20).astype(str), np.repeat(np.array(["f", "m"] * 20), 20)
    with_subjects = told(Evidence.from_arrays(cohort_of(y, sex, subject=subject), {"logits": z}), B=1000)
    rows = told(Evidence.from_arrays(cohort_of(y, sex), {"logits": z}), B=1000)
    single = told(Evidence.from_arrays(cohort_of(y[::20], sex[::20]), {"logits": z[::20]}), B=1000)

    def width(m, name):
        return m.get(name).high - m.get(name).low

    assert (with_subjects.n_subjects, with_subjects.n_rows, rows.n_subjects) == (40, 800, None)
    for name in ("accuracy", "AUC", "Brier"):
        assert width(with_subjects, name) / width(rows, name) == pytest.approx(np.sqrt(20), rel=0.3)
        assert width(with_subjects, name) == pytest.approx(width(single, name), rel=0.15)
        assert with_subjects.get(name).value == pytest.approx(single.get(name).value)


def test_intervals_of_accuracy_and_auc_cover_the_truth_near_their_level():
    from scipy.stats import norm

    shift, n, covered = 1.0, 120, {"accuracy": 0, "AUC": 0}
    truth = {"accuracy": norm.cdf(shift / 2), "AUC": norm.cdf(shift / np.sqrt(2))}
    trials = 200
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, n)
        z = rng.normal(size=n) + shift * y - shift / 2
        m = told(Evidence.from_arrays(cohort_of(y), {"logits": z}), B=300, seed=seed)
        for name in covered:
            covered[name] += m.get(name).low <= truth[name] <= m.get(name).high
    for name, hits in covered.items():
        assert 0.89 <= hits / trials <= 0.99, (name, hits / trials)  # 0.95 within four standard errors


def test_all_models_share_resamples_and_seeds_repeat(rng):
    y, z = rng.integers(0, 2, 80), rng.normal(size=80)
    evidence = Evidence.from_arrays(cohort_of(y, np.array(["f", "m"] * 40)), {"logits": z})
    result = audit("groups", {"test": [evidence, evidence]}, B=100, seed=4)
    assert np.array_equal(result.measurements[0].metrics.low, result.measurements[1].metrics.low, equal_nan=True)
    assert audit("groups", evidence, B=100, seed=5).measurements[0].get("AUC").low != result.measurements[0].get("AUC").low
    assert "Model by model" in [e.title for e in result.finding().exhibits]


# ---- kinds of attribute, small and missing groups ---------------------------------------------------------------------------


def test_a_number_is_never_silently_taken_for_groups(rng):
    age, y = rng.uniform(20, 90, 200), rng.integers(0, 2, 200)
    z = rng.normal(size=200) + y + 0.03 * (age - 55)
    m = told(Evidence.from_arrays(cohort_of(y, age=age), {"logits": z}), quartiles=False)
    assert m.kind == "continuous"
    assert not m.groups_of("group accuracy") and not m.groups_of("AUC")
    for name in ("worst-group accuracy", "conflict shortcut rate", "equalised odds", "demographic parity", "max gap"):
        assert np.isnan(m.get(name).value) and "needs bins" in m.get(name).reason
    assert m.get("independence").value == pytest.approx(logistic(age, (z > 0).astype(int)), rel=1e-3)
    finding = audit("groups", Evidence.from_arrays(cohort_of(y, age=age), {"logits": z}), B=50).finding()
    assert {e.unit for e in finding.estimates if e.name == "separation"} == {"log odds per unit of age"}


def test_bins_serve_the_metrics_that_need_groups_and_leave_the_fits_alone(rng):
    age, y = rng.uniform(20, 90, 200), rng.integers(0, 2, 200)
    z = rng.normal(size=200) + 0.03 * (age - 55)
    evidence = Evidence.from_arrays(cohort_of(y, age=age), {"logits": z})
    cut, plain = told(evidence, bins=[20, 50, 90]), told(evidence)
    guess = z > 0
    assert cut.get("demographic parity").value == pytest.approx(abs(guess[age < 50].mean() - guess[age >= 50].mean()))
    assert cut.get("independence").value == plain.get("independence").value


def test_small_groups_are_listed_and_left_out_of_the_worst(rng):
    y = np.array([0] * 40 + [1] * 40 + [1] * 4)
    sex = np.array(["f", "m"] * 40 + ["x"] * 4)
    z = np.where(y == 1, 1.0, -1.0)
    z[-4:] = -1  # the four are all wrong
    finding = audit("groups", Evidence.from_arrays(cohort_of(y, sex), {"logits": z}), B=50).finding()
    worst = next(e for e in finding.estimates if e.name == "worst-group accuracy")
    assert worst.value == 1.0
    check = next(c for c in finding.checks if "at least 10 rows" in c.name)
    assert check.passed is False
    assert "label = 0, sex = x: 0" in check.note and "label = 1, sex = x: 4" in check.note


def test_without_a_group_of_ten_the_worst_group_is_undefined_with_a_reason():
    evidence = Evidence.from_arrays(cohort_of([0, 1] * 8, ["f", "f", "m", "m"] * 4), {"logits": np.zeros(16)})
    worst = told(evidence).get("worst-group accuracy")
    assert np.isnan(worst.value) and worst.reason == "no group of at least 10 rows"
    assert audit("groups", evidence, B=20).finding().sentence.endswith("test decisions are right.")


def test_rows_without_label_or_attribute_leave_and_are_counted():
    y = [0, 1, None, 1, 0, 1] * 10
    sex = ["f", "m", "f", None, "m", "f"] * 10
    evidence = Evidence.from_arrays(cohort_of(y, sex), {"logits": np.tile([-1.0, 1, 1, -1, -1, 1], 10)})
    m = told(evidence)
    assert (m.n_rows, m.missing) == (40, 20)
    assert m.get("accuracy").value == 1.0
    check = next(c for c in audit("groups", evidence, B=20).finding().checks if "has a label" in c.name)
    assert check.passed is False and check.note == "20 rows left out"


def test_one_class_leaves_what_is_undefined_with_its_reason():
    evidence = Evidence.from_arrays(cohort_of([1] * 40, ["f", "m"] * 20), {"logits": np.ones(40)}, classes=[0, 1])
    m = told(evidence)
    assert m.get("accuracy").value == 1.0
    for name in ("AUC", "separation"):
        assert np.isnan(m.get(name).value) and m.get(name).reason
    assert m.get("AUC").reason == "one class only"
    assert audit("groups", evidence, B=20).finding().sentence


def test_no_row_with_label_and_attribute_is_not_run():
    evidence = Evidence.from_arrays(cohort_of([0, 1, None, None], [None, None, "f", "m"]), {"logits": np.zeros(4)})
    with pytest.raises(NotRun, match="no test row has both a label and sex"):
        told(evidence)


def test_several_classes_need_a_positive_one_for_fairness(rng):
    y = rng.integers(0, 3, 90)
    evidence = Evidence.from_arrays(cohort_of(y, np.array(["f", "m"] * 45)), {"logits": rng.normal(size=(90, 3))})
    unnamed = told(evidence).get("separation")
    assert np.isnan(unnamed.value) and unnamed.reason == "more than two classes: name one with positive="
    assert told(evidence, positive=1).get("separation").value >= 0
    with pytest.raises(SettingError, match="positive=7 is no output of model; known: 0, 1, 2"):
        told(evidence, positive=7)


def test_a_cohort_without_attributes_still_has_its_performance():
    m = told(Evidence.from_arrays(cohort_of([0, 1] * 20), {"logits": np.tile([-1.0, 1], 20)}))
    assert m.get("accuracy").value == 1.0 and not m.has("worst-group accuracy")


# ---- decisions -----------------------------------------------------------------------------------------------------------


def with_val(rng, n=200):
    y, z = rng.integers(0, 2, 2 * n), rng.normal(size=2 * n)
    z = z + y - np.where(np.arange(2 * n) < n, 3.0, 0.0)  # val is shifted: its best threshold lies far from 0
    cohort = cohort_of(y, np.array(["f", "m"] * n), split=["val"] * n + ["test"] * n)
    return Evidence.from_arrays(cohort, {"logits": z}, used=[f"test{i}" for i in range(n)]), y, z


def test_the_threshold_of_best_f1_comes_from_validation_rows_alone(rng):
    evidence, y, z = with_val(rng)
    m = told(evidence, threshold="max_f1")
    p = 1 / (1 + np.exp(-z))
    cuts = np.sort(p[:200])
    scores = [metrics.f1_score(y[:200], p[:200] >= t) for t in cuts]
    best = cuts[np.flatnonzero(np.isclose(scores, max(scores)))[-1]]
    assert m.get("accuracy").value == pytest.approx(((p[200:] >= best) == y[200:]).mean())
    assert m.decision == f"max-F1 threshold {best:.3g} on validation rows"
    assert told(evidence).get("accuracy").value != m.get("accuracy").value
    assert told(evidence).decision == "argmax"


def test_the_threshold_is_refused_without_validation_rows_two_classes_or_a_known_name(rng):
    y = rng.integers(0, 2, 40)
    evidence = Evidence.from_arrays(cohort_of(y), {"logits": rng.normal(size=40)})
    with pytest.raises(EvidenceError, match="no cohort 'val'"):
        told(evidence, threshold="max_f1")
    (finding,) = audit_all(evidence, audits=["groups"], settings={"groups": {"threshold": "max_f1"}})
    assert "no cohort 'val'" in finding.not_run
    with pytest.raises(SettingError, match="threshold 'best' is not known: argmax, f1, max_f1"):
        told(evidence, threshold="best")
    three = Evidence.from_arrays(cohort_of(np.arange(40) % 3), {"logits": rng.normal(size=(40, 3))})
    with pytest.raises(NotRun, match="for two classes and model has 3"):
        told(three, threshold="max_f1")


def test_images_of_a_case_are_one_decision(rng):
    y, sex = np.repeat(rng.integers(0, 2, 30), 3), np.repeat(np.array(["f", "m"] * 15), 3)
    z = rng.normal(size=90)
    case = np.repeat(np.arange(30), 3).astype(str)
    m = told(Evidence.from_arrays(cohort_of(y, sex, case=case), {"logits": z}))
    mean = z.reshape(30, 3).mean(1)
    assert m.n_rows == 30
    assert m.get("accuracy").value == pytest.approx(((mean > 0) == y[::3]).mean())
    assert m.get("AUC").value == pytest.approx(metrics.roc_auc_score(y[::3], mean))


def test_an_attribute_that_differs_within_a_case_is_not_run():
    cohort = cohort_of([0, 0, 1, 1], ["f", "m", "f", "f"], case=["x", "x", "y", "y"])
    (finding,) = audit_all(Evidence.from_arrays(cohort, {"logits": np.zeros(4)}), audits=["groups"])
    assert "sex differs between the images of case 'x'" in finding.not_run


def test_rows_that_were_used_are_left_out_and_said(rng):
    y = np.array([0, 1] * 40)
    cohort, train = cohort_of(y, np.array(["f", "m"] * 40)), cohort_of([0, 1] * 5, ["f", "m"] * 5, name="train")
    z = np.where(np.arange(80) < 20, 1 - 2.0 * y, 2.0 * y - 1)  # wrong on the first twenty
    evidence = Evidence.from_arrays(cohort, {"logits": z}, used=[f"test{i}" for i in range(20)], training=train)
    m = told(evidence)
    assert (m.n_rows, m.left_out, m.get("accuracy").value) == (60, 20, 1.0)
    check = next(c for c in audit("groups", evidence, B=20).finding().checks if "fitted or tuned" in c.name)
    assert check.passed is False and check.note == "20 rows left out"


# ---- π -------------------------------------------------------------------------------------------------------------------


def shortcut_model(rng, n=400, follows="ab"):
    """A model that answers by the attribute where they conflict; test and audit rows without association."""
    y, a = rng.integers(0, 2, n), rng.integers(0, 2, n)
    follow = rng.random(n) < 0.8
    guess = np.where(follow, a if follows == "ab" else 1 - a, y)
    split = np.where(np.arange(n) % 2, "audit", "test")
    return y, a, guess, cohort_of(y, np.array(["f", "m"])[a], split=split)


def test_alignment_comes_from_the_training_rows_where_they_are_known(rng):
    y, a, guess, cohort = shortcut_model(rng)
    train_y = rng.integers(0, 2, 300)
    train_a = np.where(rng.random(300) < 0.9, train_y, 1 - train_y)
    train = cohort_of(train_y, np.array(["f", "m"])[train_a], name="train")
    m = told(Evidence.from_arrays(cohort, {"logits": 2.0 * guess - 1}, training=train))
    test = np.arange(400) % 2 == 0
    assert (m.aligned, m.aligned_from) == ("sex = f → 0; sex = m → 1", "training rows")
    assert m.get("conflict shortcut rate").value == pytest.approx((guess == a)[test & (y != a)].mean())
    against = cohort_of(train_y, np.array(["m", "f"])[train_a], name="train")
    assert told(Evidence.from_arrays(cohort, {"logits": 2.0 * guess - 1}, training=against)).aligned == "sex = f → 1; sex = m → 0"


@pytest.mark.parametrize("follows, said", [("ab", "sex = f → 0; sex = m → 1"), ("ba", "sex = f → 1; sex = m → 0")])
def test_alignment_comes_from_errors_on_audit_rows_where_training_is_unknown(rng, follows, said):
    _, _, guess, cohort = shortcut_model(rng, follows=follows)
    m = told(Evidence.from_arrays(cohort, {"logits": 2.0 * guess - 1}))
    assert (m.aligned, m.aligned_from) == (said, "π from the model's errors")
    assert m.get("conflict shortcut rate").value > 0.7


def test_alignment_never_comes_from_test_rows(rng):
    y, a, guess, _ = shortcut_model(rng)
    m = told(Evidence.from_arrays(cohort_of(y, np.array(["f", "m"])[a]), {"logits": 2.0 * guess - 1}))
    assert m.aligned == ""
    rate = m.get("conflict shortcut rate")
    assert np.isnan(rate.value) and rate.reason == "training rows unknown and no audit rows: give aligned="


def test_alignment_given_is_taken_in_any_spelling_and_odd_values_are_refused(rng):
    y, a, guess, _ = shortcut_model(rng)
    evidence = Evidence.from_arrays(cohort_of(y, a), {"logits": 2.0 * guess - 1})
    one, two = told(evidence, aligned={0: 0, 1: 1}), told(evidence, aligned={"0": "0", "1": "1"})
    assert one.get("conflict shortcut rate").value == two.get("conflict shortcut rate").value
    assert one.aligned_from == "given"
    with pytest.raises(SettingError, match="aligned= names 'x', which is no value of 'sex': 0, 1"):
        told(evidence, aligned={"x": 1})
    with pytest.raises(SettingError, match="aligned= names the label 'horse', which is no output of model; known: 0, 1"):
        told(evidence, aligned={0: "horse"})


def test_both_averages_are_shown_and_named(rng):
    _, _, guess, cohort = shortcut_model(rng)
    finding = audit("groups", Evidence.from_arrays(cohort, {"logits": 2.0 * guess - 1}), B=50).finding()
    notes = {e.name: e.note for e in finding.estimates}
    assert notes["accuracy"].startswith("test-weighted") and "counts the same" in notes["group-balanced accuracy"]
    assert finding.verdict is None and finding.row == "behaviour"
    assert "training rows unknown" in next(c.note for c in finding.checks if c.name == "training rows known")


def test_predictions_alone_are_enough(tmp_path, rng):
    y, z = rng.integers(0, 2, 60), rng.normal(size=60)
    p = 1 / (1 + np.exp(-z))
    pd.DataFrame({"label": y, "sex": ["f", "m"] * 30, "p": p}).to_csv(tmp_path / "p.csv", index=False)
    m = told(Evidence.from_predictions(tmp_path / "p.csv", attribute="sex"))
    assert m.get("AUC").value == pytest.approx(metrics.roc_auc_score(y, p))
    assert m.get("Brier").value == pytest.approx(2 * metrics.brier_score_loss(y, p))


def test_nan_features_or_logits_never_reach_an_audit():
    with pytest.raises(EvidenceError, match=r"'logits' is not finite in row 3 \(id test2\)"):
        Evidence.from_arrays(cohort_of([0, 1, 0, 1]), {"logits": [0.0, 1.0, np.nan, 2.0]})


# ---- errors by group, thresholds, quartiles ------------------------------------------------------------------------------


def scored(n=200, seed=0, split=None, **columns) -> Evidence:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    sex = rng.choice(["f", "m"], n)
    z = 2 * y - 1 + (sex == "m") + rng.normal(size=n)
    return Evidence.from_arrays(cohort_of(y, sex, split=split, **columns), {"logits": z})


def test_error_rates_by_group_are_shares_of_the_rows_of_one_label():
    evidence = scored()
    finding = audit("groups", evidence, B=50).finding()
    rows = evidence.on("test").decisions()
    called = rows.logits.argmax(axis=1) == 1
    sex = rows.cohort.column("sex")
    for value in ("f", "m"):
        negative, positive = (rows.label == 0) & (sex == value), (rows.label == 1) & (sex == value)
        found = {e.name: e for e in finding.estimates}
        assert found[f"false positive rate, sex = {value}"].value == pytest.approx(called[negative].mean())
        assert found[f"false positive rate, sex = {value}"].n == negative.sum()
        assert found[f"false negative rate, sex = {value}"].value == pytest.approx(1 - called[positive].mean())
    assert found["false positive rate"].value == pytest.approx(called[rows.label == 0].mean())
    assert "The false positive rate is" in finding.sentence and "where sex = m and" in finding.sentence


def test_a_threshold_that_is_a_number_decides_there():
    evidence = scored()
    m = told(evidence, threshold=0.7)
    rows = evidence.on("test").decisions()
    assert m.decision == "threshold 0.7"
    assert m.get("accuracy").value == pytest.approx(((rows.probability[:, 1] >= 0.7) == rows.label).mean())
    for wrong in (0, 1.5, -0.1, "half", True):
        with pytest.raises(SettingError, match="is not known"):
            told(evidence, threshold=wrong)


def test_without_validation_rows_each_half_finds_the_threshold_of_best_f1_for_the_other():
    m = told(scored(), threshold="f1")
    assert "each half of the test rows" in m.decision
    with_val = told(scored(split=["val", "test"] * 100), threshold="f1")
    assert with_val.decision.endswith("on validation rows")
    with pytest.raises(EvidenceError):
        told(scored(), threshold="max_f1")


def test_a_number_is_cut_at_its_quartiles_and_that_is_said():
    rng = np.random.default_rng(0)
    n = 400
    y, age = rng.integers(0, 2, n), rng.normal(50, 10, n)
    evidence = Evidence.from_arrays(cohort_of(y, age=age), {"logits": 2 * y - 1 + (age - 50) / 20 + rng.normal(size=n)})
    finding = audit("groups", evidence, B=50).finding()
    found = {e.name: e for e in finding.estimates}
    edges = np.quantile(age, [0.25, 0.5, 0.75])
    oldest = (age > edges[2]) & (y == 0)
    called = evidence.on("test").decisions().logits.argmax(axis=1) == 1
    assert found[f"false positive rate, age = above {edges[2]:.4g}"].value == pytest.approx(called[oldest].mean())
    assert found["worst-group accuracy"].value > 0 and "cut at its quartiles" in finding.sentence
    numbers = told(evidence)
    assert numbers.get("independence").value == pytest.approx(told(evidence, quartiles=False).get("independence").value)
    whole = audit("groups", evidence, B=50, quartiles=False).finding()
    assert next(e for e in whole.estimates if e.name == "worst-group accuracy").reason == "age is continuous: needs bins"
    assert "quartiles" not in whole.sentence
