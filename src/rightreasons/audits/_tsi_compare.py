"""TSI's comparisons: several models on the same images, and the share of M-TSI > 1 against a balanced model or clean twins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import stats as distributions

from rightreasons.audits._tsi_measure import Measurement
from rightreasons.errors import NotRun
from rightreasons.stats import tokens
from rightreasons.stats.resampling import Interval, benjamini_hochberg, interval, resamples, share_interval, sums, whole
from rightreasons.stats.units import bootstrap_p

FEWEST = 30  # images (subjects, where known) that a comparison needs
TOLERANCE = 0.25
"""Share of images above 1 where nothing can be compared: networks without a cue stayed below 0.03 in planted worlds
(`make bench NAME=tsi-world`) and on photos of pets, those that lean on one lay above 0.27."""
FEWEST_SEEDS = 3  # balanced models from which their own spread can be told
ALL = "all sizes"
ALPHA = 0.05


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

    def values(self, field: str) -> np.ndarray:
        """(m, n) one field of every model."""
        return np.stack([getattr(m, field)[r] for m, r in zip(self.models, self.rows, strict=True)])

    @property
    def admissible(self) -> np.ndarray:
        return (self.group >= 0) & (self.group < 4)

    @property
    def subject(self) -> np.ndarray | None:
        first = self.models[0]
        return first.subject[self.rows[0]] if len(first.subject) else None


def panel(models: Sequence[Measurement]) -> Panel:
    first = models[0]
    common = set(first.id.tolist()).intersection(*(m.id.tolist() for m in models[1:]))
    if not common:
        raise NotRun("the models were measured on different images: extract all of them on the same cohort")
    ids = [i for i in first.id.tolist() if i in common]
    places = [dict(zip(m.id.tolist(), range(len(m.id)), strict=True)) for m in models]
    rows = np.array([[place[i] for i in ids] for place in places], dtype=np.int64).reshape(len(models), len(ids))
    right = np.stack([m.right[r] for m, r in zip(models, rows, strict=True)])
    correct = np.where(np.isnan(right).any(axis=0), np.nan, (right == 1).all(axis=0))
    group = tokens.coverage_group(first.covered[rows[0]], first.tokens)
    return Panel(tuple(models), _distinct([m.model for m in models]), rows, group, correct)


def coverage_names(T: int) -> tuple[str, ...]:
    edges = tokens.coverage_edges(T)
    quarters = [f"{low + 1}–{high} tokens" if high > low + 1 else f"{high} tokens" for low, high in pairwise(edges)]
    return (*quarters, f"over {edges[-1]} tokens")


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Names of models, numbered where several are called the same."""
    return tuple(
        f"{name} ({names[: k + 1].count(name)})" if list(names).count(name) > 1 else name for k, name in enumerate(names)
    )


@dataclass(frozen=True)
class Comparison:
    """Share of images with M-TSI > 1, overall (first) and within coverage groups, against the same images elsewhere.

    Attributes
    ----------
    against : "baseline", "twins", or "" where there is nothing to compare with
    share, other, difference : one interval a group; `other` and `difference` are empty without a comparison
    p, adjusted : (k,) two-sided, and Benjamini-Hochberg over the groups; NaN where a group is too small to be tested
    images, units : (k,) images in both, and subjects (or images) among them
    chance : (k,) mean of n_out / T: what exchanging influence between inside and outside gives; decides nothing
    above_seeds : whether the share lies above what balanced seeds vary by; None where there are too few of them
    """

    against: str
    names: tuple[str, ...]
    share: tuple[Interval, ...]
    other: tuple[Interval, ...]
    difference: tuple[Interval, ...]
    p: np.ndarray
    adjusted: np.ndarray
    images: np.ndarray
    units: np.ndarray
    chance: np.ndarray
    undefined: int
    above_seeds: bool | None
    seeds: str

    def significant(self, margin: float) -> tuple[int, ...]:
        """Groups whose difference lies above the margin."""
        return tuple(k for k, d in enumerate(self.difference) if self.adjusted[k] <= ALPHA and d.low > margin)


def compare(
    test: Sequence[Measurement], baseline: Sequence[Measurement], against: str, *, rng: np.random.Generator, B: int, level: float
) -> Comparison:
    """Compare with balanced models, with the tested models' own twins, or with nothing (`against` is empty)."""
    joint = panel([*test, *(baseline if against == "baseline" else ())])
    number = len(test)
    maximum = joint.values("maximum")
    hits = _hits(maximum[:number])
    other = np.full(len(hits), np.nan)
    if against == "baseline":
        other = _hits(maximum[number:])
    elif against == "twins":
        other = _hits(Panel(joint.models[:number], (), joint.rows[:number], joint.group, joint.correct).values("twin_maximum"))
    usable = joint.admissible & ~np.isnan(hits) & (~np.isnan(other) if against else True)
    undefined = int((joint.admissible & np.isnan(maximum).any(axis=0)).sum())
    first = joint.models[0]
    names = (ALL, *coverage_names(first.tokens)[:4])
    members = np.stack([usable, *(usable & (joint.group == g) for g in range(4))], axis=1)
    chance = 1 - first.covered[joint.rows[0]] / first.tokens
    above, spread = _above_seeds(hits, maximum[number:], usable) if against == "baseline" else (None, "")
    found = _shares(hits, np.nan_to_num(other), members, joint.subject, rng, B, level)
    share, second, difference, p, images, units = found
    testable = units >= FEWEST
    p = np.where(testable, p, np.nan)
    return Comparison(
        against,
        names,
        share,
        second if against else (),
        difference if against else (),
        p if against else np.full(len(names), np.nan),
        benjamini_hochberg(p) if against else np.full(len(names), np.nan),
        images,
        units,
        np.array([chance[m].mean() if m.any() else np.nan for m in members.T]),
        undefined,
        above,
        spread,
    )


def _hits(maximum: np.ndarray) -> np.ndarray:
    """(n,) share of the models (seeds) whose M-TSI exceeds 1; NaN where it is undefined for one of them."""
    return np.where(np.isnan(maximum).any(axis=0), np.nan, (np.nan_to_num(maximum) > 1).mean(axis=0))


def _above_seeds(hits: np.ndarray, baseline: np.ndarray, usable: np.ndarray) -> tuple[bool | None, str]:
    """One-sided prediction interval of a further balanced seed: images alone do not tell how much seeds differ."""
    k = len(baseline)
    if k < FEWEST_SEEDS or not usable.any():
        return None, f"{k} balanced model{'s' if k != 1 else ''}: how much seeds differ is not known ({FEWEST_SEEDS} needed)"
    shares = (np.nan_to_num(baseline[:, usable]) > 1).mean(axis=1)
    limit = shares.mean() + distributions.t.ppf(0.95, k - 1) * shares.std(ddof=1) * np.sqrt(1 + 1 / k)
    value = hits[usable].mean()
    return bool(value > limit), f"{value:.3f} against a limit of {limit:.3f} for a further balanced seed, from {k}"


def _shares(
    hits: np.ndarray,
    other: np.ndarray,
    members: np.ndarray,
    subject: np.ndarray | None,
    rng: np.random.Generator,
    B: int,
    level: float,
) -> tuple[tuple[Interval, ...], tuple[Interval, ...], tuple[Interval, ...], np.ndarray, np.ndarray, np.ndarray]:
    """Intervals of both shares and of their difference in every group (n, k), all from the same resamples."""
    k = members.shape[1]
    images = members.sum(axis=0)
    used = members[:, 0]
    if not used.any():
        empty = tuple(Interval(np.nan, np.nan, np.nan, reason="no image can be compared", level=level) for _ in range(k))
        return empty, empty, empty, np.full(k, np.nan), images, images
    inside = members[used].astype(np.float64)
    columns = np.concatenate([inside * hits[used, None], inside * other[used, None], inside], axis=1)
    units = images if subject is None else np.array([len(set(subject[m])) if m.any() else 0 for m in members.T])
    sample = resamples(int(used.sum()), rng=rng, B=B, subject=None if subject is None else subject[used])

    def both(counts: np.ndarray) -> np.ndarray:
        total = sums(counts, columns)
        size = np.tile(total[:, 2 * k :], 2)
        return np.divide(total[:, : 2 * k], size, out=np.full((len(total), 2 * k), np.nan), where=size > 0)

    drawn = sample.apply(both)
    point = both(whole(len(columns)))[0]
    why = "no image of this size"
    share = tuple(share_interval(point[g], drawn[:, g], units[g], level, why) for g in range(k))
    second = tuple(share_interval(point[k + g], drawn[:, k + g], units[g], level, why) for g in range(k))
    gaps, between = point[:k] - point[k:], drawn[:, :k] - drawn[:, k:]
    difference = tuple(interval(gaps[g], between[:, g], level, why) for g in range(k))
    p = np.array([bootstrap_p(gaps[g], between[:, g]) for g in range(k)])
    return share, second, difference, p, images, units
