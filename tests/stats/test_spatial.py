"""Nulls for the correlation of two maps: literal twins, the level without and the power with a common cause."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import fft, ndimage, stats

from rightreasons import partitions
from rightreasons.errors import DataError, SettingError
from rightreasons.stats import spatial
from rightreasons.stats.correlation import deviation, partial, pearson, residual
from rightreasons.stats.spatial import NULLS, Places, correlation_test, correlation_variance, dutilleul_p, region_centroids

CELLS = (12, 12)
REGIONS = partitions.grid((48, 48), CELLS)
CENTROIDS = region_centroids(REGIONS)
PLACES = Places(CENTROIDS, CELLS)


def smooth_maps(rng: np.random.Generator, *shape: int) -> np.ndarray:
    fields = ndimage.gaussian_filter(rng.normal(size=(int(np.prod(shape)), *CELLS)), (0, 1.5, 1.5))
    return fields.reshape(*shape, -1)


def test_centroids_are_the_mean_places_of_the_pixels() -> None:
    regions = np.array([[0, 0, -1], [1, 0, 1]])
    np.testing.assert_allclose(region_centroids(regions), [[1 / 3, 2 / 3], [1, 1]])
    with pytest.raises(DataError, match="gaps"):
        region_centroids(np.array([[0, 2]]))


def test_the_variance_equals_the_literal_double_sum() -> None:
    x, y = smooth_maps(np.random.default_rng(0), 2)
    x, y = x - x.mean(), y - y.mean()
    n = len(x)
    distance = np.round(np.hypot(*(CENTROIDS[:, None] - CENTROIDS).transpose(2, 0, 1)), 6)
    total = 0.0
    for d in np.unique(distance):
        i, j = np.nonzero(distance == d)
        total += len(i) * np.mean(x[i] * x[j]) * np.mean(y[i] * y[j])
    literal = total / (n * x.var() * n * y.var())
    assert correlation_variance(x, y, CENTROIDS) == pytest.approx(literal, abs=1e-10)
    np.testing.assert_allclose(correlation_variance(np.stack([x, y]), np.stack([y, x]), CENTROIDS), literal, atol=1e-10)


def test_the_variance_is_the_quadratic_form_of_the_estimated_covariance() -> None:
    x, y = (v - v.mean() for v in smooth_maps(np.random.default_rng(1), 2))
    code, pairs = spatial.distance_classes(CENTROIDS)
    covariance = (np.bincount(code.ravel(), np.outer(y, y).ravel()) / pairs)[code]
    literal = x @ covariance @ x / (x @ x * (y @ y))
    assert correlation_variance(x, y, CENTROIDS) == pytest.approx(literal, abs=1e-10)


def test_independent_regions_are_worth_their_number_and_smooth_maps_far_less() -> None:
    rng = np.random.default_rng(2)
    rough = 1 + 1 / np.mean(correlation_variance(*rng.normal(size=(2, 200, 144)), CENTROIDS))
    smooth = 1 + 1 / np.mean(correlation_variance(*smooth_maps(rng, 2, 200), CENTROIDS))
    assert rough == pytest.approx(144, rel=0.1)
    assert smooth < 40


def test_p_equals_the_t_distribution() -> None:
    literal = 2 * stats.t.sf(0.4 * np.sqrt(41 / (1 - 0.16)), 0.35 * 41)
    assert dutilleul_p(-0.4, 1 / 40) == pytest.approx(literal, abs=1e-10)
    assert dutilleul_p(1.0, 1 / 40) == 0
    assert np.isnan(dutilleul_p(0.4, 0.8))


def test_irregular_regions_have_few_classes_with_many_pairs() -> None:
    places = np.random.default_rng(3).uniform(0, 100, (80, 3))
    code, pairs = spatial.distance_classes(places)
    assert (np.diag(code) == 0).all()
    assert (code == code.T).all()
    assert (code[~np.eye(80, dtype=bool)] > 0).all()
    assert pairs.sum() == 6400
    assert len(pairs) < spatial.MOST_CLASSES
    assert np.median(pairs[1:]) > 20


def test_the_value_is_the_correlation_that_was_asked_for() -> None:
    a, b, c = smooth_maps(np.random.default_rng(4), 3)
    for kind, literal in (("partial", partial(a, b, c)), ("deviation", deviation(a, b, c))):
        assert correlation_test(a, b, c, places=Places(CENTROIDS), kind=kind).value == pytest.approx(literal, abs=1e-12)
    assert correlation_test(a, b, places=Places(CENTROIDS)).value == pytest.approx(pearson(a, b), abs=1e-12)


def permutations(values: np.ndarray, seed: int, B: int = 50) -> np.ndarray:
    """The permuted vectors themselves: their products with the unit vectors."""
    return spatial._permuted_products(values, np.eye(len(values)), np.random.default_rng(seed), B)


def test_all_permutations_are_equally_likely() -> None:
    shuffled = permutations(np.arange(4.0), seed=1, B=24_000)
    np.testing.assert_array_equal(np.sort(shuffled, axis=1), np.tile(np.arange(4.0), (24_000, 1)))
    found = np.unique(shuffled, axis=0, return_counts=True)[1]
    assert len(found) == 24
    assert stats.chisquare(found).pvalue > 1e-3


def test_plain_permutation_equals_the_literal_loop() -> None:
    a, b, c = np.random.default_rng(5).normal(size=(3, 30))
    left, right = residual(a, c), residual(b, c)
    draws = spatial.permutation_draws(left, right, rng=np.random.default_rng(6), B=50)
    shuffled = permutations(left, seed=6)
    np.testing.assert_allclose(draws, [pearson(one, right) for one in shuffled], atol=1e-10)


@pytest.mark.parametrize("conditioned", ["partial", "deviation", "pairwise"])
def test_the_papers_permutation_residualises_every_permuted_profile(conditioned: str) -> None:
    a, b, c = np.random.default_rng(7).normal(size=(3, 30))
    given = None if conditioned == "pairwise" else c
    right = residual(b, c) if conditioned == "partial" else b
    draws = spatial.paper_draws(a, right, given, rng=np.random.default_rng(8), B=50)
    shuffled = permutations(a, seed=8)
    literal = [pearson(one if given is None else residual(one, c), right) for one in shuffled]
    np.testing.assert_allclose(draws, literal, atol=1e-10)


def test_torus_shifts_equal_rolled_maps() -> None:
    x, y = np.random.default_rng(9).normal(size=(2, 12))
    literal = [
        pearson(np.roll(x.reshape(3, 4), (i, j), (0, 1)).ravel(), y) for i in range(3) for j in range(4) if (i, j) != (0, 0)
    ]
    np.testing.assert_allclose(spatial.torus_draws(x, y, (3, 4)), literal, atol=1e-10)


@pytest.mark.parametrize("null", ["moran", "spectral"])
def test_correlations_with_surrogates_of_smooth_maps_vary_more_than_with_permutations(null: str) -> None:
    rng = np.random.default_rng(10)
    widths = []
    for x, y in smooth_maps(rng, 20, 2):
        if null == "moran":
            draws = spatial.moran_draws(x, y, CENTROIDS, rng=rng, B=500)
        else:
            draws = spatial.spectral_draws(x, y, CELLS, rng=rng, B=500)
        assert abs(draws.mean()) < 5 * draws.std() / np.sqrt(500)
        assert np.abs(draws).max() <= 1
        widths.append(draws.std() * np.sqrt(len(x) - 1))  # permutations have 1
    assert np.mean(widths) > 1.5


def test_a_surrogate_with_no_sign_flipped_is_the_map() -> None:
    x, y = smooth_maps(np.random.default_rng(11), 2)

    class AllPlus:
        def choice(self, signs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
            return np.ones(size)

    for draws in (
        spatial.moran_draws(x, y, CENTROIDS, rng=AllPlus(), B=1),  # type: ignore[arg-type]
        spatial.spectral_draws(x, y, CELLS, rng=AllPlus(), B=1),  # type: ignore[arg-type]
    ):
        assert draws[0] == pytest.approx(pearson(x, y), abs=1e-10)


def test_surrogates_lose_what_the_third_map_explains() -> None:
    x, y, c = smooth_maps(np.random.default_rng(17), 3)
    signs = np.random.default_rng(18).choice(np.array([-1.0, 1.0]), size=(20, 144)).reshape(20, *CELLS)
    surrogates = fft.idctn(signs * fft.dctn((x - x.mean()).reshape(CELLS), norm="ortho"), axes=(1, 2), norm="ortho")
    literal = [pearson(residual(one.ravel(), c), y) for one in surrogates]
    draws = spatial.spectral_draws(x, y, CELLS, c, rng=np.random.default_rng(18), B=20)
    np.testing.assert_allclose(draws, literal, atol=1e-10)


def test_both_defaults_keep_their_level_on_smooth_maps_where_permutation_does_not() -> None:
    rng = np.random.default_rng(12)
    worlds = smooth_maps(rng, 250, 3)
    formula = [correlation_test(a, b, c, places=Places(CENTROIDS)) for a, b, c in worlds]
    drawn = [correlation_test(a, b, c, places=Places(cells=CELLS), rng=rng, B=199) for a, b, c in worlds]
    plain = [correlation_test(a, b, c, null="permutation", rng=rng, B=199) for a, b, c in worlds[:100]]
    assert {test.null for test in formula + drawn} == {"dutilleul", "spectral"}
    for tests in (formula, drawn):
        assert np.mean([test.p <= 0.05 for test in tests]) < 0.09
    assert np.mean([test.p <= 0.05 for test in plain]) > 0.3


@pytest.mark.parametrize("null", NULLS)
def test_every_null_sees_a_planted_common_region(null: str) -> None:
    rng = np.random.default_rng(13)
    a, b, c = rng.normal(size=(3, 144))
    cue = 4.0 * (np.hypot(*(CENTROIDS - 12).T) < 8)
    test = correlation_test(a + cue, b + cue, c, null=null, places=PLACES, rng=rng, B=999)
    assert test.p < 0.05
    assert test.value > 0.3
    assert test.null == null


@pytest.mark.parametrize("null", NULLS)
def test_a_constant_profile_is_undefined_with_a_reason(null: str) -> None:
    a, b, c = np.random.default_rng(14).normal(size=(3, 144))
    for test in (
        correlation_test(np.ones(144), b, c, null=null, places=PLACES, rng=np.random.default_rng(0)),
        correlation_test(a, 3 * c, c, null=null, places=PLACES, rng=np.random.default_rng(0)),
    ):
        assert np.isnan(test.p)
        assert test.reason


def test_maps_with_too_few_effective_regions_are_undefined() -> None:
    row, column = CENTROIDS.T
    test = correlation_test(row, row + 0.01 * column, places=Places(CENTROIDS))
    assert test.effective < 4
    assert np.isnan(test.p) == bool(test.reason)


def test_the_same_generator_gives_the_same_p() -> None:
    a, b, c = np.random.default_rng(15).normal(size=(3, 144))
    for null in ("permutation", "paper", "moran", "spectral"):
        first, second = (
            correlation_test(a, b, c, null=null, places=PLACES, rng=np.random.default_rng(1), B=99) for _ in range(2)
        )
        assert first == second


def test_what_a_null_needs_is_asked_for_by_name() -> None:
    a, b, c = np.random.default_rng(16).normal(size=(3, 144))
    with pytest.raises(SettingError, match="known: dutilleul"):
        correlation_test(a, b, c, null="guess")
    with pytest.raises(SettingError, match="centroids="):
        correlation_test(a, b, c)
    with pytest.raises(SettingError, match="cells="):
        correlation_test(a, b, c, null="torus", places=Places(cells=(3, 3)))
    with pytest.raises(SettingError, match="rng="):
        correlation_test(a, b, c, null="permutation")
    with pytest.raises(SettingError, match="B=0"):
        correlation_test(a, b, c, null="permutation", rng=np.random.default_rng(0), B=0)
    with pytest.raises(SettingError, match="deviation"):
        correlation_test(a, b, c, places=Places(CENTROIDS), kind="pairwise")
    with pytest.raises(DataError, match="centroids"):
        correlation_test(a, b, c, places=Places(CENTROIDS[:9]))
    with pytest.raises(DataError, match="shapes"):
        correlation_test(a, b[:9], c, places=Places(CENTROIDS))
    with pytest.raises(DataError, match="not finite"):
        correlation_test(a + np.nan, b, c, places=Places(CENTROIDS))
    with pytest.raises(DataError, match="have the same centroid"):
        correlation_test(a, b, c, places=Places(np.zeros((144, 2))))
