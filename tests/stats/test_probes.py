"""What probes read: nothing from noise, a planted attribute within label, and never the label in its place."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from rightreasons.errors import DataError, SettingError
from rightreasons.stats import probes, resampling
from rightreasons.stats.probes import Sample


def planted(strength: float, n: int = 2400, agreement: float = 0.85, seed: int = 0, values: int = 2) -> tuple[Sample, Sample]:
    """Features that always carry the label and carry the attribute with the given strength; halves to fit and to read."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, values, n)
    a = np.where(rng.random(n) < agreement, y, rng.integers(0, values, n))
    z = rng.normal(size=(n, 12))
    z[:, 0] += 3 * y
    z[:, 1] += strength * a
    h = n // 2
    return Sample(z[:h], y[:h], a[:h]), Sample(z[h:], y[h:], a[h:])


def columns(sample: Sample) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return sample.z, sample.y, sample.a


@pytest.mark.parametrize("kind", probes.KINDS)
@pytest.mark.parametrize("target", ["global", "class-conditional"])
def test_a_probe_reads_nothing_from_noise_and_a_planted_attribute_within_label(kind: str, target: str) -> None:
    resamples = resampling.resamples(1200, rng=np.random.default_rng(1), B=300)
    noise = probes.read(*planted(0.0), target=target, kind=kind, resamples=resamples)
    assert noise.within_accuracy.value == pytest.approx(0.5, abs=0.08)
    assert noise.within_accuracy.low <= 0.5 + 0.05
    assert noise.is_readable is False
    there = probes.read(*planted(4.0), target=target, kind=kind, resamples=resamples)
    assert there.within_accuracy.low > 0.8
    assert there.within_auc.value > 0.95
    assert there.is_readable


def test_the_label_tells_the_attribute_over_all_rows_but_not_within_label() -> None:
    found = probes.read(*planted(0.0), target="global")
    assert found.auc.value > 0.75
    assert found.within_auc.value == pytest.approx(0.5, abs=0.08)


def test_a_global_reading_equals_scikit_learn_on_the_same_answers() -> None:
    (z, y, a), (tz, ty, ta) = map(columns, planted(1.0))
    probe = probes.fit(z, a)
    found = probes.read(Sample(z, y, a), Sample(tz, ty, ta), target="global")
    assert found.auc.value == pytest.approx(roc_auc_score(ta, probe.score(tz)[:, 1]), abs=1e-12)
    assert found.accuracy.value == pytest.approx(balanced_accuracy_score(ta, probe.predict(tz)), abs=1e-12)


def test_a_conditional_reading_is_the_mean_over_labels_of_balanced_accuracies() -> None:
    (z, y, a), (tz, ty, ta) = map(columns, planted(1.0))
    expected = [
        balanced_accuracy_score(ta[ty == k], probes.fit(z[y == k], a[y == k], kind="centre").predict(tz[ty == k])) for k in (0, 1)
    ]
    found = probes.read(Sample(z, y, a), Sample(tz, ty, ta), kind="centre")
    assert found.within_accuracy.value == pytest.approx(np.mean(expected), abs=1e-12)
    assert [accuracy for _, accuracy in found.by_label.values()] == pytest.approx(expected)
    assert (found.auc, found.accuracy) == (None, None)


@pytest.mark.parametrize("kind", probes.KINDS)
def test_the_joint_group_is_read_against_its_own_chance(kind: str) -> None:
    found = probes.read(*planted(4.0), target="joint", kind=kind)
    assert found.chance == 0.25
    assert found.line == pytest.approx(0.55)
    assert found.accuracy.value > 0.8
    assert found.auc.value > 0.95


def test_three_values_have_their_chance_level() -> None:
    found = probes.read(*planted(0.0, values=3, n=3600, agreement=0.6), target="class-conditional")
    assert found.chance == pytest.approx(1 / 3)
    assert found.line == pytest.approx(0.6)
    assert found.within_accuracy.value == pytest.approx(1 / 3, abs=0.07)


def test_the_nearest_centre_is_the_nearest() -> None:
    (z, _, a), (tz, _, _) = map(columns, planted(1.0, values=3))
    centres = np.stack([z[a == k].mean(axis=0) for k in range(3)])
    literal = np.linalg.norm(tz[:, None] - centres[None], axis=2).argmin(axis=1)
    np.testing.assert_array_equal(probes.fit(z, a, kind="centre").predict(tz), literal)


def test_a_constant_answer_has_the_accuracy_of_chance() -> None:
    (z, y, a), (tz, ty, ta) = map(columns, planted(0.0))
    found = probes.read(Sample(np.zeros_like(z), y, a), Sample(np.zeros_like(tz), ty, ta))
    assert found.within_accuracy.value == pytest.approx(0.5)
    assert found.within_auc.value == pytest.approx(0.5)


def test_small_values_are_left_out_and_named() -> None:
    (z, y, a), (tz, ty, ta) = map(columns, planted(1.0))
    a, ta = a.copy(), ta.copy()
    a[np.flatnonzero((y == 1) & (a == 0))[5:]] = 1
    found = probes.read(Sample(z, y, a), Sample(tz, ty, ta))
    assert ("label", 1) in found.left_out
    assert found.left_out[(1, 0)].startswith("5 rows to fit")
    assert list(found.by_label) == [0]
    nothing = probes.read(Sample(z, y, np.zeros_like(a)), Sample(tz, ty, ta))
    assert np.isnan(nothing.within_accuracy.value)
    assert nothing.within_accuracy.reason
    assert nothing.is_readable is None


def test_rows_without_attribute_are_left_out_and_resamples_still_fit() -> None:
    (z, y, a), (tz, ty, ta) = map(columns, planted(2.0))
    ta = ta.copy()
    ta[::7] = -1
    subject = np.arange(1200) // 3
    resamples = resampling.resamples(1200, rng=np.random.default_rng(2), B=200, subject=subject)
    found = probes.read(Sample(z, y, a), Sample(tz, ty, ta), resamples=resamples)
    assert found.n_test == (ta >= 0).sum()
    assert found.within_accuracy.low < found.within_accuracy.value < found.within_accuracy.high


def test_names_are_read_as_codes_are() -> None:
    (z, y, a), (tz, ty, ta) = map(columns, planted(1.0))
    names = np.array(["f", "m"])
    expected = probes.read(Sample(z, y, a), Sample(tz, ty, ta)).within_accuracy.value
    assert probes.read(Sample(z, names[y], names[a]), Sample(tz, names[ty], names[ta])).within_accuracy.value == pytest.approx(
        expected
    )


@pytest.mark.parametrize("target", ["global", "class-conditional"])
def test_a_continuous_attribute_is_read_by_concordance_within_label(target: str) -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 1600)
    age = rng.normal(50, 8, 1600) + 8 * y
    z = rng.normal(size=(1600, 10))
    z[:, 0] += 3 * y
    resamples = resampling.resamples(800, rng=rng, B=200)

    def read(features: np.ndarray) -> probes.Reading:
        h = 800
        return probes.read_continuous(
            Sample(features[:h], y[:h], age[:h]), Sample(features[h:], y[h:], age[h:]), target=target, resamples=resamples
        )

    noise = read(z)
    assert noise.within_auc.value == pytest.approx(0.5, abs=0.06)
    assert noise.is_readable is False
    z[:, 1] += age / 4
    there = read(z)
    assert there.within_auc.low > 0.8
    assert there.is_readable
    assert there.accuracy is None
    if target == "global":
        assert noise.auc.value > 0.6


def test_equal_weights_make_groups_weigh_the_same() -> None:
    weight = probes.equal_weights(np.array(["a", "a", "a", "b"]))
    np.testing.assert_allclose(weight, [2 / 3, 2 / 3, 2 / 3, 2])


def test_bad_features_and_names_are_refused() -> None:
    (z, y, a), (tz, ty, ta) = map(columns, planted(1.0, n=200))
    bad = z.copy()
    bad[3, 0] = np.nan
    with pytest.raises(DataError, match="first: row 3"):
        probes.read(Sample(bad, y, a), Sample(tz, ty, ta))
    with pytest.raises(SettingError, match="known: linear, centre"):
        probes.read(Sample(z, y, a), Sample(tz, ty, ta), kind="forest")
    with pytest.raises(SettingError, match="known: global"):
        probes.read(Sample(z, y, a), Sample(tz, ty, ta), target="all")
    with pytest.raises(DataError, match="same rows"):
        probes.read(Sample(z, y, a[:-1]), Sample(tz, ty, ta))
