"""TSI's comparisons: several models on the same images, and the share of M-TSI > 1 against a balanced model or clean twins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import stats as distributions

from rightreasons.audits.tsi.measurement import M_TSI, Measurement, Metric
from rightreasons.errors import NotRun
from rightreasons.stats import tokens
from rightreasons.stats.over_models import bootstrap_p
from rightreasons.stats.resampling import Interval, benjamini_hochberg, interval, resamples, share_interval, sums, whole

FEWEST = 30  # images (subjects, where known) that a comparison needs
TOLERANCE = 0.25
"""Share of images above 1 where nothing can be compared: networks without a cue stayed below 0.03 in planted worlds
(`make bench NAME=tsi-world`) and on photos of pets, those that lean on one lay above 0.27."""
FEWEST_SEEDS = 3  # balanced models from which their own spread can be told
ALL = "all sizes"
ALPHA = 0.05
BASELINE, TWINS, NOTHING = "baseline", "twins", ""  # what can be compared with


# ---- several models on the same images -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """Several models on the images that all of them were measured on.

    Attributes
    ----------
    rows : (m, n) where each image stands in each measurement
    group : (n,) coverage: 0..3, 4 where the object is too large, -1 where it covers no token
    correct : (n,) 1 where every model is right, 0 where one is wrong, NaN where the label is missing
    """

    models: tuple[Measurement, ...]
    names: tuple[str, ...]
    rows: np.ndarray
    group: np.ndarray
    correct: np.ndarray

    def values(self, of: Callable[[Measurement], np.ndarray]) -> np.ndarray:
        """(m, n) an array (n,) of every model."""
        return np.stack([of(m)[rows] for m, rows in zip(self.models, self.rows, strict=True)])

    def scores(self, metric: Metric) -> np.ndarray:
        """(m, n) M-TSI or A-TSI."""
        return self.values(lambda m: metric.of(m.scores))

    @property
    def admissible(self) -> np.ndarray:
        return tokens.is_admissible(self.group)

    @property
    def subject(self) -> np.ndarray | None:
        subject = self.models[0].images.subject
        if not len(subject):
            return None
        return subject[self.rows[0]]


def panel(models: Sequence[Measurement]) -> Panel:
    first = models[0]
    common = set(first.images.id.tolist()).intersection(*(m.images.id.tolist() for m in models[1:]))
    if not common:
        raise NotRun("the models were measured on different images: extract all of them on the same cohort")
    ids = [i for i in first.images.id.tolist() if i in common]
    rows = np.stack([_places(m, ids) for m in models])
    right = np.stack([m.images.right[r] for m, r in zip(models, rows, strict=True)])
    correct = np.where(np.isnan(right).any(axis=0), np.nan, (right == 1).all(axis=0))
    group = tokens.coverage_group(first.images.covered[rows[0]], first.influence.tokens)
    return Panel(tuple(models), _distinct([m.model for m in models]), rows, group, correct)


def _places(m: Measurement, ids: Sequence[str]) -> np.ndarray:
    """Where images stand in a measurement."""
    place = {i: row for row, i in enumerate(m.images.id.tolist())}
    return np.array([place[i] for i in ids], dtype=np.int64)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Names of models, numbered where several are called the same."""
    distinct = []
    for k, name in enumerate(names):
        several = list(names).count(name) > 1
        distinct.append(f"{name} ({names[: k + 1].count(name)})" if several else name)
    return tuple(distinct)


def coverage_names(T: int) -> tuple[str, ...]:
    """The coverage groups in words, objects that are too large last."""
    edges = tokens.coverage_edges(T)
    quarters = []
    for low, high in pairwise(edges):
        quarters.append(f"{low + 1}–{high} tokens" if high > low + 1 else f"{high} tokens")
    return (*quarters, f"over {edges[-1]} tokens")


# ---- the comparison ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares:
    """Share of images with M-TSI > 1 in one coverage group, against the same images elsewhere.

    Attributes
    ----------
    other, difference : None without a comparison
    p, adjusted : two-sided, and Benjamini-Hochberg over the groups; NaN where the group is too small to be tested
    images, units : images in both, and subjects (or images) among them
    chance : mean of n_out / T: what exchanging influence between inside and outside gives; decides nothing
    """

    name: str
    share: Interval
    other: Interval | None
    difference: Interval | None
    p: float
    adjusted: float
    images: int
    units: int
    chance: float

    def exceeds(self, margin: float) -> bool:
        """Whether the difference surely lies above the margin."""
        return self.difference is not None and bool(self.adjusted <= ALPHA and self.difference.low > margin)

    def falls_below(self, margin: float) -> bool:
        """Whether it surely lies as far on the other side."""
        return self.difference is not None and self.difference.high < -margin


@dataclass(frozen=True)
class Comparison:
    """The tested models against balanced ones, twins or nothing.

    Attributes
    ----------
    against : "baseline", "twins", or "" where there is nothing to compare with
    groups : all sizes first, then the coverage groups
    undefined : admissible images whose M-TSI is undefined for one of the models
    above_seeds : whether the share lies above what balanced seeds vary by; None where there are too few of them
    seeds : the same in words
    """

    against: str
    groups: tuple[Shares, ...]
    undefined: int
    above_seeds: bool | None
    seeds: str

    @property
    def overall(self) -> Shares:
        return self.groups[0]

    def significant(self, margin: float) -> tuple[Shares, ...]:
        """Groups whose difference lies above the margin."""
        return tuple(group for group in self.groups if group.exceeds(margin))


def compare(
    test: Sequence[Measurement], baseline: Sequence[Measurement], against: str, *, rng: np.random.Generator, B: int, level: float
) -> Comparison:
    """Compare with balanced models, with the tested models' own twins, or with nothing (`against` is empty)."""
    joint = panel([*test, *(baseline if against == BASELINE else ())])
    maximum = joint.scores(M_TSI)
    tested, balanced = maximum[: len(test)], maximum[len(test) :]
    hits = _hits(tested)
    if against == BASELINE:
        other = _hits(balanced)
    elif against == TWINS:
        other = _hits(joint.values(lambda m: m.twins.maximum))
    else:
        other = np.zeros(len(hits))
    usable = joint.admissible & ~np.isnan(hits) & ~np.isnan(other)
    if against == BASELINE:
        spread = _above_seeds(hits, balanced, usable)
    else:
        spread = SeedSpread(None, "")
    return Comparison(
        against=against,
        groups=_by_coverage(joint, hits, other, usable, against != NOTHING, _Bootstrap(rng, B, level)),
        undefined=int((joint.admissible & np.isnan(maximum).any(axis=0)).sum()),
        above_seeds=spread.above,
        seeds=spread.said,
    )


def _hits(maximum: np.ndarray) -> np.ndarray:
    """(n,) share of the models (seeds) whose M-TSI exceeds 1; NaN where it is undefined for one of them."""
    return np.where(np.isnan(maximum).any(axis=0), np.nan, (np.nan_to_num(maximum) > 1).mean(axis=0))


@dataclass(frozen=True)
class SeedSpread:
    """Whether a share lies above what balanced seeds vary by, and in words."""

    above: bool | None
    said: str


def _above_seeds(hits: np.ndarray, baseline: np.ndarray, usable: np.ndarray) -> SeedSpread:
    """One-sided prediction interval of a further balanced seed: images alone do not tell how much seeds differ."""
    k = len(baseline)
    if k < FEWEST_SEEDS or not usable.any():
        models = "1 balanced model"
        if k != 1:
            models = f"{k} balanced models"
        return SeedSpread(None, f"{models}: how much seeds differ is not known ({FEWEST_SEEDS} needed)")
    shares = (np.nan_to_num(baseline[:, usable]) > 1).mean(axis=1)
    limit = shares.mean() + distributions.t.ppf(0.95, k - 1) * shares.std(ddof=1) * np.sqrt(1 + 1 / k)
    value = hits[usable].mean()
    return SeedSpread(bool(value > limit), f"{value:.3f} against a limit of {limit:.3f} for a further balanced seed, from {k}")


@dataclass(frozen=True)
class _Bootstrap:
    rng: np.random.Generator
    B: int
    level: float


def _by_coverage(
    joint: Panel, hits: np.ndarray, other: np.ndarray, usable: np.ndarray, compares: bool, bootstrap: _Bootstrap
) -> tuple[Shares, ...]:
    """Both shares and their difference, overall and in every coverage group, all from the same resamples."""
    first = joint.models[0]
    T = first.influence.tokens
    names = (ALL, *coverage_names(T)[: tokens.TOO_LARGE])
    members = np.stack([usable, *(usable & (joint.group == quarter) for quarter in range(tokens.TOO_LARGE))], axis=1)
    outside = 1 - first.images.covered[joint.rows[0]] / T
    estimated = _estimated_shares(hits, other, members, joint.subject, bootstrap)
    testable = np.array([each.units >= FEWEST for each in estimated])
    p = np.where(testable & compares, [each.p for each in estimated], np.nan)
    adjusted = benjamini_hochberg(p)
    points = []
    for k, (name, each) in enumerate(zip(names, estimated, strict=True)):
        inside = members[:, k]
        points.append(
            Shares(
                name=name,
                share=each.share,
                other=each.other if compares else None,
                difference=each.difference if compares else None,
                p=float(p[k]),
                adjusted=float(adjusted[k]),
                images=int(inside.sum()),
                units=each.units,
                chance=float(outside[inside].mean()) if inside.any() else np.nan,
            )
        )
    return tuple(points)


@dataclass(frozen=True)
class _Estimated:
    """Two shares on the same images, their difference, and its two-sided p."""

    share: Interval
    other: Interval
    difference: Interval
    p: float
    units: int


def _estimated_shares(
    hits: np.ndarray, other: np.ndarray, members: np.ndarray, subject: np.ndarray | None, bootstrap: _Bootstrap
) -> list[_Estimated]:
    """For every group (n, k)."""
    k, level = members.shape[1], bootstrap.level
    used = members[:, 0]
    if not used.any():
        none = Interval(np.nan, np.nan, np.nan, reason="no image can be compared", level=level)
        return [_Estimated(none, none, none, np.nan, 0)] * k
    inside = members[used].astype(np.float64)
    columns = np.concatenate([inside * hits[used, None], inside * other[used, None], inside], axis=1)
    rows = None
    if subject is not None:
        rows = subject[used]
    sample = resamples(int(used.sum()), rng=bootstrap.rng, B=bootstrap.B, subject=rows)

    def both(counts: np.ndarray) -> np.ndarray:
        """(b, 2 k) both shares in every resample."""
        total = sums(counts, columns)
        size = np.tile(total[:, 2 * k :], 2)
        return np.divide(total[:, : 2 * k], size, out=np.full((len(total), 2 * k), np.nan), where=size > 0)

    drawn, point = sample.apply(both), both(whole(len(columns)))[0]
    why = "no image of this size"
    shares = []
    for g in range(k):
        units = _units(members[:, g], subject)
        gap, gaps = point[g] - point[k + g], drawn[:, g] - drawn[:, k + g]
        shares.append(
            _Estimated(
                share=share_interval(point[g], drawn[:, g], units, level, why),
                other=share_interval(point[k + g], drawn[:, k + g], units, level, why),
                difference=interval(gap, gaps, level, why),
                p=bootstrap_p(gap, gaps),
                units=units,
            )
        )
    return shares


def _units(chosen: np.ndarray, subject: np.ndarray | None) -> int:
    """Subjects among the images chosen, or images where subjects are not known."""
    if subject is None:
        return int(chosen.sum())
    return len(set(subject[chosen]))
