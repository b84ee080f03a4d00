"""What decisions say, overall and in every group: each metric with its interval, all over the same resamples.

A metric here is a `..._draws` function of `stats.groups`, `stats.calibration` or `stats.fairness` together with the rows it is
about. The audit `groups` puts them into words.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rightreasons.stats import calibration, fairness, groups, totals
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.resampling import Counts, Interval, Resamples, share_interval, whole
from rightreasons.stats.totals import Exact, Formula, Sum

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
    formula : the same of sums over rows, for large tables; None where there is no such formula
    """

    name: str
    draws: Draws
    size: int
    part: Part = Part()
    reason: str = ""
    share_of: int = 0
    formula: Callable[[], Formula] | None = None


def intervals(metrics: Sequence[Metric], sample: Resamples, level: float = 0.95) -> list[Interval]:
    """The value and the interval of every metric, over the same resamples of the rows, or of their sums in large tables."""

    def every(counts: Counts) -> Floats:
        return np.stack([metric.draws(counts) for metric in metrics], axis=1)

    if totals.is_large(sample.n):
        value, drawn = totals.draws([_formula(metric, sample.n) for metric in metrics], sample)
    else:
        value, drawn = every(whole(sample.n))[0], sample.apply(every)
    units_per_row = sample.units / sample.n  # below 1 where subjects have several rows
    return [
        share_interval(value[k], drawn[:, k], units_per_row * metric.share_of, level, metric.reason)
        for k, metric in enumerate(metrics)
    ]


def _formula(metric: Metric, n: int) -> Formula:
    """The formula of a metric; of one that has none, its draws over all rows."""
    if metric.formula is not None:
        return metric.formula()
    return Formula((Exact(np.arange(n), metric.draws),), lambda drawn: drawn)


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
    sums = PartSums(rows, part, subset)
    return [
        Metric("accuracy", _on_subset(here, groups.accuracy_draws, label, predicted), n, part, share_of=n, formula=sums.accuracy),
        Metric(
            "balanced accuracy",
            _on_subset(here, groups.balanced_accuracy_draws, label, predicted),
            n,
            part,
            one_class,
            formula=sums.balanced_accuracy,
        ),
        Metric("AUC", _on_subset(here, groups.auc_draws, label, probability), n, part, one_class, formula=sums.auc),
        Metric("F1", _on_subset(here, f1, label, predicted), n, part, "no positive row or decision", formula=sums.f1),
        Metric("ECE", _on_subset(here, calibration.ece_draws, probability, label), n, part, formula=sums.ece),
        Metric("Brier", _on_subset(here, calibration.brier_draws, probability, label), n, part, formula=sums.brier),
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
                part = Part(int(y), value)
                formula = PartSums(rows, Part(value=value), None).accuracy_at(int(y))
                metrics.append(Metric("group accuracy", accuracy, n, part, share_of=n, formula=formula))
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
            formula = _error_rate(rows, positive, value, int(name != ERRORS[0]))
            metrics.append(Metric(name, rate if n else _nowhere, n, part, "" if n else why, share_of=n, formula=formula))
    return metrics


def _nowhere(counts: Counts) -> Floats:
    return np.full(len(counts), np.nan)


def _error_rate(rows: Decided, positive: int, attribute: int | None, truth: int) -> Callable[[], Formula]:
    """Of rows of the class (`truth` 1) or of others (0), the share that is decided wrongly, of sums over rows."""

    def of() -> tuple[Ints, None]:
        place = rows.attribute.astype(np.int64) if rows.levels else np.zeros(len(rows), dtype=np.int64)
        return 4 * place + 2 * (rows.label == positive) + (rows.predicted == positive), None

    def value(sums: Floats) -> Floats:
        cells = sums.reshape(len(sums), -1, 2, 2)[:, :, truth]
        of_part = cells.sum(axis=1) if attribute is None else cells[:, attribute]
        return _ratio(of_part[:, 1 - truth], of_part.sum(axis=1))

    return lambda: Formula((Sum(f"answers of {positive}", 4 * _values(rows), of),), value)


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
            formula=lambda: _over_groups(rows, 1, lambda shares: shares.mean(axis=1)),
        ),
        Metric(
            "worst-group accuracy",
            lambda counts: groups.worst_group_accuracy_draws(label, predicted, attribute, counts),
            len(rows),
            reason=f"no group of at least {SMALLEST_GROUP} rows",
            share_of=smallest,
            formula=lambda: _over_groups(rows, SMALLEST_GROUP, lambda shares: shares.min(axis=1)),
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
            formula=lambda: _conflicts(rows, aligned),
        ),
        Metric(
            "pull",
            lambda counts: groups.pull_draws(label, rows.probability, attribute, aligned, counts),
            len(rows),
            reason=no_pull if aligned else why_not_aligned,
            formula=lambda: groups.pull_formula(label, rows.probability, attribute, aligned),
        ),
    ]


def unfairness(rows: Decided, positive: int, bins: Sequence[float] | None = None, numbers: NDArray | None = None) -> list[Metric]:
    """The metrics of `stats.fairness` for one class against the rest (ShorT, Methods "Assessing fairness").

    A continuous attribute stays continuous in the logistic fits; bins serve the metrics that compare groups.
    """
    label, predicted = (rows.label == positive).astype(int), (rows.predicted == positive).astype(int)
    kind = "categorical" if rows.levels else "continuous"
    table = fairness.tabulate(label, predicted, rows.attribute, kind=kind)
    binned = table if bins is None else fairness.tabulate(label, predicted, rows.attribute, bins=bins)
    fitted = table if numbers is None else fairness.tabulate(label, predicted, numbers, kind="continuous")
    metrics = []
    for name, words in zip(fairness.METRICS, FAIRNESS, strict=True):
        disparity = fairness.disparity_of(fitted if name in fairness.LOGISTIC else binned, name)
        metrics.append(Metric(words, disparity.draws, disparity.rows, reason=disparity.reason, formula=disparity.formula))
    return metrics


def undefined(names: Sequence[str], n: int, reason: str) -> list[Metric]:
    """Metrics that cannot be computed, with the reason."""
    nothing = Formula((), lambda: np.full(1, np.nan))
    return [
        Metric(name, lambda counts: np.full(len(counts), np.nan), n, reason=reason, formula=lambda: nothing) for name in names
    ]


# ---- large tables --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartSums:
    """The metrics of `performance` as formulas of sums over rows.

    Attributes
    ----------
    part : all rows, or those of an attribute value
    subset : the rows of the part; None for all
    """

    rows: Decided
    part: Part
    subset: Ints | None

    @property
    def classes(self) -> int:
        return self.rows.probability.shape[1]

    @property
    def name(self) -> str:
        return "all" if self.part.value is None else f"value {self.part.value}"

    def accuracy(self) -> Formula:
        def value(decided: Floats) -> Floats:
            cells = self._of_part(decided, 2)
            return _ratio(cells[..., 1].sum(axis=1), cells.sum(axis=(1, 2)))

        return Formula((decided_right(self.rows),), value)

    def accuracy_at(self, label: int) -> Callable[[], Formula]:
        """Accuracy among the rows of one label."""

        def value(decided: Floats) -> Floats:
            cells = self._of_part(decided, 2)[:, label]
            return _ratio(cells[..., 1], cells.sum(axis=1))

        return lambda: Formula((decided_right(self.rows),), value)

    def balanced_accuracy(self) -> Formula:
        present = np.unique(self._label)

        def value(decided: Floats) -> Floats:
            cells = self._of_part(decided, 2)[:, present]
            return _ratio(cells[..., 1], cells.sum(axis=2)).mean(axis=1)

        return Formula((decided_right(self.rows),), value)

    def f1(self) -> Formula:
        classes = [1]
        if self.classes > 2:
            classes = np.union1d(self._label, self._here(self.rows.predicted)).tolist()

        def value(decided: Floats, answered: Floats) -> Floats:
            cells = self._of_part(decided, 2)[:, classes]
            said = self._of_part(answered, 1)[:, classes, 0]
            return _ratio(2.0 * cells[..., 1], cells.sum(axis=2) + said).mean(axis=1)

        return Formula((decided_right(self.rows), answers(self.rows)), value)

    def auc(self) -> Formula:
        label, probability = self._label, self._here(self.rows.probability)
        present = np.unique(label)
        if len(present) < 2:
            return Formula((), lambda: np.full(1, np.nan))
        if self.classes == 2:
            return totals.area(f"AUC {self.name}", label == 1, probability[:, 1], self.subset)
        areas = [totals.area(f"AUC {self.name} {c}", label == c, probability[:, c], self.subset) for c in present]
        return totals.mean_of(areas)

    def ece(self) -> Formula:
        def gaps() -> tuple[Ints, Floats]:
            return calibration.gap_rows(self._here(self.rows.probability), self._label)

        def value(sums: Floats, decided: Floats) -> Floats:
            return _ratio(np.abs(sums).sum(axis=1), self._of_part(decided, 2).sum(axis=(1, 2)))

        return Formula((Sum(f"gaps {self.name}", calibration.BINS, gaps, self.subset), decided_right(self.rows)), value)

    def brier(self) -> Formula:
        def distances() -> tuple[Ints, Floats]:
            rows = calibration.brier_rows(self._here(self.rows.probability), self._label)
            return np.zeros(len(rows), dtype=np.int64), rows

        def value(sums: Floats, decided: Floats) -> Floats:
            return _ratio(sums[:, 0], self._of_part(decided, 2).sum(axis=(1, 2)))

        return Formula((Sum(f"Brier {self.name}", 1, distances, self.subset), decided_right(self.rows)), value)

    def _here(self, column: NDArray) -> NDArray:
        return column if self.subset is None else column[self.subset]

    @property
    def _label(self) -> Ints:
        return self._here(self.rows.label)

    def _of_part(self, cells: Floats, k: int) -> Floats:
        """(B, C, k) of the rows of the part, from cells by value, label or answer, and k more."""
        by_value = cells.reshape(len(cells), -1, self.classes, k)
        return by_value.sum(axis=1) if self.part.value is None else by_value[:, self.part.value]


def decided_right(rows: Decided) -> Sum:
    """Numbers of rows by attribute value, label and whether the decision was right."""

    def of() -> tuple[Ints, None]:
        return 2 * _cell(rows, rows.label) + (rows.label == rows.predicted), None

    return Sum("decided right", _values(rows) * rows.probability.shape[1] * 2, of)


def answers(rows: Decided) -> Sum:
    """Numbers of rows by attribute value and decision."""
    return Sum("answers", _values(rows) * rows.probability.shape[1], lambda: (_cell(rows, rows.predicted), None))


def _values(rows: Decided) -> int:
    return max(rows.levels, 1)


def _cell(rows: Decided, classes: Ints) -> Ints:
    if rows.levels:
        return rows.attribute.astype(np.int64) * rows.probability.shape[1] + classes
    return classes


def _over_groups(rows: Decided, smallest: int, value: Callable[[Floats], Floats]) -> Formula:
    """A value of the accuracies (B, G) of all groups of at least `smallest` rows."""
    size = np.bincount(_cell(rows, rows.label), minlength=_values(rows) * rows.probability.shape[1])
    large = np.flatnonzero(size >= smallest)
    if not len(large):
        return Formula((), lambda: np.full(1, np.nan))

    def of_cells(decided: Floats) -> Floats:
        cells = decided.reshape(len(decided), -1, 2)[:, large]
        return value(_ratio(cells[..., 1], cells.sum(axis=2)))

    return Formula((decided_right(rows),), of_cells)


def _conflicts(rows: Decided, aligned: Mapping[Hashable, Hashable]) -> Formula:
    """The conflict shortcut rate of sums: followed and other conflicting rows."""

    def of() -> tuple[Ints, None]:
        conflict, followed = groups.conflicts(rows.label, rows.predicted, rows.attribute, aligned)
        return np.where(conflict, followed.astype(np.int64), -1), None

    return Formula((Sum("conflicts", 2, of),), lambda sums: _ratio(sums[:, 1], sums.sum(axis=1)))


def _ratio(part: NDArray, of: NDArray) -> Floats:
    return np.divide(part, of, out=np.full(np.shape(part), np.nan), where=of > 0)
