"""Pairwise, partial and semipartial correlation, held against literal least squares."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.errors import DataError
from rightreasons.stats.correlation import cramers_v, cramers_v_within, deviation, partial, pearson, residual


def literal_residual(a: np.ndarray, given: np.ndarray) -> np.ndarray:
    design = np.column_stack([np.ones_like(given), given])
    return a - design @ np.linalg.lstsq(design, a, rcond=None)[0]


@pytest.fixture
def profiles() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    given = rng.normal(size=64)
    return rng.normal(size=64) + given, rng.normal(size=64) - given, given


def test_pearson_equals_numpy(profiles: tuple) -> None:
    a, b, _ = profiles
    assert pearson(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1], abs=1e-14)


def test_residual_equals_least_squares_with_intercept(profiles: tuple) -> None:
    a, _, given = profiles
    np.testing.assert_allclose(residual(a + 7, given - 3), literal_residual(a + 7, given - 3), atol=1e-12)


def test_partial_is_pearson_of_both_residuals_and_deviation_of_one(profiles: tuple) -> None:
    a, b, given = profiles
    ra, rb = literal_residual(a, given), literal_residual(b, given)
    assert partial(a, b, given) == pytest.approx(np.corrcoef(ra, rb)[0, 1], abs=1e-12)
    assert deviation(a, b, given) == pytest.approx(np.corrcoef(ra, b)[0, 1], abs=1e-12)


def test_partial_equals_the_textbook_formula(profiles: tuple) -> None:
    a, b, g = profiles
    ab, ag, bg = pearson(a, b), pearson(a, g), pearson(b, g)
    assert partial(a, b, g) == pytest.approx((ab - ag * bg) / np.sqrt((1 - ag**2) * (1 - bg**2)), abs=1e-12)
    assert deviation(a, b, g) == pytest.approx((ab - ag * bg) / np.sqrt(1 - ag**2), abs=1e-12)


def test_leading_axes_are_batches() -> None:
    a, b, given = np.random.default_rng(1).normal(size=(3, 4, 5, 30))
    batched = partial(a, b, given)
    assert batched.shape == (4, 5)
    assert batched[2, 3] == pytest.approx(partial(a[2, 3], b[2, 3], given[2, 3]), abs=1e-14)
    assert pearson(a, b[0, 0]).shape == (4, 5)


def test_a_constant_profile_is_undefined(profiles: tuple) -> None:
    a, b, given = profiles
    for constant in (np.zeros(64), np.full(64, 0.1), np.full(64, 1e6 / 3)):
        assert np.isnan(pearson(a, constant))
        assert np.isnan(partial(constant, b, given))
        assert np.isnan(partial(a, b, constant))


def test_nothing_is_left_of_a_profile_that_the_condition_explains(profiles: tuple) -> None:
    _, b, given = profiles
    assert not residual(3 * given + 2, given).any()
    assert np.isnan(partial(3 * given + 2, b, given))


def test_a_nan_travels_on_and_scale_does_not_matter(profiles: tuple) -> None:
    a, b, given = profiles
    assert pearson(1e-200 * a, 1e200 * b) == pytest.approx(pearson(a, b), abs=1e-12)
    a[3] = np.nan
    assert np.isnan(partial(a, b, given))


def test_profiles_of_two_lengths_are_refused() -> None:
    with pytest.raises(DataError, match=r"\(3,\) and \(4,\)"):
        pearson(np.zeros(3), np.zeros(4))


def test_two_columns_that_only_go_with_the_label_have_no_association_within_it() -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 8000)
    one, other = (np.where(rng.random(8000) < 0.9, label, 1 - label) for _ in range(2))
    assert cramers_v(one, other) > 0.5
    assert cramers_v_within(label, one, other) < 0.05


def test_association_within_the_label_is_the_root_of_the_weighted_mean_square() -> None:
    rng = np.random.default_rng(1)
    label = np.repeat([0, 1, 2], (500, 1500, 40))
    one = rng.integers(0, 2, len(label))
    other = np.where(rng.random(len(label)) < np.choose(label, (0.9, 0.6, 0.5)), one, 1 - one)
    other[label == 2] = 1  # one value only: that label says nothing
    first, second = (cramers_v(one[label == c], other[label == c]) for c in (0, 1))
    expected = ((500 * first**2 + 1500 * second**2) / 2000) ** 0.5
    assert cramers_v_within(label, one, other) == pytest.approx(expected)
    assert np.isnan(cramers_v_within(label, one, np.ones_like(one)))
