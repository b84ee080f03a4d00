"""Do the maps of one model look at the same place in every image? OSCAR assumes aligned images (sec. III-G, Assumptions)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rightreasons.audits.oscar.regions import Partition
from rightreasons.stats.profiles import profile, rank_regions

Floats = NDArray[np.float64]

JITTER = (0, 1, 2, 4, 8)


@dataclass(frozen=True)
class Steadiness:
    """How much the maps of one model agree on a place.

    Attributes
    ----------
    agreement : mean correlation of one image's ranks with the mean ranks of the others
    width, mean_width : regions that a single map covers (median over images), and that the mean of all maps covers
    jitter : (K,) cells by which maps were moved at random; the first is 0. Empty where no partition is a grid
    jittered : (K, cells) the rank profiles of the moved maps
    """

    agreement: float
    width: float
    mean_width: float
    jitter: np.ndarray
    jittered: np.ndarray


@dataclass(frozen=True)
class Widths:
    """Effective number of regions of a single map (median over images), and of the mean of all maps."""

    single: float
    mean: float


def steadiness_of(
    scores: Sequence[Floats], ranks: Floats, partitions: Sequence[Partition], how: str, rng: np.random.Generator
) -> Steadiness:
    """Steadiness of scores (n, R) of every partition; `ranks` are those of the first, and the first grid is jittered."""
    jitter: np.ndarray = np.array(())
    jittered = np.zeros((0, 0))
    for part, of_part in zip(partitions, scores, strict=True):
        if part.cells:
            jitter = np.array(jitters(part.cells))
            jittered = jittered_profiles(of_part, part.cells, how, rng)
            break
    width = widths(scores[0])
    return Steadiness(agreement(ranks), width.single, width.mean, jitter, jittered)


def jitters(cells: tuple[int, ...]) -> tuple[int, ...]:
    """By how many cells maps are moved: up to half the grid, where nothing of a place is left."""
    return tuple(k for k in JITTER if k <= max(cells) // 2)


def jittered_profiles(scores: Floats, cells: tuple[int, ...], how: str, rng: np.random.Generator) -> Floats:
    """Rank profiles (K, R) of grid scores (n, R) after every image was moved at random by up to k cells, around the rim."""
    n, axes = len(scores), len(cells)
    grids = scores.reshape(n, *cells)
    image = np.arange(n).reshape(n, *(1,) * axes)
    profiles = []
    for k in jitters(cells):
        offsets = rng.integers(-k, k + 1, size=(n, axes))
        sources = [_source_cells(offsets[:, axis], axis, cells) for axis in range(axes)]
        moved = grids[(image, *sources)].reshape(n, -1)
        profiles.append(profile(rank_regions(moved), how))
    return np.stack(profiles)


def agreement(ranks: Floats) -> float:
    """Mean over images of the correlation of an image's ranks with the mean ranks of all others.

    Images whose ranks are all alike do not count; NaN where fewer than two others are left.
    """
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    others = centred.sum(axis=0) - centred
    norm = np.linalg.norm(centred, axis=1) * np.linalg.norm(others, axis=1)
    defined = norm > 0
    if defined.sum() <= 1:
        return np.nan
    return float(np.mean(np.sum(centred[defined] * others[defined], axis=1) / norm[defined]))


def widths(scores: Floats) -> Widths:
    """Effective number of regions of the maps with scores (n, R), none negative.

    A cue that lies in one place in every image makes the two numbers alike; one with no fixed place makes the mean much wider.
    """
    total = scores.sum(axis=1)
    share = scores[total > 0] / total[total > 0, None]
    if not len(share):
        return Widths(np.nan, np.nan)
    mean = share.mean(axis=0, keepdims=True)
    return Widths(float(np.median(_effective_regions(share))), float(_effective_regions(mean)[0]))


def _effective_regions(share: Floats) -> Floats:
    """How many regions shares (n, R) are worth, (n,): the exponential of their entropy."""
    return np.exp(-np.sum(share * np.log(np.where(share > 0, share, 1.0)), axis=1))


def _source_cells(offset: np.ndarray, axis: int, cells: tuple[int, ...]) -> np.ndarray:
    """From which cell along one axis every cell is read when image i moves by offset (n,), shaped to index a grid."""
    shape = [len(offset)] + [1] * len(cells)
    shape[axis + 1] = cells[axis]
    return ((np.arange(cells[axis]) + offset[:, None]) % cells[axis]).reshape(shape)
