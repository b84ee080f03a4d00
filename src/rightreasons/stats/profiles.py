"""Rank profiles of image regions and what they share: OSCAR's formulas on arrays (sec. III-E to III-H, App. C)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from rightreasons.errors import DataError, SettingError
from rightreasons.stats.correlation import residual
from rightreasons.stats.resampling import Counts, as_counts

Floats = NDArray[np.float64]

STATISTICS = ("mean", "saliency", "percentile")
# What `quadrants` numbers: do the first and the second model use the region more than the third predicts?
QUADRANTS = ("both more", "first more, second less", "first less, second more", "both less")
# Numbers that one block of enlarged maps holds.
BLOCK = 1 << 23


def region_scores(maps: ArrayLike, regions: ArrayLike, statistic: str = "mean", percentile: float = 50.0) -> Floats:
    """The importance of every region of every map, (n, R): sec. III-E.

    Parameters
    ----------
    maps : (n, u, v) or (n, u, v, w)
    regions : region numbers 0..R-1, negative for no region, over the image: of the maps' shape, or finer; coarser maps are
        enlarged to it (linear, pixel centres, as image resizing does)
    statistic : "mean"; "saliency", the share of a region's pixels that are positive and at or above the map's median (App. F: on
        rectified maps the median itself is often 0); "percentile", the `percentile`-th of its pixels
    """
    values, number = _maps(maps, regions)
    if statistic not in STATISTICS:
        raise SettingError(f"no region statistic {statistic!r}; known: {', '.join(STATISTICS)}")
    if not 0 <= percentile <= 100:
        raise SettingError(f"found percentile={percentile}; give 0 to 100")
    member = _membership(number)
    size = np.asarray(member.sum(axis=1)).reshape(-1)
    if statistic == "mean":
        # Enlarging is linear, so that the mean over a region is one weighting of the small map.
        weights = sparse.diags_array(1.0 / size) @ member @ _enlarging(values.shape[1:], number.shape)
        return np.ascontiguousarray((weights @ values.reshape(len(values), -1).T).T)
    blocks = _enlarged(values, number.shape)
    if statistic == "saliency":
        return np.concatenate([(member @ _salient(block).T).T / size for block in blocks])
    pixels = [member.indices[start:stop] for start, stop in pairwise(member.indptr)]
    return np.concatenate([_percentiles(block, pixels, percentile) for block in blocks])


def interpolation(source: int, target: int) -> Floats:
    """Linear interpolation along one axis as a matrix (target, source): between centres of pixels, constant beyond the outer."""
    at = np.clip((np.arange(target) + 0.5) * source / target - 0.5, 0, source - 1)
    before = np.minimum(at.astype(np.int64), max(source - 2, 0))
    weight = at - before
    rows = np.arange(target)
    matrix = np.zeros((target, source))
    matrix[rows, before] = 1 - weight
    matrix[rows, np.minimum(before + 1, source - 1)] += weight
    return matrix


def empty_maps(scores: ArrayLike) -> NDArray[np.bool_]:
    """Which images (n,) have the same score in all regions, such as zero: all their ranks are (R + 1) / 2 and say nothing."""
    values = _rows(scores, "scores")
    return (values == values[:, :1]).all(axis=1)


def rank_regions(scores: ArrayLike) -> Floats:
    """Ranks of the regions within each image, both (n, R): 1 = most important, ties share the average."""
    values = _rows(scores, "scores")
    ranks = np.empty_like(values)
    _kernels().average_ranks(values, np.argsort(values, axis=1), ranks)
    return ranks


def profile(ranks: ArrayLike, how: str = "median") -> Floats:
    """The rank profile (R,) of a model over its images, ranks (n, R): sec. III-F; `how` is "median" or "mean"."""
    values = _rows(ranks, "ranks")
    if _how(how) == "median":
        return np.median(values, axis=0)
    return values.mean(axis=0)


def contributions(a: ArrayLike, b: ArrayLike, given: ArrayLike, normalise: bool = True) -> Floats:
    """Region contribution scores (..., R) of profiles a and b given a third: RCS = z_A z_B of the two residuals (sec. III-H).

    As they are, they sum to (R - 1) times the partial correlation (App. C, Proposition 2); `normalise` scales them to
    sum |RCS| = 1. NaN where the partial correlation is undefined. The sign alone does not tell a shortcut: see `quadrants`.
    """
    scores = _standardised(residual(a, given)) * _standardised(residual(b, given))
    if normalise:
        return l1_normalised(scores)
    return scores


def l1_normalised(scores: Floats) -> Floats:
    """Scores (..., R) scaled so that their absolute values sum to 1."""
    with np.errstate(invalid="ignore"):
        return scores / np.sum(np.abs(scores), axis=-1, keepdims=True)


def quadrants(a: ArrayLike, b: ArrayLike, given: ArrayLike) -> NDArray[np.int8]:
    """In which of `QUADRANTS` every region (..., R) lies; -1 where a residual is zero or undefined.

    Rank 1 is the most important, so a negative residual says *more important*. Contributions are positive in the first and the
    last quadrant; only the first, 0, marks regions that both models use.
    """
    first, second = residual(a, given), residual(b, given)
    quadrant = 2 * (first > 0).astype(np.int8) + (second > 0).astype(np.int8)
    defined = (np.abs(first) > 0) & (np.abs(second) > 0)
    return np.where(defined, quadrant, np.int8(-1)).astype(np.int8)


@dataclass(frozen=True)
class Spread:
    """How far a map of contributions is spread over the regions; NaN, with the reason, where nothing is positive.

    Attributes
    ----------
    entropy : of the shares, over log R: 0 is one region, 1 all alike
    gini : of the shares: 0 is all alike, 1 - 1/R one region
    effective : number of regions, exp of the entropy in nats
    """

    entropy: float
    gini: float
    effective: float
    reason: str = ""


def spread(scores: ArrayLike) -> Spread:
    """Localised or diffuse: how the positive part of contributions (R,) is spread over all R regions."""
    values = _rows(np.asarray(scores, dtype=np.float64)[None], "contributions")[0]
    positive, R = np.maximum(values, 0.0), len(values)
    if not positive.any():
        return Spread(np.nan, np.nan, np.nan, "no region contributes positively")
    share = np.sort(positive / positive.max())
    share /= share.sum()
    seen = share[share > 0]
    entropy = float(-np.sum(seen * np.log(seen)))
    gini = float(np.sum((2 * np.arange(1, R + 1) - R - 1) * share) / R)
    return Spread(entropy / np.log(R) if R > 1 else 0.0, gini, float(np.exp(entropy)))


@dataclass(frozen=True)
class SortedRanks:
    """Ranks (n, R), sorted once, so that every resample finds its median a few steps from the middle.

    Several models on the same images are one array, `SortedRanks.of(np.hstack([test, baseline, attribute]))`.

    Attributes
    ----------
    order : (R, n) images of every region by rising rank
    values : (R, n) the ranks in that order
    below : (n, R) 1 where an image is among the first n // 2 of a region
    """

    order: NDArray[np.int32]
    values: Floats
    below: NDArray[np.float32]

    @classmethod
    def of(cls, ranks: ArrayLike) -> SortedRanks:
        values = np.ascontiguousarray(_rows(ranks, "ranks").T)
        order = np.argsort(values, axis=1, kind="stable").astype(np.int32)
        below = np.zeros((values.shape[1], values.shape[0]), dtype=np.float32)
        np.put_along_axis(below, order[:, : values.shape[1] // 2].T, np.float32(1.0), axis=0)
        return cls(order, np.take_along_axis(values, order, axis=1), below)

    def medians(self, counts: Counts) -> Floats:
        """Medians (B, R) of resamples given as counts (B, n): the numbers `np.median` has for the repeated rows, to the bit.

        A resample without a row is NaN. Safe in threads: `Resamples.apply(sorted_ranks.medians)`.
        """
        n, R = self.below.shape
        counts = as_counts(counts, n)
        total = counts.sum(axis=1, dtype=np.int64)
        # float32 holds whole numbers to 2^24; sums that could be larger take the slower, wider product.
        wide = np.float32 if total.max(initial=0) < 1 << 24 else np.float64
        below = counts.astype(wide) @ self.below.astype(wide, copy=False)
        out = np.empty((len(counts), R))
        _kernels().walk_medians(counts, total, below, self.order, self.values, n // 2, out)
        return out


def bootstrap_profiles(ranks: ArrayLike, counts: Counts, how: str = "median") -> Floats:
    """Profiles (B, R) of resamples of the images: ranks (n, R), counts (B, n) of each image in each resample."""
    if _how(how) == "median":
        return SortedRanks.of(ranks).medians(counts)
    values = _rows(ranks, "ranks")
    counts = as_counts(counts, len(values))
    with np.errstate(invalid="ignore"):
        return counts.astype(np.float64) @ values / counts.sum(axis=1)[:, None]


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _rows(values: ArrayLike, what: str) -> Floats:
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.ndim != 2 or array.size == 0:
        raise DataError(f"found {what} of shape {array.shape}; expected (n, R) with at least one image and one region")
    if not np.isfinite(array).all():
        bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
        raise DataError(f"{what} are not finite in {len(bad)} of {len(array)} rows, the first {bad[0]}; leave those out")
    return array


def _how(how: str) -> str:
    if how not in ("median", "mean"):
        raise SettingError(f"no profile {how!r}; known: median, mean")
    return how


def _standardised(left: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return (left - left.mean(axis=-1, keepdims=True)) / left.std(axis=-1, ddof=1, keepdims=True)


def _maps(maps: ArrayLike, regions: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    values, number = np.asarray(maps, dtype=np.float64), np.asarray(regions)
    if values.ndim != number.ndim + 1 or number.dtype.kind not in "iu":
        raise DataError(
            f"found maps of shape {values.shape} and regions of shape {number.shape} and type {number.dtype}; "
            "expected maps (n, u, v[, w]) and whole region numbers over as many axes"
        )
    if values.size == 0 or any(small > large for small, large in zip(values.shape[1:], number.shape)):
        raise DataError(
            f"maps of shape {values.shape[1:]} cannot be cut by regions of shape {number.shape}: "
            "give the regions at the maps' resolution or finer"
        )
    if not np.isfinite(values).all():
        bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
        raise DataError(f"{len(bad)} of {len(values)} maps are not finite, the first {bad[0]}; make them again or leave them out")
    return values, number.astype(np.int64)


def _membership(number: NDArray[np.int64]) -> sparse.csr_array:
    """Which pixel belongs to which region: ones, (R, pixels)."""
    flat = number.reshape(-1)
    inside = np.flatnonzero(flat >= 0)
    R = int(flat.max()) + 1
    size = np.bincount(flat[inside], minlength=R)
    if R < 1 or (size == 0).any():
        lacking = np.flatnonzero(size == 0)[:5].tolist()
        raise DataError(f"found {max(R, 0)} regions, without a pixel {lacking}; number the regions 0..R-1 without gaps")
    return sparse.csr_array((np.ones(len(inside)), (flat[inside], inside)), shape=(R, flat.size))


def _enlarging(small: Sequence[int], large: Sequence[int]) -> sparse.csr_array:
    """Linear interpolation as a matrix, (pixels of large, pixels of small)."""
    matrix = sparse.csr_array(np.ones((1, 1)))
    for source, target in zip(small, large):
        of_axis = sparse.csr_array(interpolation(source, target))
        matrix = sparse.csr_array(sparse.kron(matrix, of_axis, format="csr"))
    return matrix


def _enlarged(values: Floats, shape: Sequence[int]) -> Iterator[Floats]:
    """Maps at the shape of the regions, flat (k, pixels), as many at a time as fit a block."""
    if values.shape[1:] == tuple(shape):
        weights = None
    else:
        weights = _enlarging(values.shape[1:], shape)
    step = max(1, BLOCK // int(np.prod(shape)))
    for start in range(0, len(values), step):
        flat = values[start : start + step].reshape(-1, int(np.prod(values.shape[1:])))
        yield flat if weights is None else np.ascontiguousarray((weights @ flat.T).T)


def _percentiles(flat: Floats, pixels: Sequence[NDArray], percentile: float) -> Floats:
    """A percentile of every region's pixels, (k, R), of flat maps (k, pixels)."""
    return np.stack([np.percentile(flat[:, inside], percentile, axis=1) for inside in pixels], axis=1)


def _salient(flat: Floats) -> Floats:
    return ((flat > 0) & (flat >= np.median(flat, axis=1, keepdims=True))).astype(np.float64)


def _kernels() -> ModuleType:
    """Imported on first use, like all that is compiled."""
    from rightreasons.stats import _region_kernels

    return _region_kernels
