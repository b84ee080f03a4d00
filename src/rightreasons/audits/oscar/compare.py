"""Three models: correlations of their rank profiles with intervals and p-values, and where they come from (sec. III-G, III-H)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rightreasons.audits.oscar.measurement import ProfileDrawer
from rightreasons.audits.oscar.models import ROLES, Models
from rightreasons.audits.oscar.regions import Regions
from rightreasons.stats.contributions import ContributionMaps, contribution_maps
from rightreasons.stats.correlation import deviation, partial, pearson
from rightreasons.stats.profiles import Spread, rank_regions, spread
from rightreasons.stats.replicates import Replicates, replicates
from rightreasons.stats.resampling import Interval, Resamples, interval, resamples
from rightreasons.stats.spatial import NullTest, correlation_test

Floats = NDArray[np.float64]

PARTIAL = "partial"
DEVIATION = "deviation"
TEST_ATTRIBUTE = "test and attribute"
TEST_BASELINE = "test and baseline"
BASELINE_ATTRIBUTE = "baseline and attribute"
KINDS = (PARTIAL, DEVIATION, TEST_ATTRIBUTE, TEST_BASELINE, BASELINE_ATTRIBUTE)
SPATIAL, REPLICATES = "spatial", "replicates"
PEARSON, SPEARMAN = COEFFICIENTS = ("Pearson", "Spearman")
CONSTANT = "a profile is constant, or nothing of it is left beside the baseline's"
FEWEST_IN_SLICE = 20
MOST_IN_SLICES = 2_000  # resamples and draws for each slice


# ---- what is compared ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Correlation:
    """One correlation of one partition, with the spatial and the plain p-values beside each other.

    Attributes
    ----------
    permutation, paper : p of plain permutations of the residual, and of the profile as in the paper; NaN beside Spearman's
    """

    partition: str
    kind: str
    coefficient: str
    interval: Interval
    spatial: NullTest
    permutation: float
    paper: float


@dataclass(frozen=True)
class Compared:
    """One partition: the three mean profiles (3, R), their correlations, and where they come from.

    Attributes
    ----------
    spread : over how many regions that both models use more the shortcut scores are spread
    reach : how far apart those regions lie: 0 is one place, 1 is as far as all regions of the image
    """

    name: str
    profiles: Floats
    correlations: tuple[Correlation, ...]
    maps: ContributionMaps
    spread: Spread
    reach: float

    def correlation(self, kind: str = PARTIAL, coefficient: str = PEARSON) -> Correlation:
        return next(c for c in self.correlations if (c.kind, c.coefficient) == (kind, coefficient))


@dataclass(frozen=True)
class Single:
    """One test model, or one slice of the images, by the deciding partition.

    Attributes
    ----------
    effective : number of regions that both models use more
    maps : its contribution scores; None where there were too few images
    """

    name: str
    n: int
    interval: Interval
    p: float
    effective: float
    maps: ContributionMaps | None
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """What the profiles of the three roles say. `compared[0]` is the partition that decides.

    Attributes
    ----------
    replicates : where the test models lie among the balanced ones
    seeds, slices : every test model, and every slice of the images, on its own
    jitter : (K,) partial correlation after the test models' maps were moved; empty where no partition is a grid
    decide : the test that decides, `SPATIAL` or `REPLICATES`
    n_subjects : of the shared images; None where they are unknown
    """

    models: Models
    compared: tuple[Compared, ...]
    replicates: Replicates
    seeds: tuple[Single, ...]
    slices: tuple[Single, ...]
    jitter: np.ndarray
    decide: str
    alpha: float
    n_subjects: int | None

    @property
    def by_replicates(self) -> bool:
        """Whether balanced models decide, and not the spatial null."""
        return self.decide == REPLICATES

    @property
    def deciding(self) -> Correlation:
        """The partial correlation of the partition that decides."""
        return self.compared[0].correlation()


@dataclass(frozen=True)
class Procedure:
    """How the significance of correlations is assessed.

    Attributes
    ----------
    null : the spatial null whose p decides; the best one for the partition where it is None
    B : draws of the nulls, and resamples of slices
    level : of the intervals
    """

    null: str | None
    B: int
    level: float
    rng: np.random.Generator


# ---- correlations --------------------------------------------------------------------------------------------------------


def correlations_of(profiles: Floats) -> Floats:
    """The correlations of `KINDS` (..., 5) of test, baseline and attribute profiles (..., 3, R): sec. III-G."""
    test, baseline, attribute = (profiles[..., k, :] for k in range(3))
    by_kind = {
        PARTIAL: partial(test, attribute, baseline),
        DEVIATION: deviation(test, attribute, baseline),
        TEST_ATTRIBUTE: pearson(test, attribute),
        TEST_BASELINE: pearson(test, baseline),
        BASELINE_ATTRIBUTE: pearson(baseline, attribute),
    }
    return np.stack([by_kind[kind] for kind in KINDS], axis=-1)


def compare_profiles(models: Models, sample: Resamples, procedure: Procedure) -> tuple[Compared, ...]:
    """Compare the profiles of every partition; all models are resampled by the same images."""
    profiles, draw = models.profiles(), models.profile_drawer()
    draws = sample.apply(lambda counts: _both_coefficients(draw(counts)))
    point = _both_coefficients([p[None] for p in profiles])[0]
    regions, partitions = models.first.regions, []
    for k, of_partition in enumerate(profiles):
        correlations = _correlations(regions, k, of_partition, point[k], draws[:, k], procedure)
        maps = contribution_maps(*of_partition)
        part = maps.shortcut_part
        distance = reach(part, regions.centroids[regions.columns(k)])
        partitions.append(Compared(regions.partition[k], of_partition, correlations, maps, _extent(part), distance))
    return tuple(partitions)


def _correlations(
    regions: Regions, k: int, profiles: Floats, point: Floats, draws: Floats, procedure: Procedure
) -> tuple[Correlation, ...]:
    """All correlations of partition k: point (2, 5) and draws (B, 2, 5) by coefficient and kind."""
    correlations = []
    for c, coefficient in enumerate(COEFFICIENTS):
        if coefficient == PEARSON:
            compared = profiles
        else:
            compared = _ranks(profiles)
        for j, kind in enumerate(KINDS):
            spatial = correlation_p(compared, kind, regions, k, procedure)
            permutation = paper = np.nan
            if coefficient == PEARSON:  # the plain tests stand beside the deciding coefficient only
                permutation = correlation_p(compared, kind, regions, k, replace(procedure, null="permutation")).p
                paper = correlation_p(compared, kind, regions, k, replace(procedure, null="paper")).p
            limits = interval(float(point[c, j]), draws[:, c, j], procedure.level, CONSTANT)
            correlations.append(Correlation(regions.partition[k], kind, coefficient, limits, spatial, permutation, paper))
    return tuple(correlations)


def correlation_p(profiles: Floats, kind: str, regions: Regions, k: int, procedure: Procedure) -> NullTest:
    """The test of one correlation of profiles (3, R) of partition k under one null (sec. III-G, Hypothesis Testing)."""
    if not np.isfinite(profiles).all():
        return NullTest(procedure.null or "", np.nan, np.nan, np.nan, 0, CONSTANT)
    by_role = dict(zip(ROLES, profiles, strict=True))
    first, second = "test", "attribute"
    if kind == TEST_BASELINE:
        second = "baseline"
    elif kind == BASELINE_ATTRIBUTE:
        first = "baseline"
    return correlation_test(
        by_role[first],
        by_role[second],
        by_role["baseline"] if kind in (PARTIAL, DEVIATION) else None,
        null=procedure.null,
        places=regions.places(k),
        rng=procedure.rng,
        B=procedure.B,
        kind="deviation" if kind == DEVIATION else "partial",
    )


def _both_coefficients(profiles: Sequence[Floats]) -> Floats:
    """(b, P, 2, 5): Pearson and Spearman of every partition, profiles (b, 3, R) each."""
    by_partition = []
    for p in profiles:
        by_partition.append(np.stack([correlations_of(p), correlations_of(_ranks(p))], axis=1))
    return np.stack(by_partition, axis=1)


def _ranks(profiles: Floats) -> Floats:
    """Ranks over the regions; Spearman's correlations are those of ranked profiles."""
    flat = profiles.reshape(-1, profiles.shape[-1])
    defined = np.isfinite(flat).all(axis=1)
    out = np.full(flat.shape, np.nan)
    if defined.any():
        out[defined] = rank_regions(flat[defined])
    return out.reshape(profiles.shape)


# ---- how far the shared regions spread -----------------------------------------------------------------------------------


def reach(weight: Floats, centroids: Floats) -> float:
    """Root mean square distance of regions (R, axes) from their weighted centre, over the same with equal weights.

    NaN where no weight is positive. Two places far apart reach far and are still few regions: `spread` tells these.
    """
    if not np.isfinite(weight).all() or not weight.sum() > 0:
        return np.nan
    return float(np.sqrt(_squared_distance(centroids, weight) / _squared_distance(centroids, np.ones(len(weight)))))


def _squared_distance(centroids: Floats, weight: Floats) -> np.float64:
    """Weighted mean squared distance of centroids (R, axes) from their weighted centre."""
    centre = np.average(centroids, axis=0, weights=weight)
    return np.float64(np.average(np.sum((centroids - centre) ** 2, axis=1), weights=weight))


def _extent(part: Floats) -> Spread:
    if np.isfinite(part).all():
        return spread(part)
    return Spread(np.nan, np.nan, np.nan, CONSTANT)


# ---- seeds, replicates, slices, jitter -----------------------------------------------------------------------------------


def among_replicates(models: Models, alpha: float) -> Replicates:
    """Where the test models lie among the balanced ones, by the deciding partition."""
    attribute = np.mean(models.own("attribute"), axis=0)
    return replicates(np.stack(models.own("test")), np.stack(models.own("baseline")), attribute, alpha)


def by_seed(models: Models, procedure: Procedure) -> tuple[Single, ...]:
    """Every test model on its own, against the mean profiles of the references; nothing where there is one test model."""
    if len(models.test) == 1:
        return ()
    _, baseline, attribute = models.profiles()[0]
    singles = []
    for m, own in zip(models.test, models.own("test"), strict=True):
        singles.append(_single(m.model, models.n, np.stack([own, baseline, attribute]), models.first.regions, procedure))
    return tuple(singles)


def by_slice(models: Models, procedure: Procedure) -> tuple[Single, ...]:
    """The images of every value of the slicing column on their own; nothing where there is no such column."""
    column, subject = models.slices, models.subject
    if column is None:
        return ()
    procedure = replace(procedure, B=min(procedure.B, MOST_IN_SLICES))
    singles = []
    for value in sorted(set(column.tolist())):
        rows = np.flatnonzero(column == value)
        if len(rows) < FEWEST_IN_SLICE:
            few = f"{len(rows)} images, at least {FEWEST_IN_SLICE} needed"
            singles.append(Single(value, len(rows), Interval(np.nan, np.nan, np.nan, reason=few), np.nan, np.nan, None, few))
            continue
        sample = resamples(len(rows), rng=procedure.rng, B=procedure.B, subject=None if subject is None else subject[rows])
        draws = _partial_draws(models.profile_drawer(rows), sample)
        profiles = models.profiles(rows)[0]
        single = _single(value, len(rows), profiles, models.first.regions, procedure)
        limits = interval(single.interval.value, draws, procedure.level, CONSTANT)
        singles.append(replace(single, interval=limits))
    return tuple(singles)


def _partial_draws(draw: ProfileDrawer, sample: Resamples) -> Floats:
    """Partial correlations (B,) of resampled images, by the deciding partition."""
    return sample.apply(lambda counts: correlations_of(draw(counts)[0])[:, KINDS.index(PARTIAL)])


def _single(name: str, n: int, profiles: Floats, regions: Regions, procedure: Procedure) -> Single:
    """The partial correlation of profiles (3, R) of the deciding partition, without limits."""
    test = correlation_p(profiles, PARTIAL, regions, 0, procedure)
    value = float(correlations_of(profiles)[KINDS.index(PARTIAL)])
    maps = contribution_maps(*profiles)
    effective = _extent(maps.shortcut_part).effective
    return Single(name, n, Interval(value, np.nan, np.nan, reason=test.reason), test.p, effective, maps, test.reason)


def jitter_curve(models: Models) -> Floats:
    """Partial correlation (K,) after every image's map of the test models was moved at random by up to k cells.

    The references stay where they are: moving all models alike would only blur what they share.
    """
    if not len(models.first.steadiness.jitter):
        return np.zeros(0)
    # Mean profiles (K, R) of the moved maps of each role.
    test, baseline, attribute = (np.mean([m.steadiness.jittered for m in models.of(role)], axis=0) for role in ROLES)
    return np.array([partial(moved, attribute[0], baseline[0]) for moved in test])
