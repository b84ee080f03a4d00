"""OSCAR's profiles, contributions and bootstrap, held against literal twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import ndimage
from scipy.stats import rankdata

from rightreasons import partitions
from rightreasons.errors import DataError, SettingError
from rightreasons.stats import profiles, resampling
from rightreasons.stats.correlation import partial
from rightreasons.stats.profiles import (
    SortedRanks,
    bootstrap_profiles,
    contributions,
    empty_maps,
    profile,
    quadrants,
    rank_regions,
    region_scores,
    spread,
)

# The same examples in every run, however slowly a busy machine draws them.
STEADY = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.too_slow]}


@pytest.fixture
def three() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 40)) + rng.normal(size=40)


# ---- ranks and profiles


def test_rank_one_is_the_most_important_region() -> None:
    np.testing.assert_array_equal(rank_regions([[0.1, 5.0, -2.0]]), [[2, 1, 3]])


def test_ties_share_the_average_rank_and_an_all_zero_map_gives_everyone_the_middle() -> None:
    ranks = rank_regions([[3.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(ranks, [[1, 3.5, 3.5, 2], [2.5, 2.5, 2.5, 2.5]])
    np.testing.assert_array_equal(empty_maps([[3.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]), [False, True])


@given(arrays.arrays(np.float64, (3, 7), elements=st.sampled_from([-1.0, -0.0, 0.0, 0.5, 0.25, 1e300])))
@settings(max_examples=50, **STEADY)
def test_ranks_equal_scipy(scores: np.ndarray) -> None:
    np.testing.assert_array_equal(rank_regions(scores), rankdata(-scores, axis=1))


def test_monotone_transforms_of_scores_change_nothing() -> None:
    scores = np.maximum(np.random.default_rng(1).normal(size=(50, 30)), 0.0)
    ranks = rank_regions(scores)
    slope = np.random.default_rng(2).uniform(0.1, 9.0, (50, 1))
    for transformed in (slope * scores + 3, np.exp(scores), scores**3):
        np.testing.assert_array_equal(rank_regions(transformed), ranks)


def test_a_profile_is_the_median_or_the_mean_of_the_ranks() -> None:
    ranks = rank_regions(np.random.default_rng(3).normal(size=(6, 5)))
    np.testing.assert_array_equal(profile(ranks), np.median(ranks, axis=0))
    np.testing.assert_array_equal(profile(ranks, how="mean"), ranks.mean(axis=0))
    with pytest.raises(SettingError, match="mode"):
        profile(ranks, how="mode")


@pytest.mark.parametrize("scores", [np.zeros(4), np.zeros((0, 4)), np.zeros((2, 0)), [[np.nan, 1.0]], [[np.inf, 1.0]]])
def test_scores_that_are_no_scores_are_refused(scores: np.ndarray) -> None:
    with pytest.raises(DataError):
        rank_regions(scores)


# ---- contributions


def literal_contributions(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    design = np.column_stack([np.ones_like(c), c])
    z = []
    for y in (a, b):
        e = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        z.append((e - e.mean()) / np.sqrt(np.sum((e - e.mean()) ** 2) / (len(e) - 1)))
    return z[0] * z[1]


def test_contributions_equal_the_literal_formula(three: np.ndarray) -> None:
    literal = literal_contributions(*three)
    np.testing.assert_allclose(contributions(*three, normalise=False), literal, atol=1e-10)
    np.testing.assert_allclose(contributions(*three), literal / np.abs(literal).sum(), atol=1e-10)


def test_contributions_sum_to_the_partial_correlation(three: np.ndarray) -> None:
    assert contributions(*three, normalise=False).sum() / 39 == pytest.approx(partial(*three), abs=1e-10)
    assert np.abs(contributions(*three)).sum() == pytest.approx(1, abs=1e-12)


def test_contributions_without_a_partial_correlation_are_undefined(three: np.ndarray) -> None:
    a, b, c = three
    assert np.isnan(contributions(2 * c + 1, b, c)).all()
    assert np.isnan(contributions(a, b, np.ones(40))).all()


def test_only_quadrant_zero_is_a_region_that_both_use_more() -> None:
    given_ = np.array([1.0, 1, 1, 1, 2, 2, 2, 2])
    a = given_ + np.tile([-1, 1], 4)
    b = given_ + np.tile([-1, -1, 1, 1], 2)
    np.testing.assert_array_equal(quadrants(a, b, given_), [0, 2, 1, 3, 0, 2, 1, 3])
    np.testing.assert_array_equal(quadrants(given_, b, given_), -1)
    assert len(profiles.QUADRANTS) == 4
    positive = contributions(a, b, given_) > 0
    np.testing.assert_array_equal(positive, np.isin(quadrants(a, b, given_), [0, 3]))


def test_spread_tells_one_region_from_all() -> None:
    one, all_alike = spread(np.r_[2.0, -np.ones(15)]), spread(np.full(16, 0.1))
    assert (one.entropy, one.effective) == (0, 1)
    assert one.gini == pytest.approx(15 / 16)
    assert (all_alike.entropy, all_alike.gini, all_alike.effective) == pytest.approx((1, 0, 16))
    assert np.isnan(spread(-np.ones(4)).gini)
    assert spread(-np.ones(4)).reason


def test_gini_equals_the_mean_difference() -> None:
    share = np.random.default_rng(4).random(9)
    literal = np.abs(share[:, None] - share).mean() / (2 * share.mean())
    assert spread(share).gini == pytest.approx(literal, abs=1e-10)


# ---- bootstrap


def literal_medians(ranks: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.array([np.median(np.repeat(ranks, row, axis=0), axis=0) for row in counts])


@pytest.mark.parametrize("n", [1, 2, 3, 8, 51])
@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_bootstrap_profiles_are_the_medians_of_the_repeated_rows_to_the_bit(n: int, kind: type) -> None:
    rng = np.random.default_rng(n)
    ranks = rank_regions(np.maximum(rng.normal(size=(n, 13)), 0.0))
    counts = rng.multinomial(n, np.full(n, 1 / n), size=60).astype(kind)
    np.testing.assert_array_equal(bootstrap_profiles(ranks, counts), literal_medians(ranks, counts))


@given(arrays.arrays(np.int64, (4, 6), elements=st.integers(0, 5)), st.integers(0, 99))
@settings(max_examples=80, **STEADY)
def test_any_counts_give_the_literal_median(counts: np.ndarray, seed: int) -> None:
    ranks = np.random.default_rng(seed).integers(1, 4, size=(6, 5)) / 2.0
    found = bootstrap_profiles(ranks, counts)
    for row, weights in zip(found, counts, strict=True):
        if weights.sum():
            np.testing.assert_array_equal(row, literal_medians(ranks, weights[None])[0])
        else:
            assert np.isnan(row).all()


def test_counts_too_large_for_single_precision_stay_exact() -> None:
    ranks = np.array([[1.0], [2.0], [3.0]])
    counts = np.array([[2**24 + 1, 1, 2**24 + 1], [2**24 + 1, 1, 2**24 + 3], [2**24 + 3, 1, 2**24 + 1], [1, 0, 1]])
    np.testing.assert_array_equal(bootstrap_profiles(ranks, counts)[:, 0], [2, 3, 1, 2])


def test_the_whole_cohort_as_a_resample_is_the_profile() -> None:
    ranks = rank_regions(np.random.default_rng(5).normal(size=(20, 9)))
    for how in ("median", "mean"):
        np.testing.assert_allclose(bootstrap_profiles(ranks, resampling.whole(20), how)[0], profile(ranks, how), atol=1e-12)


def test_all_models_are_drawn_on_the_same_images_whatever_the_threads() -> None:
    rng = np.random.default_rng(6)
    ranks = [rank_regions(rng.normal(size=(30, 7))) for _ in range(3)]
    resamples = resampling.resamples(30, rng=rng, B=40, subject=np.arange(30) // 2)
    medians = SortedRanks.of(np.hstack(ranks)).medians
    draws = resamples.apply(medians).reshape(40, 3, 7)
    for model in range(3):
        np.testing.assert_array_equal(draws[:, model], bootstrap_profiles(ranks[model], resamples.counts()))
    np.testing.assert_array_equal(resamples.apply(medians, threads=2).reshape(draws.shape), draws)
    mean = bootstrap_profiles(ranks[1], resamples.counts(), "mean")[3]
    np.testing.assert_allclose(mean, np.average(ranks[1], axis=0, weights=resamples.counts()[3]), atol=1e-10)


def test_counts_of_other_images_are_refused() -> None:
    with pytest.raises(DataError, match="expected integers"):
        bootstrap_profiles(np.ones((3, 2)), np.ones((4, 5), dtype=np.int64))


# ---- region scores


def literal_scores(maps: np.ndarray, regions: np.ndarray, statistic: str, q: float) -> np.ndarray:
    out = np.empty((len(maps), regions.max() + 1))
    for i, one in enumerate(maps):
        for r in range(out.shape[1]):
            inside = one[regions == r]
            if statistic == "mean":
                out[i, r] = np.mean(inside)
            elif statistic == "saliency":
                out[i, r] = np.mean((inside > 0) & (inside >= np.median(one)))
            else:
                out[i, r] = np.percentile(inside, q)
    return out


def enlarge(one: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    at = np.meshgrid(
        *[np.clip((np.arange(t) + 0.5) * s / t - 0.5, 0, s - 1) for s, t in zip(one.shape, shape, strict=True)], indexing="ij"
    )
    return ndimage.map_coordinates(one, at, order=1)


@pytest.mark.parametrize("statistic", profiles.STATISTICS)
@pytest.mark.parametrize(("small", "large", "cells"), [((7, 5), (30, 33), 4), ((6, 6), (6, 6), 3), ((2, 3, 1), (6, 7, 5), 2)])
def test_region_scores_equal_the_literal_loop_over_enlarged_maps(
    statistic: str, small: tuple[int, ...], large: tuple[int, ...], cells: int
) -> None:
    maps = np.maximum(np.random.default_rng(7).normal(size=(5, *small)), 0.0)
    maps[0] = 0.0
    regions = partitions.grid(large, cells)
    regions[0] = -1
    regions = np.unique(regions, return_inverse=True)[1].reshape(large) - 1
    literal = literal_scores(np.stack([enlarge(one, large) for one in maps]), regions, statistic, 70)
    np.testing.assert_allclose(region_scores(maps, regions, statistic, 70), literal, atol=1e-10)
    assert empty_maps(region_scores(maps, regions, statistic))[0]


def test_blocks_of_maps_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    maps, regions = np.random.default_rng(8).normal(size=(9, 4, 4)), partitions.grid((8, 8), 2)
    whole = region_scores(maps, regions, "percentile")
    monkeypatch.setattr(profiles, "BLOCK", 130)
    np.testing.assert_array_equal(region_scores(maps, regions, "percentile"), whole)


def test_maps_and_regions_that_do_not_fit_are_refused() -> None:
    maps, regions = np.zeros((2, 4, 4)), partitions.grid((8, 8), 2)
    with pytest.raises(DataError, match="or finer"):
        region_scores(np.zeros((2, 9, 8)), regions)
    with pytest.raises(DataError, match="as many axes"):
        region_scores(maps[0], regions)
    with pytest.raises(DataError, match="without gaps"):
        region_scores(maps, np.where(regions == 1, 0, regions))
    with pytest.raises(DataError, match="not finite"):
        region_scores(maps + np.nan, regions)
    with pytest.raises(SettingError, match="known: mean"):
        region_scores(maps, regions, "median")
    with pytest.raises(SettingError, match="0 to 100"):
        region_scores(maps, regions, "percentile", 101)
