"""What decisions say, overall and in every group: each metric with its interval, all over the same resamples.

A metric here is a `..._draws` function of `stats.groups`, `stats.calibration` or `stats.fairness` together with the rows it is
about. The audit `groups` puts them into words.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rightreasons.stats import calibration, fairness, groups
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.resampling import Counts, Interval, Resamples, share_interval, whole

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Draws = Callable[[Counts], Floats]

PERFORMANCE = ("accuracy", "balanced accuracy", "AUC", "F1", "ECE", "Brier")
FAIRNESS = tuple(name.replace("_", " ") for name in fairness.METRICS)
NEED_GROUPS = ("worst-group accuracy", "conflict shortcut rate", "pull")
ERRORS = ("false positive rate", "false negative rate")
LOGISTIC = tuple(name.replace("_", " ") for name in fairness.LOGISTIC)


@dataclass(frozen=True)
class Decided:
    """Rows that have been decided.

    Attributes
    ----------
    label, predicted : (n,) codes 0..C-1
    probability : (n, C)
    attribute : (n,) codes 0..A-1, or numbers where it is continuous; empty without an attribute
    levels : A, 0 where the attribute is continuous
    name : of the attribute
    """

    label: Ints
    predicted: Ints
    probability: Floats
    attribute: NDArray = field(default_factory=lambda: np.zeros(0))
    levels: int = 0
    name: str = ""

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True)
class Part:
    """Which rows a metric is about: those of an attribute value, of a label, of both, or all of them (None is any)."""

    label: int | None = None
    value: int | None = None


@dataclass(frozen=True)
class Metric:
    """One number about some of the rows.

    Attributes
    ----------
    draws : the metric of each resample, counts (B, n) of all rows to (B,)
    size : rows that it is about
    reason : why it may be undefined
    share_of : rows that it is a share of, 0 where it is none. Where all of these agree a bootstrap has no width, and Wilson's
        interval takes its place.
    """

    name: str
    draws: Draws
    size: int
    part: Part = Part()
    reason: str = ""
    share_of: int = 0


def intervals(metrics: Sequence[Metric], sample: Resamples, level: float = 0.95) -> list[Interval]:
    """The value and the interval of every metric, over the same resamples of the rows."""

    def every(counts: Counts) -> Floats:
        return np.stack([metric.draws(counts) for metric in metrics], axis=1)

    value, drawn = every(whole(sample.n))[0], sample.apply(every)
    units_per_row = sample.units / sample.n  # below 1 where subjects have several rows
    return [
        share_interval(value[k], drawn[:, k], units_per_row * metric.share_of, level, metric.reason)
        for k, metric in enumerate(metrics)
    ]


def describe(
    rows: Decided,
    aligned: Mapping[Hashable, Hashable],
    why_not_aligned: str,
    positive: int | None,
    bins: Sequence[float] | None = None,
    numbers: NDArray | None = None,
) -> list[Metric]:
    """Every metric of decided rows: over all of them and, where there is an attribute, by value, by group and of fairness.

    Parameters
    ----------
    aligned : value of the attribute → the label it stands for; `why_not_aligned` says why there is none
    positive : class that fairness metrics take against the rest; None where more than two are unnamed
    bins : edges that cut a continuous attribute for the fairness metrics that compare groups
    numbers : (n,) the attribute's own values, where `rows` have a continuous one by its quartiles: the logistic fits take them
    """
    metrics = performance(rows)
    if not rows.name:
        return metrics
    if rows.levels:
        of_groups = by_group(rows)
        smallest = min((group.size for group in of_groups if group.size >= SMALLEST_GROUP), default=0)
        metrics += [*over_groups(rows, smallest), *following(rows, aligned, why_not_aligned), *by_value(rows), *of_groups]
    else:
        metrics += undefined(NEED_GROUPS, len(rows), f"{rows.name} is continuous: needs bins")
    if positive is None:
        return metrics + undefined(FAIRNESS, len(rows), "more than two classes: name one with positive=")
    return [*metrics, *errors(rows, positive), *unfairness(rows, positive, bins, numbers)]


def performance(rows: Decided, part: Part = Part(), subset: Ints | None = None) -> list[Metric]:
    """`PERFORMANCE` of a subset of the rows, of all by default."""
    if subset is None:
        here = np.arange(len(rows))
    else:
        here = subset
    label, predicted, probability = rows.label[here], rows.predicted[here], rows.probability[here]
    n = len(here)
    one_class = "one class only" if len(np.unique(label)) < 2 else ""
    f1 = macro_f1_draws if probability.shape[1] > 2 else groups.f1_draws
    return [
        Metric("accuracy", _on_subset(here, groups.accuracy_draws, label, predicted), n, part, share_of=n),
        Metric("balanced accuracy", _on_subset(here, groups.balanced_accuracy_draws, label, predicted), n, part, one_class),
        Metric("AUC", _on_subset(here, groups.auc_draws, label, probability), n, part, one_class),
        Metric("F1", _on_subset(here, f1, label, predicted), n, part, "no positive row or decision"),
        Metric("ECE", _on_subset(here, calibration.ece_draws, probability, label), n, part),
        Metric("Brier", _on_subset(here, calibration.brier_draws, probability, label), n, part),
    ]


def _on_subset(subset: Ints, statistic: Callable[..., Floats], *columns: NDArray) -> Draws:
    """A statistic of the columns of a subset, as a function of the counts of all rows."""
    return lambda counts: statistic(*columns, counts[:, subset])


def macro_f1_draws(label: Ints, predicted: Ints, counts: Counts) -> Floats:
    """Macro F1 over the classes that occur, (B,), also where only two of the model's classes do."""
    by_class = []
    for c in np.union1d(label, predicted):
        by_class.append(groups.f1_draws((label == c).astype(int), (predicted == c).astype(int), counts))
    return np.mean(by_class, axis=0)


def by_group(rows: Decided) -> list[Metric]:
    """Accuracy of every (label, attribute value) group. A group has one label, so nothing else is defined there."""
    metrics = []
    for y in np.unique(rows.label):
        for value in range(rows.levels):
            subset = np.flatnonzero((rows.label == y) & (rows.attribute == value))
            n = len(subset)
            if n:
                accuracy = _on_subset(subset, groups.accuracy_draws, rows.label[subset], rows.predicted[subset])
                metrics.append(Metric("group accuracy", accuracy, n, Part(int(y), value), share_of=n))
    return metrics


def by_value(rows: Decided) -> list[Metric]:
    """`performance` among the rows of every attribute value."""
    metrics = []
    for value in range(rows.levels):
        subset = np.flatnonzero(rows.attribute == value)
        if len(subset):
            metrics += performance(rows, Part(value=value), subset)
    return metrics


def errors(rows: Decided, positive: int) -> list[Metric]:
    """`ERRORS` of one class against the rest, over all rows and among the rows of every attribute value."""
    truth, called = rows.label == positive, rows.predicted == positive
    metrics = []
    for value in (None, *range(rows.levels)):
        here = np.full(len(rows), True) if value is None else rows.attribute == value
        for name, asked, wrong in zip(ERRORS, (~truth, truth), (called, ~called), strict=True):
            subset = np.flatnonzero(here & asked)
            n, why = len(subset), f"no row with {'another' if name == ERRORS[0] else 'the'} label"
            rate = _on_subset(subset, groups.accuracy_draws, np.ones(n, dtype=np.int64), wrong[subset].astype(np.int64))
            part = Part(value=value)
            metrics.append(Metric(name, rate, n, part, share_of=n) if n else Metric(name, _nowhere, 0, part, reason=why))
    return metrics


def _nowhere(counts: Counts) -> Floats:
    return np.full(len(counts), np.nan)


def over_groups(rows: Decided, smallest: int) -> list[Metric]:
    """Group-balanced and worst-group accuracy of a categorical attribute (ART, sec. 4).

    `smallest` is the size of the smallest group that is large enough to be the worst one; 0 where there is none.
    """
    label, predicted, attribute = rows.label, rows.predicted, rows.attribute
    return [
        Metric(
            "group-balanced accuracy",
            lambda counts: groups.group_balanced_accuracy_draws(label, predicted, attribute, counts),
            len(rows),
        ),
        Metric(
            "worst-group accuracy",
            lambda counts: groups.worst_group_accuracy_draws(label, predicted, attribute, counts),
            len(rows),
            reason=f"no group of at least {SMALLEST_GROUP} rows",
            share_of=smallest,
        ),
    ]


def following(rows: Decided, aligned: Mapping[Hashable, Hashable], why_not_aligned: str) -> list[Metric]:
    """Conflict shortcut rate (ART, sec. 4) and pull: do decisions follow the label that an attribute value stands for?"""
    label, predicted, attribute = rows.label, rows.predicted, rows.attribute
    conflicting = int(groups.conflicts(label, predicted, attribute, aligned)[0].sum())
    no_rate = "" if conflicting else "no conflicting rows"
    no_pull = "no label has rows with and without a value of the attribute that stands for one"
    return [
        Metric(
            "conflict shortcut rate",
            lambda counts: groups.conflict_shortcut_rate_draws(label, predicted, attribute, aligned, counts),
            conflicting,
            reason=no_rate if aligned else why_not_aligned,
            share_of=conflicting,
        ),
        Metric(
            "pull",
            lambda counts: groups.pull_draws(label, rows.probability, attribute, aligned, counts),
            len(rows),
            reason=no_pull if aligned else why_not_aligned,
        ),
    ]


def unfairness(rows: Decided, positive: int, bins: Sequence[float] | None = None, numbers: NDArray | None = None) -> list[Metric]:
    """The metrics of `stats.fairness` for one class against the rest (ShorT, Methods "Assessing fairness").

    A continuous attribute stays continuous in the logistic fits; bins serve the metrics that compare groups.
    """
    label, predicted = (rows.label == positive).astype(int), (rows.predicted == positive).astype(int)
    kind = "categorical" if rows.levels else "continuous"
    metrics = []
    for name, words in zip(fairness.METRICS, FAIRNESS, strict=True):
        if bins is not None and name not in fairness.LOGISTIC:
            disparity = fairness.disparity(name, label, predicted, rows.attribute, bins=bins)
        elif numbers is not None and name in fairness.LOGISTIC:
            disparity = fairness.disparity(name, label, predicted, numbers, kind="continuous")
        else:
            disparity = fairness.disparity(name, label, predicted, rows.attribute, kind=kind)
        metrics.append(Metric(words, disparity.draws, disparity.rows, reason=disparity.reason))
    return metrics


def undefined(names: Sequence[str], n: int, reason: str) -> list[Metric]:
    """Metrics that cannot be computed, with the reason."""
    return [Metric(name, _nowhere, n, reason=reason) for name in names]
