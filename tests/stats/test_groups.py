"""Accuracies by group, aligned labels, conflict shortcut rate, AUC and F1."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from rightreasons.errors import DataError, SettingError
from rightreasons.stats import groups, resampling
from rightreasons.stats.calibration import probabilities


def world(n: int = 2000, agreement: float = 0.9, reliance: float = 0.3, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Labels, decisions of a model that follows the attribute in a share of rows, and the attribute."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    a = np.where(rng.random(n) < agreement, y, 1 - y)
    return y, np.where(rng.random(n) < reliance, a, y), a


def test_accuracies_equal_scikit_learn() -> None:
    y, p, a = world()
    assert groups.accuracy(y, p) == pytest.approx(metrics.accuracy_score(y, p), abs=1e-14)
    assert groups.balanced_accuracy(y, p) == pytest.approx(metrics.balanced_accuracy_score(y, p), abs=1e-14)
    for (label, value), share in groups.group_accuracy(y, p, a).items():
        rows = (y == label) & (a == value)
        assert share == pytest.approx((p[rows] == y[rows]).mean(), abs=1e-14)
    shares = list(groups.group_accuracy(y, p, a).values())
    assert groups.group_balanced_accuracy(y, p, a) == pytest.approx(np.mean(shares))
    assert groups.worst_group_accuracy(y, p, a) == min(shares)


def test_names_work_as_well_as_codes() -> None:
    y, p, a = world()
    names = np.array(["benign", "malignant"])
    found = groups.worst_group(names[y], names[p], np.array(["f", "m"], dtype=object)[a])
    codes = groups.worst_group(y, p, a)
    assert found.value == codes.value
    assert found.group == (names[codes.group[0]], "fm"[codes.group[1]])


def test_small_groups_are_listed_and_left_out_of_the_worst() -> None:
    y, a = np.repeat([0, 0, 1, 1], [30, 9, 30, 30]), np.repeat([0, 1, 0, 1], [30, 9, 30, 30])
    p = np.where((y == 0) & (a == 1), 1, y)
    found = groups.worst_group(y, p, a)
    assert found.value == 1.0
    assert found.left_out == {(0, 1): 9}
    assert groups.worst_group_accuracy(y, p, a, smallest=9) == 0.0
    none = groups.worst_group([0, 1], [0, 1], [0, 1])
    assert np.isnan(none.value)
    assert none.reason == "no group of at least 10 rows"


def test_rows_without_label_or_attribute_are_left_out() -> None:
    y, p, a = world(200)
    more = groups.group_accuracy(np.r_[y, 0, -1], np.r_[p, 1, 0], np.r_[a, -1, 0])
    assert more == groups.group_accuracy(y, p, a)
    floats = np.r_[a.astype(float), np.nan]
    assert groups.group_sizes(np.r_[y, 0], floats) == {(k, float(v)): n for (k, v), n in groups.group_sizes(y, a).items()}


def test_minus_one_and_one_alone_are_not_guessed_about() -> None:
    with pytest.raises(DataError, match="give 0 and 1"):
        groups.worst_group_accuracy([-1, 1, 1], [1, 1, 1], [0, 0, 1])


def test_a_continuous_attribute_is_not_made_into_thousands_of_groups() -> None:
    y, p, _ = world(100)
    with pytest.raises(DataError, match="groups need bins"):
        groups.worst_group_accuracy(y, p, np.random.default_rng(0).normal(size=100))


def test_a_stamp_is_aligned_with_its_label() -> None:
    y, _, a = world()
    assert groups.aligned_label(y, a) == {0: 0, 1: 1}
    assert groups.aligned_label(y, 1 - a) == {0: 1, 1: 0}


def test_alignment_is_by_lift_and_not_by_majority() -> None:
    # CelebA: most women are not blond, but blond goes with women.
    blond, woman = np.repeat([1, 0, 1, 0], [300, 700, 20, 980]), np.repeat([1, 1, 0, 0], [300, 700, 20, 980])
    assert groups.aligned_label(blond, woman) == {0: 0, 1: 1}
    found = groups.alignment(blond, woman)
    assert found.strength[1, 1] == pytest.approx((300 / 1000) / (320 / 2000))


def test_balanced_rows_have_no_aligned_label() -> None:
    rng = np.random.default_rng(0)
    y, a = np.repeat([0, 0, 1, 1], 100), np.repeat([0, 1, 0, 1], 100)
    found = groups.alignment(y, a)
    assert found.aligned == {}
    assert set(found.reason.values()) == {"no stamp: largest lift not above 1"}
    alarms = sum(bool(groups.aligned_label(rng.integers(0, 2, 300), rng.integers(0, 2, 300))) for _ in range(400))
    assert alarms / 400 < 0.09


def test_total_agreement_is_aligned_and_a_handful_of_rows_is_not() -> None:
    assert groups.aligned_label(np.repeat([0, 1], 50), np.repeat([0, 1], 50)) == {0: 0, 1: 1}
    assert groups.aligned_label(np.repeat([0, 1], 2), np.repeat([0, 1], 2)) == {}


def test_two_labels_with_the_same_lift_leave_a_value_without_aligned_label() -> None:
    y, a = (
        np.repeat([0, 1, 2, 0, 1, 2], [200, 200, 20, 200, 200, 380]),
        np.repeat([0, 0, 0, 1, 1, 1], [200, 200, 20, 200, 200, 380]),
    )
    found = groups.alignment(y, a)
    assert found.aligned == {1: 2}
    assert found.reason[0] == "no stamp: largest lift not separated from the second"


def test_the_interval_of_the_lift_covers_it() -> None:
    rng = np.random.default_rng(1)
    joint = np.array([[0.35, 0.15], [0.1, 0.4]])  # attribute, label
    true = joint[0, 0] / (0.5 * 0.45)
    inside = 0
    for _ in range(400):
        cell = rng.choice(4, size=400, p=joint.ravel())
        found = groups.alignment(cell % 2, cell // 2)
        inside += found.low[0, 0] <= true <= found.high[0, 0]
    assert 0.92 <= inside / 400 <= 0.98


def test_errors_tell_the_aligned_label_on_balanced_rows() -> None:
    y, p, a = world(2000, agreement=0.5, reliance=0.3)
    assert groups.aligned_from_errors(y, p, a).aligned == {0: 0, 1: 1}
    rng = np.random.default_rng(2)
    alarms = sum(bool(groups.aligned_from_errors(*rng.integers(0, 2, (3, 200))).aligned) for _ in range(300))
    assert alarms / 300 < 0.15  # two labels and two values, each at 2.5 %
    fair = groups.aligned_from_errors(y, y, a)
    assert fair.aligned == {}
    assert "no stamp" in fair.reason[0]


def test_conflict_shortcut_rate_equals_its_definition() -> None:
    y, p, a = world()
    aligned = {0: 0, 1: 1}
    conflict = y != a
    assert groups.conflict_shortcut_rate(y, p, a, aligned) == pytest.approx((p == a)[conflict].mean())
    only_one = groups.conflict_shortcut_rate(y, p, a, {1: 1})
    assert only_one == pytest.approx((p == 1)[conflict & (a == 1)].mean())


def test_without_conflict_or_aligned_labels_the_rate_is_undefined() -> None:
    y, p, a = world(50)
    assert np.isnan(groups.conflict_shortcut_rate(y, p, a, {}))
    assert np.isnan(groups.conflict_shortcut_rate(y, p, y, {0: 0, 1: 1}))


def test_pull_equals_its_definition_in_plain_loops() -> None:
    rng = np.random.default_rng(3)
    y, a = rng.integers(0, 3, 400), rng.integers(0, 3, 400)
    p = rng.dirichlet(np.ones(3), 400)
    aligned = {0: 2, 2: 1}
    values = []
    for value, towards in aligned.items():
        by_label = [p[(y == c) & (a == value), towards].mean() - p[(y == c) & (a != value), towards].mean() for c in range(3)]
        values.append(np.mean(by_label))
    assert groups.pull(y, p, a, aligned) == pytest.approx(np.mean(values), abs=1e-12)


def test_a_followed_attribute_pulls_and_harder_images_do_not() -> None:
    y = np.repeat([0, 1, 0, 1], 100)
    a = np.repeat([0, 0, 1, 1], 100)
    followed = 0.5 + 0.2 * (2 * y - 1) + 0.25 * (2 * a - 1)
    harder = 0.5 + np.where(a == 1, 0.1, 0.4) * (2 * y - 1)  # less sure of both labels in the second group
    pulls = [groups.pull(y, np.stack([1 - q, q], axis=1), a, {0: 0, 1: 1}) for q in (followed, harder)]
    assert pulls == pytest.approx([0.5, 0.0], abs=1e-12)


def test_without_both_sides_in_a_label_the_pull_is_undefined() -> None:
    y = np.repeat([0, 1], 50)
    p = np.full((100, 2), 0.5)
    assert np.isnan(groups.pull(y, p, y, {0: 0, 1: 1}))
    assert np.isnan(groups.pull(y, p, 1 - y, {}))


def test_an_aligned_label_that_no_test_row_has_still_conflicts() -> None:
    assert groups.conflict_shortcut_rate([0, 0, 1], [2, 0, 2], [7, 7, 7], {7: 2}) == pytest.approx(2 / 3)


@pytest.mark.parametrize("classes", [2, 4])
def test_auc_and_f1_equal_scikit_learn(classes: int) -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(0, classes, 400)
    p = probabilities(rng.normal(size=(400, classes)) + np.eye(classes)[y])
    score = p[:, 1] if classes == 2 else p
    assert groups.auc(y, p) == pytest.approx(metrics.roc_auc_score(y, score, multi_class="ovr"), abs=1e-14)
    guess = p.argmax(axis=1)
    assert groups.f1(y, guess) == pytest.approx(
        metrics.f1_score(y, guess, average="binary" if classes == 2 else "macro"), abs=1e-14
    )


def test_auc_and_f1_without_a_class_are_undefined() -> None:
    assert np.isnan(groups.auc([1, 1], [0.2, 0.3]))
    assert np.isnan(groups.auc([2, 2], np.eye(3)[[0, 1]]))
    assert np.isnan(groups.f1([0, 0], [0, 0]))
    assert groups.f1(["no", "yes"], ["no", "yes"], positive="yes") == 1
    with pytest.raises(SettingError, match="positive"):
        groups.f1(["no", "yes"], ["no", "yes"])


def test_the_max_f1_threshold_beats_every_other() -> None:
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 200)
    score = np.round(rng.normal(size=200) + y, 1)
    best = groups.f1(y, (score >= groups.max_f1_threshold(y, score)).astype(int))
    assert best == max(metrics.f1_score(y, score >= t) for t in np.unique(score))
    assert np.isnan(groups.max_f1_threshold([0, 0], [0.1, 0.2]))
    with pytest.raises(SettingError, match="two classes"):
        groups.max_f1_threshold([0, 1, 2], [0.1, 0.2, 0.3])


def test_draws_equal_the_metrics_on_the_repeated_rows() -> None:
    y, p, a = world(400)
    counts = resampling.resamples(400, rng=np.random.default_rng(5), B=8).counts()
    rows = [np.repeat(np.arange(400), row) for row in counts]
    aligned = {0: 0, 1: 1}
    pairs = [
        (groups.accuracy_draws(y, p, counts), lambda r: groups.accuracy(y[r], p[r])),
        (groups.balanced_accuracy_draws(y, p, counts), lambda r: groups.balanced_accuracy(y[r], p[r])),
        (groups.f1_draws(y, p, counts), lambda r: metrics.f1_score(y[r], p[r])),
        (groups.worst_group_accuracy_draws(y, p, a, counts), lambda r: groups.worst_group_accuracy(y[r], p[r], a[r], 1)),
        (groups.group_balanced_accuracy_draws(y, p, a, counts), lambda r: groups.group_balanced_accuracy(y[r], p[r], a[r])),
        (groups.conflict_shortcut_rate_draws(y, p, a, aligned, counts), lambda r: (p[r] == a[r])[y[r] != a[r]].mean()),
    ]
    for draws, literal in pairs:
        np.testing.assert_allclose(draws, [literal(r) for r in rows], atol=1e-14)


def test_a_group_that_a_resample_lacks_makes_it_undefined() -> None:
    y, p, a = np.repeat([0, 1], 20), np.repeat([0, 1], 20), np.repeat([0, 1], 20)
    counts = np.ones((2, 40), dtype=np.uint8)
    counts[0, :20] = 0
    np.testing.assert_array_equal(groups.worst_group_accuracy_draws(y, p, a, counts), [np.nan, 1.0])
    np.testing.assert_array_equal(groups.balanced_accuracy_draws(y, p, counts), [np.nan, 1.0])
