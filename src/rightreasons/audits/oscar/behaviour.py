"""What is known of one model beside its maps: how it decides, whether the attribute leaks, and what it was trained on.

The paper compares its models by worst-group accuracy and probes their features (sec. IV-C, V-A), and removes the probe's
direction from them (App. A2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rightreasons.data.cohort import Attribute, Cohort
from rightreasons.evidence import Evidence, View
from rightreasons.stats import groups, probes
from rightreasons.stats.resampling import Interval, Resamples, interval

Floats = NDArray[np.float64]

UNKNOWN = Interval(np.nan, np.nan, np.nan)


def predicted_column(view: View) -> str:
    """Name of the column that the model predicts."""
    return view.evidence.card.target or view.cohort.label_name


# ---- decisions -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decisions:
    """How well the model decides on the balanced rows.

    Attributes
    ----------
    accuracy : balanced accuracy of the model's own target
    chance : balanced accuracy of a constant answer
    worst_group : accuracy of the worst group; NaN where the model does not predict the label
    group_accuracy : (C, A) accuracy of every group; NaN where the model does not predict the label
    """

    accuracy: Interval
    chance: float
    worst_group: float
    group_accuracy: Floats


def decisions_of(view: View, a: Attribute, sample: Resamples) -> Decisions:
    """Balanced accuracy of the model's own target, and the accuracy of the groups where that target is the label (sec. IV-C)."""
    sizes = (len(view.cohort.classes), len(a.levels))
    label, unknown = view.label, np.full(sizes, np.nan)
    if "logits" not in view or not (label >= 0).any():
        reason = "no logits on the test rows"
        return Decisions(Interval(np.nan, np.nan, np.nan, reason=reason), np.nan, np.nan, unknown)
    predicted = view["logits"].argmax(axis=1)
    value = groups.balanced_accuracy(label, predicted)
    accuracy = interval(value, sample.apply(lambda counts: groups.balanced_accuracy_draws(label, predicted, counts)))
    chance = 1 / len(np.unique(label[label >= 0]))
    if predicted_column(view) != view.cohort.label_name:
        return Decisions(accuracy, chance, np.nan, unknown)
    level = view.cohort.attribute(a.name).values
    by_group = unknown.copy()
    for y, v in np.ndindex(*sizes):
        rows = (view.cohort.label == y) & (level == v)
        if rows.any():
            by_group[y, v] = np.mean(predicted[rows] == label[rows])
    return Decisions(accuracy, chance, groups.worst_group_accuracy(label, predicted, level), by_group)


# ---- leakage -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leakage:
    """What a linear probe reads of the attribute from the features, and how decisions fare without its direction.

    Attributes
    ----------
    auc, within_auc : AUC of the probe over all rows, and within the label
    removed_accuracy, removed_worst : balanced and worst-group accuracy when the probe's direction is taken out of the features
    removed_flips : share of decisions that change with it
    reason : why some of these are undefined
    """

    auc: Interval = UNKNOWN
    within_auc: Interval = UNKNOWN
    removed_accuracy: float = np.nan
    removed_worst: float = np.nan
    removed_flips: float = np.nan
    reason: str = ""


def leakage_of(evidence: Evidence, view: View, a: Attribute, sample: Resamples) -> Leakage:
    """Does the attribute leak into the features (sec. V-A), and do decisions hang on that one direction (App. A2)?

    The probe is fitted on audit rows and read on the balanced test rows. Its direction is then taken out of the test rows'
    features, and the model's own head decides again.
    """
    if predicted_column(view) == a.name:
        return Leakage(reason="the model predicts the attribute")
    lacking = []
    for name in ("audit", "test"):
        if name not in evidence.cohorts or "features" not in evidence.on(name):
            lacking.append(name)
    if lacking:
        return Leakage(reason=f"no features on {' and '.join(lacking)} rows")
    audit = evidence.on("audit")
    rows = np.flatnonzero((audit.label >= 0) & audit.cohort.attribute(a.name).present)
    if len(np.unique(audit.cohort.attribute(a.name).values[rows])) < 2:
        return Leakage(reason="no audit rows of two attribute values")
    audit = audit.select(rows)
    z, fit_z = view["features"].astype(np.float64), audit["features"].astype(np.float64)
    level, fit_level = view.cohort.attribute(a.name).values, audit.cohort.attribute(a.name).values
    fitted, judged = probes.Sample(fit_z, audit.label, fit_level), probes.Sample(z, view.label, level)
    reading = probes.read(fitted, judged, target="global", resamples=sample)
    auc, within = reading.auc or UNKNOWN, reading.within_auc or UNKNOWN
    if evidence.head is None:
        return Leakage(auc, within, reason="the head is not known, so the model cannot decide again")
    probe = probes.fit(fit_z, fit_level, weight=probes.equal_weights(fit_level))
    before = evidence.head(z).argmax(axis=1)
    after = evidence.head(without_direction(z, probe)).argmax(axis=1)
    return Leakage(
        auc,
        within,
        removed_accuracy=groups.balanced_accuracy(view.label, after),
        removed_worst=groups.worst_group_accuracy(view.label, after, level),
        removed_flips=float(np.mean(before != after)),
    )


def without_direction(features: Floats, probe: probes.Probe) -> Floats:
    """Features (n, d) with the span of a probe's directions projected out, about the probe's mean (App. A2)."""
    directions = (probe.weight - probe.weight.mean(axis=0)) / probe.scale
    _, size, basis = np.linalg.svd(directions, full_matrices=False)
    basis = basis[size > 1e-10 * max(size.max(initial=0.0), 1e-300)]
    centred = features - probe.mean
    return features - centred @ basis.T @ basis


# ---- training rows and relevance -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """The rows that the model was trained on.

    Attributes
    ----------
    association : Cramér's V of label and attribute; NaN where it is unknown
    rows : their number; 0 where they are unknown
    """

    association: float
    rows: int


def training_of(training: Cohort | None, attribute: str) -> Training:
    """How strongly label and attribute go together in the training rows (sec. III-C)."""
    if training is None or attribute not in training.attributes:
        return Training(np.nan, 0)
    table = training.counts(attribute).to_numpy().astype(np.float64)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    n = table.sum()
    if min(table.shape, default=0) < 2:
        return Training(np.nan, int(n))
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / n
    chi_square = np.sum((table - expected) ** 2 / expected)
    return Training(float(np.sqrt(chi_square / n / (min(table.shape) - 1))), int(n))


def conservation_error(view: View, recipe: str) -> float:
    """Median over images of |relevance + what was given away - score| / |score|; NaN where the method keeps no such count."""
    if not recipe or recipe not in view:
        return np.nan
    total, given_away, score = view[recipe].astype(np.float64).T
    defined = np.abs(score) > 0
    if not defined.any():
        return np.nan
    return float(np.median(np.abs(total + given_away - score)[defined] / np.abs(score)[defined]))
