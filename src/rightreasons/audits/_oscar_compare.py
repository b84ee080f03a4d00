"""OSCAR's numbers over three models: correlations of profiles with intervals and p-values, contributions, replicates, slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rightreasons.audits._oscar_measurement import Drawer, Measurement
from rightreasons.errors import DataError
from rightreasons.stats.contributions import ContributionMaps, contribution_maps
from rightreasons.stats.correlation import deviation, partial, pearson
from rightreasons.stats.profiles import Spread, rank_regions, spread
from rightreasons.stats.replicates import Replicates, replicates
from rightreasons.stats.resampling import Counts, Interval, Resamples, interval, resamples, whole
from rightreasons.stats.spatial import NullTest, correlation_test

Floats = NDArray[np.float64]

ROLES = ("test", "baseline", "attribute")
KINDS = ("partial", "deviation", "test and attribute", "test and baseline", "baseline and attribute")
COEFFICIENTS = ("Pearson", "Spearman")
CONSTANT = "a profile is constant, or nothing of it is left beside the baseline's"
FEWEST_IN_SLICE = 20


@dataclass(frozen=True)
class Models:
    """The measurements of the three roles on the images that all of them share.

    Attributes
    ----------
    rows : for every model, which of its rows are the shared ones, in the same order
    """

    test: tuple[Measurement, ...]
    baseline: tuple[Measurement, ...]
    attribute: tuple[Measurement, ...]
    rows: dict[int, np.ndarray]

    @property
    def first(self) -> Measurement:
        return self.test[0]

    @property
    def all(self) -> tuple[Measurement, ...]:
        return self.test + self.baseline + self.attribute

    @property
    def n(self) -> int:
        return len(self.rows[id(self.first)])

    def of(self, column: str) -> np.ndarray:
        """A column (n,) of the shared rows, as the test model has it."""
        return np.asarray(getattr(self.first, column))[self.rows[id(self.first)]]

    def drawer(self, subset: np.ndarray | None = None) -> Drawer:
        """Mean profiles of the three roles, (B, 3, R) of every partition, as a function of counts (B, n) of resamples.

        `subset` are positions among the shared rows.
        """
        made = {role: [m.drawer(self._rows(m, subset)) for m in getattr(self, role)] for role in ROLES}

        def draw(counts: Counts) -> list[Floats]:
            means = [[np.mean(same, axis=0) for same in zip(*(one(counts) for one in made[role]), strict=True)] for role in ROLES]
            return [np.stack(of_roles, axis=1) for of_roles in zip(*means, strict=True)]

        return draw

    def profiles(self, subset: np.ndarray | None = None) -> list[Floats]:
        """Mean profiles (3, R) of the three roles, for every partition."""
        n = self.n if subset is None else len(subset)
        return [p[0] for p in self.drawer(subset)(whole(n))]

    def own(self, role: str) -> list[Floats]:
        """The profile (R,) of every model of a role, by the deciding partition."""
        return [m.drawer(self.rows[id(m)])(whole(self.n))[0][0] for m in getattr(self, role)]

    def _rows(self, m: Measurement, subset: np.ndarray | None) -> np.ndarray:
        return self.rows[id(m)] if subset is None else self.rows[id(m)][subset]


def shared(test: Sequence[Measurement], baseline: Sequence[Measurement], attribute: Sequence[Measurement]) -> Models:
    """The models on the images that all of them were measured on; models cut by different regions cannot be compared."""
    every = [*test, *baseline, *attribute]
    first = every[0]
    for other in every:
        if (
            other.partition != first.partition
            or other.regions.shape != first.regions.shape
            or not np.array_equal(other.regions, first.regions)
            or (other.how, other.order, other.attribute) != (first.how, first.order, first.attribute)
        ):
            raise DataError(
                f"{first.model} and {other.model} were cut by different regions ({', '.join(first.partition)} of "
                f"{first.regions.shape[1:]} and {', '.join(other.partition)} of {other.regions.shape[1:]}), or summed up "
                "differently: measure all models with the same settings and input size"
            )
    common = set(first.id).intersection(*(m.id for m in every))
    order = [i for i in first.id if i in common]
    rows = {}
    for m in every:
        place = {i: k for k, i in enumerate(m.id)}
        rows[id(m)] = np.array([place[i] for i in order], dtype=np.int64)
    return Models(tuple(test), tuple(baseline), tuple(attribute), rows)


# ---- correlations --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Correlation:
    """One correlation of one partition, with both p-values beside each other."""

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

    def correlation(self, kind: str = "partial", coefficient: str = "Pearson") -> Correlation:
        return next(c for c in self.correlations if (c.kind, c.coefficient) == (kind, coefficient))


def correlations_of(profiles: Floats) -> Floats:
    """The correlations of `KINDS` (..., 5) of test, baseline and attribute profiles (..., 3, R)."""
    test, baseline, attribute = (profiles[..., k, :] for k in range(3))
    found = (
        partial(test, attribute, baseline),
        deviation(test, attribute, baseline),
        pearson(test, attribute),
        pearson(test, baseline),
        pearson(baseline, attribute),
    )
    return np.stack(found, axis=-1)


def compare(
    models: Models, sample: Resamples, *, null: str | None, B: int, level: float, rng: np.random.Generator
) -> tuple[Compared, ...]:
    """Every partition, all models resampled by the same images."""
    point, draw = models.profiles(), models.drawer()
    draws = sample.apply(lambda counts: _both_coefficients(draw(counts)))
    both = _both_coefficients([p[None] for p in point])[0]
    return tuple(_compared(models.first, k, point[k], both[k], draws[:, k], null, B, level, rng) for k in range(len(point)))


def _both_coefficients(profiles: Sequence[Floats]) -> Floats:
    """(b, P, 2, 5): Pearson and Spearman of every partition, profiles (b, 3, R) each."""
    return np.stack([np.stack([correlations_of(p), correlations_of(_ranks(p))], axis=1) for p in profiles], axis=1)


def _ranks(profiles: Floats) -> Floats:
    """Ranks over the regions; Spearman's correlations are those of ranked profiles."""
    flat = profiles.reshape(-1, profiles.shape[-1])
    told = np.isfinite(flat).all(axis=1)
    out = np.full(flat.shape, np.nan)
    if told.any():
        out[told] = rank_regions(flat[told])
    return out.reshape(profiles.shape)


def _compared(
    m: Measurement,
    k: int,
    profiles: Floats,
    value: Floats,
    draws: Floats,
    null: str | None,
    B: int,
    level: float,
    rng: np.random.Generator,
) -> Compared:
    found = []
    for c, coefficient in enumerate(COEFFICIENTS):
        of = profiles if coefficient == "Pearson" else _ranks(profiles)
        for j, kind in enumerate(KINDS):
            spatial = tested(of, kind, m, k, null, rng, B)
            # The plain tests stand beside the deciding coefficient only.
            plain = [tested(of, kind, m, k, name, rng, B).p for name in ("permutation", "paper")] if c == 0 else [np.nan] * 2
            limits = interval(float(value[c, j]), draws[:, c, j], level, CONSTANT)
            found.append(Correlation(m.partition[k], kind, coefficient, limits, spatial, *plain))
    maps = contribution_maps(*profiles)
    part = maps.shortcut_part
    extent = spread(part) if np.isfinite(part).all() else Spread(np.nan, np.nan, np.nan, CONSTANT)
    return Compared(m.partition[k], profiles, tuple(found), maps, extent, reach(part, m.centroids[m.part(k)]))


def tested(profiles: Floats, kind: str, m: Measurement, k: int, null: str | None, rng: np.random.Generator, B: int) -> NullTest:
    """The test of one correlation of profiles (3, R) under one null; by default the spatial one of this partition."""
    test, baseline, attribute = profiles
    pair = {
        "test and attribute": (test, attribute),
        "test and baseline": (test, baseline),
        "baseline and attribute": (baseline, attribute),
    }
    a, b = pair.get(kind, (test, attribute))
    given = None if kind in pair else baseline
    if not np.isfinite(profiles).all():
        return NullTest(null or "", np.nan, np.nan, np.nan, 0, CONSTANT)
    cells = tuple(int(c) for c in m.cells[k]) if m.cells[k].all() else None
    return correlation_test(
        a,
        b,
        given,
        null=null,
        centroids=m.centroids[m.part(k)],
        cells=cells,
        rng=rng,
        B=B,
        kind="deviation" if kind == "deviation" else "partial",
    )


def reach(weight: Floats, centroids: Floats) -> float:
    """Root mean square distance of regions (R, axes) from their weighted centre, over the same with equal weights.

    NaN where no weight is positive. Two places far apart reach far and are still few regions: `spread` tells these.
    """
    if not np.isfinite(weight).all() or not weight.sum() > 0:
        return np.nan
    distance = [
        np.average(np.sum((centroids - np.average(centroids, axis=0, weights=w)) ** 2, axis=1), weights=w)
        for w in (weight, np.ones(len(weight)))
    ]
    return float(np.sqrt(distance[0] / distance[1]))


# ---- seeds, replicates, slices, jitter -----------------------------------------------------------------------------------


def among_replicates(models: Models, alpha: float) -> Replicates:
    """Where the test models lie among the balanced ones, by the deciding partition."""
    attribute = np.mean(models.own("attribute"), axis=0)
    return replicates(np.stack(models.own("test")), np.stack(models.own("baseline")), attribute, alpha)


@dataclass(frozen=True)
class Single:
    """One test model, or one slice of the images, by the deciding partition.

    Attributes
    ----------
    maps : its contribution scores; None where there were too few images
    """

    name: str
    n: int
    interval: Interval
    p: float
    effective: float
    maps: ContributionMaps | None
    reason: str = ""


def by_seed(models: Models, null: str | None, B: int, rng: np.random.Generator) -> tuple[Single, ...]:
    """Every test model on its own, against the mean profiles of the references."""
    _, baseline, attribute = models.profiles()[0]
    found = []
    for m, own in zip(models.test, models.own("test"), strict=True):
        one = np.stack([own, baseline, attribute])
        found.append(_single(m.model, models.n, one, None, models, null, B, 0.95, rng))
    return tuple(found)


def by_slice(models: Models, null: str | None, B: int, level: float, rng: np.random.Generator) -> tuple[Single, ...]:
    """The images of every value of the slicing column on their own."""
    if not models.first.slices:
        return ()
    column, subject = models.of("slices"), models.of("subject") if models.first.subject else None
    found = []
    for value in sorted(set(column.tolist())):
        rows = np.flatnonzero(column == value)
        if len(rows) < FEWEST_IN_SLICE:
            few = f"{len(rows)} images, at least {FEWEST_IN_SLICE} needed"
            found.append(Single(value, len(rows), Interval(np.nan, np.nan, np.nan, reason=few), np.nan, np.nan, None, few))
            continue
        sample = resamples(len(rows), rng=rng, B=B, subject=None if subject is None else subject[rows])
        draw = models.drawer(rows)
        draws = sample.apply(lambda counts, draw=draw: correlations_of(draw(counts)[0])[:, 0])  # type: ignore[misc]
        found.append(_single(value, len(rows), models.profiles(rows)[0], draws, models, null, B, level, rng))
    return tuple(found)


def _single(
    name: str,
    n: int,
    profiles: Floats,
    draws: Floats | None,
    models: Models,
    null: str | None,
    B: int,
    level: float,
    rng: np.random.Generator,
) -> Single:
    test = tested(profiles, "partial", models.first, 0, null, rng, B)
    value = float(correlations_of(profiles)[0])
    limits = Interval(value, np.nan, np.nan, reason=test.reason) if draws is None else interval(value, draws, level, CONSTANT)
    maps = contribution_maps(*profiles)
    part = maps.shortcut_part
    effective = spread(part).effective if np.isfinite(part).all() else np.nan
    return Single(name, n, limits, test.p, effective, maps, test.reason)


def jitter_curve(models: Models) -> Floats:
    """Partial correlation (K,) after every image's map of the test models was moved at random by up to k cells.

    The references stay where they are: moving all models alike would only blur what they share.
    """
    test, baseline, attribute = (np.mean([m.jittered for m in getattr(models, role)], axis=0) for role in ROLES)
    return np.array([partial(moved, attribute[0], baseline[0]) for moved in test])
