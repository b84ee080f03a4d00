"""What is known of one model beside its maps: which rows, how accurate, whether the attribute leaks, how steady its maps are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rightreasons.data.cohort import Attribute, Cohort
from rightreasons.errors import NotRun
from rightreasons.evidence import Evidence, View
from rightreasons.stats import groups, probes
from rightreasons.stats.profiles import profile, rank_regions
from rightreasons.stats.resampling import Interval, Resamples, interval

Floats = NDArray[np.float64]

JITTER = (0, 1, 2, 4, 8)
NAN = Interval(np.nan, np.nan, np.nan)


# ---- rows ----------------------------------------------------------------------------------------------------------------


def audited_attribute(view: View, attribute: str | None) -> Attribute:
    """The attribute, if it has groups that can be balanced."""
    if not view.cohort.attributes:
        raise NotRun("no attribute: name one with attribute=")
    a = view.cohort.attribute(attribute)
    if a.kind == "continuous":
        raise NotRun(f"{a.name} is continuous and OSCAR compares groups: needs bins, give bins={{{a.name!r}: […]}}")
    return a


def balanced_rows(cohort: Cohort, a: Attribute, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows (sorted) in which the attribute is balanced within every label, and the sizes (C, A) of the groups before.

    A label that lacks an attribute value cannot be balanced and is left out; if all do, every row stays, unbalanced. Which rows
    stay depends on their ids alone, so that models that see the same rows keep the same.
    """
    salt = int(rng.integers(2**63))
    known = (cohort.label >= 0) & a.present
    sizes = np.zeros((len(cohort.classes), len(a.levels)), dtype=np.int64)
    np.add.at(sizes, (cohort.label[known], a.values[known]), 1)
    smallest = sizes.min(axis=1)
    if not smallest.any():
        return np.flatnonzero(known), sizes
    lot = np.array([hashlib.blake2b(f"{salt} {i}".encode(), digest_size=8).digest() for i in cohort.id])
    kept = []
    for y, v in np.ndindex(*sizes.shape):
        rows = np.flatnonzero(known & (cohort.label == y) & (a.values == v))
        kept.append(rows[np.argsort(lot[rows], kind="stable")][: smallest[y]])
    return np.sort(np.concatenate(kept)), sizes


# ---- how steady its maps are ---------------------------------------------------------------------------------------------


def jitters(cells: tuple[int, ...]) -> tuple[int, ...]:
    """By how many cells maps are moved: up to half the grid, where nothing of a place is left."""
    return tuple(k for k in JITTER if k <= max(cells) // 2)


def jittered_profiles(scores: Floats, cells: tuple[int, ...], how: str, rng: np.random.Generator) -> Floats:
    """Profiles (K, R) of grid scores (n, R), every image moved at random by up to k cells of `jitters`, around the rim."""
    n, axes = len(scores), len(cells)
    whole = scores.reshape(n, *cells)
    image = np.arange(n).reshape(n, *(1,) * axes)
    found = []
    for k in jitters(cells):
        offsets = rng.integers(-k, k + 1, size=(n, axes))
        index = [
            ((np.arange(c) + offsets[:, axis, None]) % c).reshape(n, *(c if j == axis else 1 for j in range(axes)))
            for axis, c in enumerate(cells)
        ]
        found.append(profile(rank_regions(whole[(image, *index)].reshape(n, -1)), how))
    return np.stack(found)


def agreement(ranks: Floats) -> float:
    """Mean over images of the correlation of its ranks with the mean ranks of all others; NaN with fewer than two that tell."""
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    others = centred.sum(axis=0) - centred
    norm = np.linalg.norm(centred, axis=1) * np.linalg.norm(others, axis=1)
    told = norm > 0
    return float(np.mean(np.sum(centred[told] * others[told], axis=1) / norm[told])) if told.sum() > 1 else np.nan


def widths(scores: Floats) -> tuple[float, float]:
    """Effective number of regions of a single map (median over images) and of the mean of all; scores (n, R) not negative.

    A cue that every image has in one place makes the two alike; one with no fixed place makes the mean much wider.
    """
    total = scores.sum(axis=1)
    share = scores[total > 0] / total[total > 0, None]
    if not len(share):
        return np.nan, np.nan
    return float(np.median(_effective(share))), float(_effective(share.mean(axis=0, keepdims=True))[0])


def _effective(share: Floats) -> Floats:
    return np.exp(-np.sum(share * np.log(np.where(share > 0, share, 1.0)), axis=1))


# ---- what it decides and what it carries ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decided:
    accuracy: Interval
    chance: float
    worst_group: float
    group_accuracy: Floats


def decided(view: View, a: Attribute, sample: Resamples) -> Decided:
    """Balanced accuracy of the model's own target on these rows, and the accuracy of the groups where that is the label."""
    sizes = (len(view.cohort.classes), len(a.levels))
    label, nothing = view.label, np.full(sizes, np.nan)
    if "logits" not in view or not (label >= 0).any():
        reason = "no logits on the test rows"
        return Decided(Interval(np.nan, np.nan, np.nan, reason=reason), np.nan, np.nan, nothing)
    predicted = view["logits"].argmax(axis=1)
    value = groups.balanced_accuracy(label, predicted)
    found = interval(value, sample.apply(lambda counts: groups.balanced_accuracy_draws(label, predicted, counts)))
    chance = 1 / len(np.unique(label[label >= 0]))
    if predicts(view) != view.cohort.label_name:
        return Decided(found, chance, np.nan, nothing)
    level = view.cohort.attribute(a.name).values
    by_group, codes = nothing.copy(), view.cohort.label
    for y, v in np.ndindex(*sizes):
        rows = (codes == y) & (level == v)
        by_group[y, v] = np.mean(predicted[rows] == label[rows]) if rows.any() else np.nan
    return Decided(found, chance, groups.worst_group_accuracy(label, predicted, level), by_group)


@dataclass(frozen=True)
class Carried:
    leakage: Interval = NAN
    within: Interval = NAN
    accuracy: float = np.nan
    worst: float = np.nan
    flips: float = np.nan
    reason: str = ""


def carried(evidence: Evidence, view: View, a: Attribute, sample: Resamples) -> Carried:
    """Does the attribute leak into the features, and does the decision hang on that one direction (sec. V-A, App. A2)?

    The probe is fitted on audit rows and read on the balanced test rows. Its direction is then taken out of the test rows'
    features, and the model's own head decides again.
    """
    if predicts(view) == a.name:
        return Carried(reason="the model predicts the attribute")
    lacking = [name for name in ("audit", "test") if name not in evidence.cohorts or "features" not in evidence.on(name)]
    if lacking:
        return Carried(reason=f"no features on {' and '.join(lacking)} rows")
    audit = evidence.on("audit")
    rows = np.flatnonzero((audit.label >= 0) & audit.cohort.attribute(a.name).present)
    if len(rows) == 0 or len(np.unique(audit.cohort.attribute(a.name).values[rows])) < 2:
        return Carried(reason="no audit rows of two attribute values")
    audit = audit.select(rows)
    z, fit_z = view["features"].astype(np.float64), audit["features"].astype(np.float64)
    level, fit_level = view.cohort.attribute(a.name).values, audit.cohort.attribute(a.name).values
    to_fit, to_read = probes.Rows(fit_z, audit.label, fit_level), probes.Rows(z, view.label, level)
    reading = probes.read(to_fit, to_read, target="global", resamples=sample)
    found = (reading.auc or NAN, reading.within_auc or NAN)
    if evidence.head is None:
        return Carried(*found, reason="the head is not known, so that nothing can be decided again")
    probe = probes.fit(fit_z, fit_level, weight=probes.equal_weights(fit_level))
    before = evidence.head(z).argmax(axis=1)
    after = evidence.head(without_direction(z, probe)).argmax(axis=1)
    return Carried(
        *found,
        accuracy=groups.balanced_accuracy(view.label, after),
        worst=groups.worst_group_accuracy(view.label, after, level),
        flips=float(np.mean(before != after)),
    )


def without_direction(features: Floats, probe: probes.Probe) -> Floats:
    """Features (n, d) with the span of a probe's directions projected out, about the probe's mean (App. A2)."""
    directions = (probe.weight - probe.weight.mean(axis=0)) / probe.scale
    _, size, basis = np.linalg.svd(directions, full_matrices=False)
    basis = basis[size > 1e-10 * max(size.max(initial=0.0), 1e-300)]
    centred = features - probe.mean
    return features - centred @ basis.T @ basis


def predicts(view: View) -> str:
    """Name of the column that the model predicts."""
    return view.evidence.card.target or view.cohort.label_name


def association(training: Cohort | None, attribute: str) -> tuple[float, int]:
    """Cramér's V of label and attribute in the training rows, and their number; NaN and 0 where they are unknown."""
    if training is None or attribute not in training.attributes:
        return np.nan, 0
    table = training.counts(attribute).to_numpy().astype(np.float64)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    n = table.sum()
    if min(table.shape, default=0) < 2:
        return np.nan, int(n)
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / n
    return float(np.sqrt(np.sum((table - expected) ** 2 / expected) / n / (min(table.shape) - 1))), int(n)


def conservation_error(view: View, recipe: str) -> float:
    """Median over images of |relevance + what was given away - score| / |score|; NaN where the method keeps no such count."""
    if recipe not in view:
        return np.nan
    total, taken, score = view[recipe].astype(np.float64).T
    told = np.abs(score) > 0
    return float(np.median(np.abs(total + taken - score)[told] / np.abs(score)[told])) if told.any() else np.nan
