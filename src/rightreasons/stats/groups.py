"""What the decisions say, group by group: accuracies, worst group, aligned labels, conflict shortcut rate, AUC, F1.

Columns are (n,) codes or values. Missing is -1 in a column of integers, NaN, None or "" elsewhere; rows that lack what a
function reads are left out by it. A group is a pair (label, attribute value) that occurs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from rightreasons.errors import DataError, SettingError
from rightreasons.stats import resampling
from rightreasons.stats.resampling import Counts
from rightreasons.stats.totals import Formula, Sum

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Group = tuple[Hashable, Hashable]

SMALLEST_GROUP = 10
FEWEST = 5  # rows of a side that a mean is compared of
LEVEL = 0.95


# ---------------------------------------------------------------------------------------------------- accuracies


def accuracy(label: ArrayLike, predicted: ArrayLike) -> float:
    """Share of rows decided right: the test-weighted average."""
    return _one(accuracy_draws, label, predicted)


def accuracy_draws(label: ArrayLike, predicted: ArrayLike, counts: Counts) -> Floats:
    """`accuracy` of each resample, counts (B, n) to (B,)."""
    return _shares(counts, np.where(coded(label)[0] < 0, -1, 0), 1, _right(label, predicted))[:, 0]


def balanced_accuracy(label: ArrayLike, predicted: ArrayLike) -> float:
    """Mean over labels of the share decided right."""
    return _one(balanced_accuracy_draws, label, predicted)


def balanced_accuracy_draws(label: ArrayLike, predicted: ArrayLike, counts: Counts) -> Floats:
    """`balanced_accuracy` of each resample, counts (B, n) to (B,); NaN where a label of the data is missing."""
    code, values = coded(label)
    return _mean(_shares(counts, code, len(values), _right(label, predicted)))


def group_accuracy(label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike) -> dict[Group, float]:
    """Share decided right in every group: {(label, attribute value): accuracy}."""
    code, groups = group_codes(label, attribute)
    shares = _shares(resampling.whole(len(code)), code, len(groups), _right(label, predicted))[0]
    return dict(zip(groups, shares.tolist()))


def group_accuracy_draws(label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, counts: Counts) -> Floats:
    """`group_accuracy` of each resample, counts (B, n) to (B, G), groups as `group_codes` orders them."""
    code, groups = group_codes(label, attribute)
    return _shares(counts, code, len(groups), _right(label, predicted))


def group_balanced_accuracy(label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike) -> float:
    """Mean over groups of the share decided right, however small the groups."""
    return _one(group_balanced_accuracy_draws, label, predicted, attribute)


def group_balanced_accuracy_draws(label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, counts: Counts) -> Floats:
    """`group_balanced_accuracy` of each resample, counts (B, n) to (B,); NaN where a group is missing."""
    return _mean(group_accuracy_draws(label, predicted, attribute, counts))


@dataclass(frozen=True)
class WorstGroup:
    """The lowest accuracy of a group; `left_out` are the groups under `smallest` rows, with their sizes."""

    value: float
    group: Group | None
    left_out: dict[Group, int]
    reason: str = ""


def worst_group(label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, smallest: int = SMALLEST_GROUP) -> WorstGroup:
    """The group with the lowest accuracy among those of at least `smallest` rows (ART, sec. 4)."""
    size = group_sizes(label, attribute)
    left_out = {group: rows for group, rows in size.items() if rows < smallest}
    shares = {group: share for group, share in group_accuracy(label, predicted, attribute).items() if group not in left_out}
    if not shares:
        return WorstGroup(math.nan, None, left_out, f"no group of at least {smallest} rows")
    worst = min(shares, key=lambda group: shares[group])
    return WorstGroup(shares[worst], worst, left_out)


def worst_group_accuracy(label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, smallest: int = SMALLEST_GROUP) -> float:
    """`worst_group(...).value`: NaN where every group is smaller than `smallest`."""
    return worst_group(label, predicted, attribute, smallest).value


def worst_group_accuracy_draws(
    label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, counts: Counts, smallest: int = SMALLEST_GROUP
) -> Floats:
    """`worst_group_accuracy` of each resample, counts (B, n) to (B,), over the groups that are large enough in the data."""
    large = [rows >= smallest for rows in group_sizes(label, attribute).values()]
    if not any(large):
        return np.full(len(counts), np.nan)
    return group_accuracy_draws(label, predicted, attribute, counts)[:, large].min(axis=1)


# ---------------------------------------------------------------------------------------------------- aligned labels and conflict


@dataclass(frozen=True)
class Alignment:
    """Which label each attribute value stands for, and why some stand for none.

    Attributes
    ----------
    aligned : {attribute value: label}
    strength : (A, C) lift P(y|a)/P(y), or excess of errors towards c, by `attributes` and `labels`
    low, high : (A, C) limits of its 95 % interval
    reason : {attribute value: why it has no aligned label}
    source : "lift" or "errors"
    """

    aligned: dict[Hashable, Hashable]
    attributes: tuple[Hashable, ...]
    labels: tuple[Hashable, ...]
    strength: Floats
    low: Floats
    high: Floats
    reason: dict[Hashable, str]
    source: str


def aligned_label(label: ArrayLike, attribute: ArrayLike) -> dict[Hashable, Hashable]:
    """Label of the largest lift for each attribute value, {attribute value: label}; values without one are absent.

    Give training rows: on balanced rows every lift is 1.
    """
    return alignment(label, attribute).aligned


def alignment(label: ArrayLike, attribute: ArrayLike) -> Alignment:
    """π by lift: the label whose P(y|a)/P(y) is largest, if it is above 1 and separated from the second beyond 95 %.

    Both intervals are normal on the log ratio (delta method for a multinomial table), 1/2 standing in for an empty cell.
    """
    table, attributes, labels = _table(label, attribute)
    if len(labels) < 2 or len(attributes) < 2:
        none = np.full(table.shape, np.nan)
        return Alignment(
            {}, attributes, labels, none, none, none, dict.fromkeys(attributes, "one label or one attribute value"), "lift"
        )
    n, of_a, of_y = table.sum(), table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True)
    lift = table * n / (of_a * of_y)
    cell = np.maximum(table, 0.5)
    spread = _quantile() * np.sqrt(np.maximum(1 / cell - 1 / of_a - 1 / of_y + (2 * lift - 1) / n, 0.0))
    low, high = lift * np.exp(-spread), lift * np.exp(spread)
    aligned, reason = {}, {}
    for a, value in enumerate(attributes):
        first, second = np.argsort(-lift[a], kind="stable")[:2]
        ratio = math.log(cell[a, first] / of_y[0, first]) - math.log(cell[a, second] / of_y[0, second])
        variance = 1 / cell[a, first] - 1 / of_y[0, first] + 1 / cell[a, second] - 1 / of_y[0, second]
        if low[a, first] <= 1:
            reason[value] = "no stamp: largest lift not above 1"
        elif ratio <= _quantile() * math.sqrt(max(variance, 0.0)):
            reason[value] = "no stamp: largest lift not separated from the second"
        else:
            aligned[value] = labels[first]
    return Alignment(aligned, attributes, labels, lift, low, high, reason, "lift")


def aligned_from_errors(label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike) -> Alignment:
    """π from the model's errors, for models whose training rows are unknown (audit rows).

    `strength[a, c]` is P(predicted c | a, y != c) minus the rate of other values at the same labels. It must be above 0
    beyond its 95 % interval (rates with one success and one failure added, so that 0 of 3 is not taken for certain); of
    several such labels the largest, if separated from the second.
    """
    y, labels = coded(label)
    a, attributes = coded(attribute)
    guess = _coded_like(predicted, labels)
    A, C = len(attributes), len(labels)
    keep = (y >= 0) & (a >= 0)
    cells = np.zeros((A, C, C + 1))
    np.add.at(cells, (a[keep], y[keep], np.where(guess[keep] < 0, C, guess[keep])), 1)
    excess, variance = np.full((A, C), np.nan), np.full((A, C), np.nan)
    for c in range(C):
        others = np.arange(C) != c
        for k in range(A):
            excess[k, c], variance[k, c] = _excess(cells[k][others], cells[np.arange(A) != k].sum(axis=0)[others], c)
    spread = _quantile() * np.sqrt(variance)
    low, high = excess - spread, excess + spread
    aligned, reason = {}, {}
    for k, value in enumerate(attributes):
        passing = sorted(np.flatnonzero(low[k] > 0), key=lambda c: -excess[k, c])
        if not passing:
            reason[value] = "no stamp: errors towards no label exceed those of other values"
        elif len(passing) > 1 and excess[k, passing[0]] - excess[k, passing[1]] <= _quantile() * math.sqrt(
            variance[k, passing[:2]].sum()
        ):
            reason[value] = "no stamp: errors towards two labels not separated"
        else:
            aligned[value] = labels[passing[0]]
    return Alignment(aligned, attributes, labels, excess, low, high, reason, "errors")


def conflict_shortcut_rate(
    label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, aligned: Mapping[Hashable, Hashable]
) -> float:
    """Share of the conflicting rows, y != pi(a), that are predicted as pi(a) (ART, CSR); NaN without such rows."""
    return _one(lambda y, p, a, counts: conflict_shortcut_rate_draws(y, p, a, aligned, counts), label, predicted, attribute)


def conflict_shortcut_rate_draws(
    label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, aligned: Mapping[Hashable, Hashable], counts: Counts
) -> Floats:
    """`conflict_shortcut_rate` of each resample, counts (B, n) to (B,)."""
    conflict, followed = conflicts(label, predicted, attribute, aligned)
    return _shares(counts, np.where(conflict, 0, -1), 1, followed)[:, 0]


def conflicts(
    label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, aligned: Mapping[Hashable, Hashable]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Rows (n,) whose label is not the aligned one of their attribute, and rows predicted as the aligned label."""
    y, labels = coded(label)
    a, attributes = coded(attribute)
    place = {value: k for k, value in enumerate(labels)}
    # An aligned label that no row carries conflicts with every row of its attribute value.
    towards = np.array([place.setdefault(aligned[v], len(place)) if v in aligned else -1 for v in attributes] + [-1])[a]
    guess = _coded_like(predicted, tuple(place))
    _same_length(y, a, guess)
    return (y >= 0) & (towards >= 0) & (towards != y), (towards >= 0) & (guess == towards)


def pull(
    label: ArrayLike, probability: ArrayLike, attribute: ArrayLike, aligned: Mapping[Hashable, Any], fewest: int = FEWEST
) -> float:
    """How far an attribute draws predictions towards the label it stands for: by how much the probability of pi(v) is higher
    where a = v than elsewhere, within the label, averaged over labels and over the values v that stand for one.

    A model that follows the attribute is drawn the same way under every label. Images that are harder in one group are drawn
    away from their own label, which is this way under one label and the other way under another, and cancels.

    Parameters
    ----------
    probability : (n, C)
    aligned : value of the attribute to the column of `probability` it stands for
    fewest : rows of each side of a comparison
    """
    return _one(lambda y, p, a, counts: pull_draws(y, p, a, aligned, counts, fewest), label, probability, attribute)


def pull_draws(
    label: ArrayLike,
    probability: ArrayLike,
    attribute: ArrayLike,
    aligned: Mapping[Hashable, Any],
    counts: Counts,
    fewest: int = FEWEST,
) -> Floats:
    """`pull` of each resample, counts (B, n) to (B,)."""
    y, labels = coded(label)
    a, attributes = coded(attribute)
    p = np.asarray(probability, dtype=np.float64)
    _same_length(y, a, p)
    pulls = []
    for k, value in enumerate(attributes):
        if value in aligned:
            sides = []
            for c in range(len(labels)):
                sides.append(((y == c) & (a == k), (y == c) & (a >= 0) & (a != k)))
            compared = []
            for both in sides:
                if min(map(np.sum, both)) >= fewest:
                    compared.append(_difference(counts, p[:, aligned[value]], *both))
            pulls.append(np.mean(compared, axis=0) if compared else np.full(len(counts), np.nan))
    defined = [draws for draws in pulls if not np.isnan(draws).all()]
    if defined:
        return np.mean(defined, axis=0)
    return np.full(len(counts), np.nan)


def pull_formula(
    label: ArrayLike,
    probability: ArrayLike,
    attribute: ArrayLike,
    aligned: Mapping[Hashable, Any],
    fewest: int = FEWEST,
    only: Hashable = None,
    name: str = "pull",
) -> Formula:
    """`pull` of sums over rows, for large tables; `only` within one label. Formulas of one name and column share their sums."""
    y, labels = coded(label)
    a, attributes = coded(attribute)
    p = np.asarray(probability, dtype=np.float64)
    _same_length(y, a, p)
    A, C = len(attributes), len(labels)
    code = np.where((y >= 0) & (a >= 0), y * A + a, -1)
    within = range(C) if only is None else [labels.index(only)]
    towards = {k: aligned[value] for k, value in enumerate(attributes) if value in aligned}
    size = np.bincount(code[code >= 0], minlength=A * C).reshape(C, A)
    compared = {k: [c for c in within if min(size[c, k], size[c].sum() - size[c, k]) >= fewest] for k in towards}
    columns = list(dict.fromkeys(towards.values()))

    def value(number: Floats, *sums: Floats) -> Floats:
        rows = number.reshape(-1, C, A)
        pulls = []
        for k, cells in compared.items():
            of = sums[columns.index(towards[k])].reshape(-1, C, A)[:, cells]
            here = _ratio(of[..., k], rows[:, cells, k])
            there = _ratio(of.sum(axis=2) - of[..., k], rows[:, cells].sum(axis=2) - rows[:, cells, k])
            if cells:
                pulls.append((here - there).mean(axis=1))
        if not pulls:
            return np.full(len(number), np.nan)
        return np.mean(pulls, axis=0)

    of_column = [Sum(f"{name} towards {t}", A * C, partial(_with, code, p[:, t])) for t in columns]
    return Formula((Sum(f"{name} rows", A * C, lambda: (code, None)), *of_column), value)


def _with(code: Ints, values: Floats) -> tuple[Ints, Floats]:
    return code, values


def aligned_by_pull(label: ArrayLike, probability: ArrayLike, attribute: ArrayLike) -> dict[Hashable, int]:
    """The column of `probability` towards which each value of the attribute pulls most, where it pulls at all.

    For rows that are not reported on: it gives a direction to test, and is no finding.
    """
    classes = range(np.shape(probability)[1])
    aligned: dict[Hashable, int] = {}
    for value in coded(attribute)[1]:
        pulls = np.nan_to_num([pull(label, probability, attribute, {value: c}) for c in classes])  # undefined draws nowhere
        if pulls.max() > 0:
            aligned[value] = int(pulls.argmax())
    return aligned


# ---------------------------------------------------------------------------------------------------- AUC and F1


def auc(label: ArrayLike, score: ArrayLike) -> float:
    """Area under the ROC curve; NaN where a class is missing.

    Parameters
    ----------
    label : (n,) codes, 0 and 1 for a binary score
    score : (n,) or (n, 2) for two classes; (n, C) gives the mean one-vs-rest over the classes that occur
    """
    return _one(auc_draws, label, score)


def auc_draws(label: ArrayLike, score: ArrayLike, counts: Counts) -> Floats:
    """`auc` of each resample, counts (B, n) to (B,)."""
    y, values = np.asarray(label), np.asarray(score, dtype=np.float64)
    if values.ndim not in (1, 2) or len(values) != len(y):
        raise DataError(f"found {len(y)} labels and scores of shape {values.shape}, expected (n,) or (n, C)")
    if values.ndim == 2 and values.shape[1] == 2:
        values = values[:, 1]
    last = 1
    if values.ndim != 1:
        last = values.shape[1] - 1
    if y.size and (y.dtype.kind not in "biu" or y.min() < 0 or y.max() > last):
        raise DataError(
            f"labels must be codes 0..{last}; found {np.unique(y)[:5].tolist()} (rows without a label must be left out)"
        )
    if values.ndim == 1:
        return resampling.auc_draws(y == 1, values, counts)
    present = np.unique(y)
    if len(present) < 2:
        return np.full(len(counts), np.nan)
    return np.mean([resampling.auc_draws(y == c, values[:, c], counts) for c in present], axis=0)


def f1(label: ArrayLike, predicted: ArrayLike, positive: Hashable = 1) -> float:
    """F1 of the positive class for labels and predictions of at most two values, else the mean over all classes that occur."""
    return _one(lambda y, p, counts: f1_draws(y, p, counts, positive), label, predicted)


def f1_draws(label: ArrayLike, predicted: ArrayLike, counts: Counts, positive: Hashable = 1) -> Floats:
    """`f1` of each resample, counts (B, n) to (B,); NaN where a class has neither rows nor predictions."""
    known, labels = coded(label)
    values = labels + tuple(v for v in coded(predicted)[1] if v not in labels)
    if len(values) == 2 and positive not in values:
        raise SettingError(f"positive={positive!r} is not among the values {values}; name the positive class")
    if len(values) <= 2:
        values = (positive,)
    y = np.where(known < 0, -1, _coded_like(label, values))
    guess = np.where(known < 0, -1, _coded_like(predicted, values))
    rows = resampling.tally(counts, y, len(values))
    said = resampling.tally(counts, guess, len(values))
    hits = resampling.tally(counts, np.where(y == guess, y, -1), len(values))
    return _mean(_ratio(2.0 * hits, rows + said))


def max_f1_threshold(label: ArrayLike, score: ArrayLike) -> float:
    """The score t for which deciding `score >= t` has the best F1, the highest t of equals; NaN without positives."""
    y, values = np.asarray(label), np.asarray(score, dtype=np.float64)
    if values.ndim != 1 or values.shape != y.shape or not np.isin(y, (0, 1)).all():
        raise SettingError(
            f"found labels {np.unique(y)[:5].tolist()} and scores {values.shape}; "
            "the max-F1 threshold is for two classes: labels 0 and 1, scores (n,)"
        )
    if not y.any():
        return math.nan
    order = np.argsort(-values, kind="stable")
    last_of_run = np.r_[values[order][1:] != values[order][:-1], True]
    hits = np.cumsum(y[order])
    score_f1 = np.where(last_of_run, 2 * hits / (np.arange(1, len(y) + 1) + y.sum()), -1.0)
    return float(values[order][score_f1.argmax()])


# ---------------------------------------------------------------------------------------------------- columns and codes


def coded(column: ArrayLike) -> tuple[Ints, tuple[Hashable, ...]]:
    """Codes (n,) of a column, -1 where missing, and its distinct values, sorted.

    Integers are codes already as far as -1 goes: it means missing. A column of -1 and 1 alone could be either and is refused.
    """
    array = as_column(column)
    if array.dtype.kind in "biu":
        values, code = np.unique(array, return_inverse=True)
        if array.dtype.kind == "i" and len(values) and values[0] == -1:
            if values.tolist() == [-1, 1]:
                raise DataError("found only -1 and 1, and -1 means missing: give 0 and 1, or leave the missing rows out")
            values, code = values[1:], code - 1
        return code.astype(np.int64), tuple(values.tolist())
    if array.dtype.kind != "f":
        missing = pd.isna(array) | (array == "")
    else:
        missing = np.isnan(array)
    values, code = np.unique(array[~missing].astype(str) if array.dtype.kind == "U" else array[~missing], return_inverse=True)
    codes = np.full(len(array), -1, dtype=np.int64)
    codes[~missing] = code
    return codes, tuple(values.tolist())


def as_column(column: ArrayLike) -> NDArray:
    """The column as an array (n,); numbers among None become floats among NaN."""
    array = np.asarray(column)
    if array.ndim != 1:
        raise DataError(f"found a column of shape {array.shape}, expected (n,)")
    if array.dtype.kind == "O":
        missing = pd.isna(array)
        if not missing.all() and all(isinstance(v, Number) and not isinstance(v, bool) for v in array[~missing]):
            return np.where(missing, np.nan, array).astype(np.float64)
    return array


def group_codes(label: ArrayLike, attribute: ArrayLike) -> tuple[Ints, tuple[Group, ...]]:
    """Number of each row's group, -1 where label or attribute is missing; and the groups that occur, by label, then attribute."""
    y, labels = coded(label)
    a, attributes = coded(attribute)
    _same_length(y, a)
    if as_column(attribute).dtype.kind == "f" and len(attributes) > 10:
        raise DataError(f"the attribute has {len(attributes)} distinct numbers, so it is continuous: groups need bins")
    pair = np.where((y >= 0) & (a >= 0), y * len(attributes) + a, -1)
    present = np.unique(pair[pair >= 0])
    code = np.where(pair >= 0, np.searchsorted(present, pair), -1)
    return code, tuple((labels[p // len(attributes)], attributes[p % len(attributes)]) for p in present)


def group_sizes(label: ArrayLike, attribute: ArrayLike) -> dict[Group, int]:
    """Rows of every group that occurs, in the order of `group_codes`."""
    code, groups = group_codes(label, attribute)
    return dict(zip(groups, np.bincount(code[code >= 0], minlength=len(groups)).tolist()))


def _coded_like(column: ArrayLike, values: tuple[Hashable, ...]) -> Ints:
    """Codes (n,) of a column in a given list of values, -1 for anything else."""
    array = as_column(column)
    if array.dtype.kind != "O":
        distinct, code = np.unique(array, return_inverse=True)
    else:
        distinct, code = pd.factorize(array)[1::-1]
    place = {value: k for k, value in enumerate(values)}
    return np.array([place.get(value, -1) for value in distinct.tolist()] + [-1], dtype=np.int64)[code.reshape(-1)]


def _right(label: ArrayLike, predicted: ArrayLike) -> NDArray[np.bool_]:
    y, labels = coded(label)
    guess = _coded_like(predicted, labels)
    _same_length(y, guess)
    return (y == guess) & (y >= 0)


def _table(label: ArrayLike, attribute: ArrayLike) -> tuple[Floats, tuple[Hashable, ...], tuple[Hashable, ...]]:
    """Rows by (attribute value, label), (A, C)."""
    y, labels = coded(label)
    a, attributes = coded(attribute)
    group_codes(label, attribute)
    table = np.zeros((len(attributes), len(labels)))
    keep = (y >= 0) & (a >= 0)
    np.add.at(table, (a[keep], y[keep]), 1)
    return table, attributes, labels


def _excess(here: Floats, there: Floats, c: int) -> tuple[float, float]:
    """Difference of the rates of prediction c, standardised to the labels of `here`, and its variance.

    `here` and `there` are rows by (label, prediction).
    """
    n, m = here.sum(axis=1), there.sum(axis=1)
    both = (n > 0) & (m > 0)
    if not both.any():
        return math.nan, math.nan
    n, m, weight = n[both], m[both], n[both] / n[both].sum()
    p, q = (here[both, c] + 1) / (n + 2), (there[both, c] + 1) / (m + 2)
    variance = p * (1 - p) / (n + 2) + q * (1 - q) / (m + 2)
    return float(weight @ (p - q)), float(weight**2 @ variance)


def _one(draws, *columns) -> float:  # type: ignore[no-untyped-def]
    """The point estimate of a `..._draws` function: the data themselves are one resample."""
    n = len(np.asarray(columns[0]))
    if n:
        return float(draws(*columns, resampling.whole(n))[0])
    return math.nan


def _shares(counts: Counts, code: Ints, K: int, hit: NDArray[np.bool_]) -> Floats:
    """Share of hits by code, (B, K)."""
    cells = resampling.tally(counts, np.where(code < 0, -1, 2 * code + hit), 2 * K).reshape(len(counts), K, 2)
    return _ratio(cells[:, :, 1], cells.sum(axis=2))


def _difference(counts: Counts, values: Floats, here: NDArray[np.bool_], there: NDArray[np.bool_]) -> Floats:
    """Mean here less mean there in each resample, (B,)."""
    mean = []
    for side in (here, there):
        mean.append(_ratio(*resampling.sums(counts, np.stack([values * side, side], axis=1)).T))
    return mean[0] - mean[1]


def _ratio(part: NDArray, of: NDArray) -> Floats:
    return np.divide(part, of, out=np.full(np.shape(part), np.nan), where=of > 0)


def _mean(shares: Floats) -> Floats:
    if shares.shape[1]:
        return shares.mean(axis=1)
    return np.full(len(shares), np.nan)


def _same_length(*columns: NDArray) -> None:
    if len({len(column) for column in columns}) > 1:
        raise DataError(f"found columns of {[len(column) for column in columns]} rows; give all over the same rows")


def _quantile() -> float:
    return float(ndtri((1 + LEVEL) / 2))
