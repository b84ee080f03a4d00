"""Does the decision depend on the attribute? Separation, independence, sufficiency, equalised odds, demographic parity, max gap.

Lower is fairer for all of them (ShorT, Methods "Assessing fairness"). Every metric is a function of one table, rows by
(attribute value, label, decision), so a bootstrap is one table per resample and a permutation one table per exchange. A
categorical attribute of more than two values is taken value by value against the rest, and the largest disparity is reported;
a continuous one enters the logistic fits per unit. Where decisions are separated by the attribute the plain logistic fit has no
maximum, and Firth's takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeAlias, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr

from rightreasons.errors import DataError, SettingError
from rightreasons.stats import resampling, totals
from rightreasons.stats.firth import firth_slopes
from rightreasons.stats.groups import as_column, coded
from rightreasons.stats.resampling import Counts
from rightreasons.stats.totals import Exact, Formula, Sum

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# METHODS of the project: a numeric column of more distinct values than this is continuous.
MOST_LEVELS = 10

LOGISTIC = ("separation", "independence", "sufficiency")
METRICS = (*LOGISTIC, "equalised_odds", "demographic_parity", "max_gap")
NEEDS_BINS = "continuous attribute: needs bins"


class Reading(TypedDict, total=False):
    """How label, decision and attribute are read; keywords of every metric.

    Parameters
    ----------
    positive : the class taken against the rest; without it label and decision must be 0 and 1
    kind : "categorical" or "continuous"; by default numbers with more than ten distinct values are continuous
    bins : edges, left-closed and the last one closed, that make a continuous attribute categorical; values outside are missing
    """

    positive: Hashable
    kind: str | None
    bins: Sequence[float] | None


def separation(label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, **reading: Unpack[Reading]) -> float:
    """Mean |coefficient| of two logistic fits of the decision on the attribute, at label 1 and at label 0."""
    return disparity("separation", label, predicted, attribute, **reading).value


def independence(label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, **reading: Unpack[Reading]) -> float:
    """|coefficient| of the logistic fit of the decision on the attribute."""
    return disparity("independence", label, predicted, attribute, **reading).value


def sufficiency(label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, **reading: Unpack[Reading]) -> float:
    """|coefficient| of the logistic fit of the label on the attribute among positive decisions."""
    return disparity("sufficiency", label, predicted, attribute, **reading).value


def equalised_odds(label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, **reading: Unpack[Reading]) -> float:
    """Half the sum of the largest differences, between attribute values, of the true and of the false positive rate."""
    return disparity("equalised_odds", label, predicted, attribute, **reading).value


def demographic_parity(label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, **reading: Unpack[Reading]) -> float:
    """Largest difference of the rate of positive decisions between attribute values."""
    return disparity("demographic_parity", label, predicted, attribute, **reading).value


def max_gap(
    label: ArrayLike,
    predicted: ArrayLike,
    attribute: ArrayLike,
    of: str = "balanced_accuracy",
    *,
    score: ArrayLike | None = None,
    **reading: Unpack[Reading],
) -> float:
    """Largest difference between attribute values of a metric named by `of` (one of `GAPS_OF`); "auc" is that of `score` (n,)."""
    return disparity("max_gap", label, predicted, attribute, of, score=score, **reading).value


# ---------------------------------------------------------------------------------------------------- a disparity


@dataclass(frozen=True)
class Value:
    """A number, or NaN with the reason why it is undefined."""

    value: float
    reason: str = ""

    @property
    def is_defined(self) -> bool:
        return not math.isnan(self.value)


@dataclass(frozen=True)
class Disparity:
    """One fairness metric: its value, its draws over resamples and its null under exchange of the attribute.

    Attributes
    ----------
    level : the attribute value with the largest disparity, for categorical attributes of more than two values
    each : each value against the rest (logistic metrics of a categorical attribute), or the quantity whose gap it is
        (equalised odds: the mean of the two rates)
    unit : "log odds ratio", "log odds per unit" or "difference"
    rows : rows used; `missing` had no label or attribute
    """

    name: str
    value: float
    reason: str
    level: Hashable
    each: dict[Hashable, Value]
    unit: str
    rows: int
    missing: int
    table: Table = field(repr=False, compare=False)
    statistic: Callable[[Tables], Floats] = field(repr=False, compare=False)

    def draws(self, counts: Counts) -> Floats:
        """The metric of each resample, counts (B, n) to (B,); NaN where it is undefined."""
        return self.statistic(self.table.resampled(counts))

    def formula(self) -> Formula:
        """The metric of sums over rows, for large tables; none of scores."""
        table = self.table
        if table.continuous and self.name in LOGISTIC:
            return _steps(self.name, table)
        kind = "by value and cell" if table.binned is None else "by bin and cell"
        if table.continuous:
            return Formula((), lambda: np.full(1, np.nan))
        cells = Sum(f"fairness {kind}", 4 * len(table.values), lambda: (table.code, None))
        return Formula((cells,), lambda sums: self.statistic(Counted(table, sums.astype(np.int64).reshape(len(sums), -1, 2, 2))))

    def null(self, donors: NDArray[np.integer]) -> Floats:
        """The metric when row i has the attribute of row `donors[p, i]`, donors (P, n) to (P,); no row may lack a value."""
        return self.statistic(self.table.exchanged(donors))


def disparity(
    name: str,
    label: ArrayLike,
    predicted: ArrayLike,
    attribute: ArrayLike,
    of: str = "balanced_accuracy",
    *,
    score: ArrayLike | None = None,
    **reading: Unpack[Reading],
) -> Disparity:
    """A metric of `METRICS`, with the reason where it is undefined.

    Parameters
    ----------
    label, predicted : (n,) 0 and 1, or any values with `positive` named
    attribute : (n,) values or codes; -1 (integers) and NaN are missing
    of : the quantity of `max_gap`, one of `GAPS_OF`
    score : (n,) of the positive class, for the gap of "auc"
    """
    if name not in METRICS:
        raise SettingError(f"no fairness metric {name!r}; known: {', '.join(METRICS)}")
    if of not in GAPS_OF:
        raise SettingError(f"no gap of {of!r}; known: {', '.join(GAPS_OF)}")
    table = tabulate(label, predicted, attribute, **reading)
    if of == AUC and name not in LOGISTIC:
        return _gap_disparity(name, table, _quantity(name, of, _scores(score, table)))
    return disparity_of(table, name, of)


def disparity_of(table: Table, name: str, of: str = "balanced_accuracy") -> Disparity:
    """A metric of `METRICS` of a table that is there already; none of scores."""
    if name in LOGISTIC:
        return _logistic_disparity(name, table)
    return _gap_disparity(name, table, _quantity(name, of, None))


def signed_disparity(
    label: ArrayLike, predicted: ArrayLike, attribute: ArrayLike, level: Hashable = None, **reading: Unpack[Reading]
) -> Disparity:
    """Acceptance at one attribute value minus that of the rest, given the label, averaged over labels with its sign.

    `level` is the value (default: the larger of two). Continuous attributes: the mean signed logistic coefficient. Multiply
    by the sign of the training rows' `stats.associations` to make the direction of a shortcut positive.
    """
    table = tabulate(label, predicted, attribute, **reading)
    statistic = partial(_signed, level=level)
    value = float(statistic(table.whole)[0])
    unit = "log odds per unit" if table.continuous else "difference"
    reason = _why_no_sign(table) if math.isnan(value) else ""
    each: dict[Hashable, Value] = {level: Value(value, reason)}
    return Disparity("signed disparity", value, reason, level, each, unit, table.rows, table.missing, table, statistic)


def _logistic_disparity(name: str, table: Table) -> Disparity:
    statistic = partial(_largest_coefficient, name=name)
    coefficients = _coefficients(table.whole, name)[0].tolist()
    each = {level: Value(c, _why(name, table, k, c)) for k, (level, c) in enumerate(zip(table.compared, coefficients))}
    value = float(statistic(table.whole)[0])
    largest = None
    if len(each) > 1 and not math.isnan(value):
        largest = max(each, key=lambda level: each[level].value)
    unit = "log odds per unit" if table.continuous else "log odds ratio"
    return Disparity(name, value, _reason(value, each), largest, each, unit, table.rows, table.missing, table, statistic)


def _gap_disparity(name: str, table: Table, quantity: Quantity) -> Disparity:
    statistic = partial(_gap, quantity=quantity)
    value = float(statistic(table.whole)[0])
    each: dict[Hashable, Value]
    if table.continuous:
        each = {"per unit": Value(math.nan, NEEDS_BINS)}
    else:
        shares = quantity(table.whole)[0]
        shares = shares if shares.ndim == 1 else shares.mean(axis=1)
        each = {
            v: Value(s, f"no rows for a rate at {v!r}" if math.isnan(s) else "") for v, s in zip(table.values, shares.tolist())
        }
    return Disparity(name, value, _reason(value, each), None, each, "difference", table.rows, table.missing, table, statistic)


def _reason(value: float, each: dict[Hashable, Value]) -> str:
    """Why a metric is undefined: the reasons of the values that are."""
    if not math.isnan(value):
        return ""
    undefined = {level: v.reason for level, v in each.items() if not v.is_defined}
    if len(each) == 1:
        reasons = list(undefined.values())
    else:
        reasons = [f"{reason} ({level!r})" for level, reason in undefined.items()]
    return "; ".join(reasons) or "constant attribute"


# ---------------------------------------------------------------------------------------------------- monotonicity


@dataclass(frozen=True)
class Monotonicity:
    """Is one logistic slope a fair summary of how the decision varies with a continuous attribute?

    Attributes
    ----------
    is_monotone : None where it could not be judged
    p : of the hypothesis that the slopes at the two ends do not have opposite signs (Lind and Mehlum 2010)
    turn : where the fitted curve turns
    edges, rates : (6,) and (5,) quintiles of the attribute and the share of positive decisions in them
    """

    is_monotone: bool | None
    p: float
    turn: float
    edges: Floats
    rates: Floats
    reason: str = ""


def monotonicity(
    predicted: ArrayLike, attribute: ArrayLike, *, positive: Hashable = None, rows: ArrayLike | None = None
) -> Monotonicity:
    """Test for a U: a logistic fit with a square whose slopes at the 5 % and 95 % quantiles differ in sign, each at 5 %.

    `rows` (n,) chooses the stratum (label 1, label 0, positive decisions) of the fit that is being checked.
    """
    x, y = np.asarray(attribute, dtype=np.float64), _binary(predicted, positive, "predicted")
    keep = ~np.isnan(x) & (y >= 0) & (True if rows is None else np.asarray(rows, dtype=bool))
    x, y = x[keep], y[keep]
    none = np.full(6, np.nan), np.full(5, np.nan)
    if len(np.unique(x)) <= 2:
        return Monotonicity(None, math.nan, math.nan, *none, "two values or fewer: nothing to be monotone in")
    edges = np.quantile(x, np.linspace(0, 1, 6))
    which = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, 4)
    number = np.bincount(which, minlength=5)
    rates = np.divide(np.bincount(which, y, minlength=5), number, out=np.full(5, np.nan), where=number > 0)
    centre, scale = x.mean(), x.std()
    z = (x - centre) / scale
    fit = _newton(np.stack([np.ones_like(z), z, z * z], axis=1), y)
    if fit is None:
        return Monotonicity(None, math.nan, math.nan, edges, rates, "one class or perfect separation")
    beta, covariance = fit
    ends = np.stack([np.zeros(2), np.ones(2), 2 * np.quantile(z, [0.05, 0.95])], axis=1)
    slope, error = ends @ beta, np.sqrt(np.einsum("ij,jk,ik->i", ends, covariance, ends))
    opposite = slope[0] * slope[1] < 0
    p = float(ndtr(-np.abs(slope / error)).max()) if opposite else 1.0
    if opposite:
        turn = float(centre - scale * beta[1] / (2 * beta[2]))
    else:
        turn = math.nan
    return Monotonicity(p > 0.05, p, turn, edges, rates)


# ---------------------------------------------------------------------------------------------------- the table


@dataclass(frozen=True)
class Table:
    """Rows coded 4 value + 2 label + decision, -1 where something is missing."""

    code: Ints
    values: tuple[Hashable, ...]
    continuous: bool
    binned: tuple[float, ...] | None = None

    @property
    def x(self) -> Floats:
        return np.asarray(self.values, dtype=np.float64)

    @property
    def compared(self) -> tuple[Hashable, ...]:
        """The values that are taken against the rest: of two the second, which says all."""
        if self.continuous:
            return ("per unit",)
        if len(self.values) == 2:
            return self.values[1:]
        return self.values

    @property
    def rows(self) -> int:
        return int(self.whole.cells.sum())

    @property
    def missing(self) -> int:
        return int((self.code < 0).sum())

    @cached_property
    def whole(self) -> Resampled:
        """The data as they are, as one resample."""
        return self.resampled(resampling.whole(len(self.code)))

    def resampled(self, counts: Counts) -> Resampled:
        return Resampled(self, counts)

    def exchanged(self, donors: NDArray[np.integer]) -> Exchanged:
        rows = np.asarray(donors)
        if self.missing or rows.ndim != 2 or rows.shape[1] != len(self.code):
            raise DataError(
                f"found donors of shape {rows.shape} for {len(self.code)} rows, {self.missing} of them without a "
                "label or attribute: leave those out and give (P, n) row numbers"
            )
        return Exchanged(self, rows)

    def position(self, level: Hashable) -> int:
        """Position of a level among the values; of two values the second is meant unless one is named."""
        if level is not None and level not in self.values:
            raise SettingError(f"no attribute value {level!r}; known: {self.values[:10]}")
        if level is None and not self.continuous and len(self.values) > 2:
            raise SettingError(f"the attribute has {len(self.values)} values {self.values[:10]}; name one with level=")
        if level is None:
            return len(self.values) - 1
        return self.values.index(level)


@dataclass(frozen=True)
class Resampled:
    """B tables, one for each resample of the rows; counts (B, n)."""

    table: Table
    counts: Counts

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def cells(self) -> Ints:
        """Rows by value, label and decision, (B, K, 2, 2)."""
        K = len(self.table.values)
        return resampling.tally(self.counts, self.table.code, 4 * K).reshape(len(self), K, 2, 2)

    def rows_at(self, k: int) -> NDArray[np.uint8]:
        """How often each row is there with value k, (B, n)."""
        return np.where(self.table.code // 4 == k, self.counts, 0).astype(np.uint8)

    def slopes(self, fit: Fit) -> Floats:
        """Logistic coefficients (B,) of one fit on a continuous attribute."""
        code = self.table.code
        outcome = np.array(fit)[code % 4]
        return _continuous_slopes(self.table.x, np.where((code < 0) | (outcome < 0), -1, code // 4 * 2 + outcome), self.counts)


@dataclass(frozen=True)
class Exchanged:
    """P tables in which rows have each other's attribute; donors (P, n)."""

    table: Table
    donors: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.donors)

    @cached_property
    def cells(self) -> Ints:
        """Rows by value, label and decision, (P, K, 2, 2)."""
        value = (self.table.code // 4)[self.donors]
        outcome = np.eye(4, dtype=np.float32)[self.table.code % 4]
        by_value = [(value == k).astype(np.float32) @ outcome for k in range(len(self.table.values))]
        return np.stack(by_value, axis=1).round().astype(np.int64).reshape(len(self), -1, 2, 2)

    def rows_at(self, k: int) -> NDArray[np.uint8]:
        """Whether each row has value k, (P, n)."""
        return ((self.table.code // 4)[self.donors] == k).astype(np.uint8)

    def slopes(self, fit: Fit) -> Floats:
        """Logistic coefficients (P,) of one fit on a continuous attribute."""
        outcome = np.array(fit)[self.table.code % 4]
        rows = np.flatnonzero(outcome >= 0)
        return _slopes_by_row(self.table.x[(self.table.code // 4)[self.donors[:, rows]]], outcome[rows])


@dataclass(frozen=True)
class Counted:
    """B tables of which the cells, (B, K, 2, 2), are all that is known."""

    table: Table
    cells: Ints

    def __len__(self) -> int:
        return len(self.cells)

    def rows_at(self, k: int) -> NDArray[np.uint8]:
        raise SettingError("a table of counts has no rows: areas under ROC curves need the rows themselves")

    def slopes(self, fit: Fit) -> Floats:
        """Logistic coefficients (B,) of one fit on a continuous attribute, from its cells."""
        raise SettingError("a table of counts has no rows: fits on a continuous attribute need the rows themselves")


Tables: TypeAlias = Resampled | Exchanged | Counted
Quantity: TypeAlias = Callable[[Tables], Floats]


def tabulate(
    label: ArrayLike,
    predicted: ArrayLike,
    attribute: ArrayLike,
    positive: Hashable = None,
    kind: str | None = None,
    bins: Sequence[float] | None = None,
) -> Table:
    """The table of label, decision and attribute, (n,) each, read as `Reading` says."""
    if kind not in (None, "categorical", "continuous"):
        raise SettingError(f"no kind {kind!r}; known: categorical, continuous")
    y, guess = _binary(label, positive, "label"), _binary(predicted, positive, "predicted")
    column = as_column(attribute) if bins is None else _binned(attribute, bins)
    a, values = coded(column)
    if not len(y) == len(guess) == len(a):
        raise DataError(
            f"found {len(y)} labels, {len(guess)} predictions and {len(a)} attribute values; give all over the same rows"
        )
    numeric = column.dtype.kind in "iuf"
    if kind == "continuous" and not numeric:
        raise DataError(f"a continuous attribute must be numbers, found {values[:3]}")
    if kind == "continuous" and bins is not None:
        raise SettingError("bins make the attribute categorical; give kind='continuous' or bins, not both")
    continuous = kind == "continuous" or (kind is None and bins is None and numeric and len(values) > MOST_LEVELS)
    edges = None if bins is None else tuple(bins)
    return Table(np.where((y < 0) | (guess < 0) | (a < 0), -1, 4 * a + 2 * y + guess), values, continuous, edges)


def _binary(column: ArrayLike, positive: Hashable, what: str) -> Ints:
    """1 for the positive class, 0 for the rest, -1 for missing, (n,)."""
    code, values = coded(column)
    if positive is None:
        if not set(values) <= {0, 1}:
            raise SettingError(
                f"{what} has the values {values[:5]}, expected 0 and 1: name the class to take against the rest with positive="
            )
        positive = 1
    hit = np.array([value == positive for value in values] + [False])[code]
    return np.where(code < 0, -1, hit.astype(np.int64))


def _binned(attribute: ArrayLike, bins: Sequence[float]) -> Ints:
    x, edges = np.asarray(attribute, dtype=np.float64), np.asarray(bins, dtype=np.float64)
    if edges.ndim != 1 or len(edges) < 3 or (np.diff(edges) <= 0).any():
        raise SettingError(f"found bins {list(bins)}; expected at least three rising edges")
    code = np.searchsorted(edges, x, side="right") - 1
    code[x == edges[-1]] = len(edges) - 2
    return np.where(np.isnan(x) | (code < 0) | (code > len(edges) - 2), -1, code).astype(np.int64)


# ---------------------------------------------------------------------------------------------------- metrics of tables

# A logistic fit: the outcome (-1: not in the fit) of the cells (label 0, decision 0), (0, 1), (1, 0), (1, 1).
Fit: TypeAlias = tuple[int, int, int, int]
# The fits of each metric, by the name of their rows.
FITS: dict[str, dict[str, Fit]] = {
    "separation": {"label 1": (-1, -1, 0, 1), "label 0": (0, 1, -1, -1)},
    "independence": {"all rows": (0, 1, 0, 1)},
    "sufficiency": {"positive decisions": (-1, 0, -1, 1)},
}


def _largest_coefficient(tables: Tables, name: str) -> Floats:
    """A logistic metric, (B,): the largest over the values."""
    if len(tables.table.values) < 2:
        return np.full(len(tables), np.nan)
    return _coefficients(tables, name).max(axis=1)


def _coefficients(tables: Tables, name: str) -> Floats:
    """The metric for each value against the rest, (B, K); for two values or a continuous attribute (B, 1)."""
    return np.mean([np.abs(_slopes(tables, fit)) for fit in FITS[name].values()], axis=0)


def _gap(tables: Tables, quantity: Quantity) -> Floats:
    """A metric that is a gap between groups, (B,): the largest less the smallest, averaged where there are several."""
    if tables.table.continuous or len(tables.table.values) < 2:
        return np.full(len(tables), np.nan)
    by_value = quantity(tables)
    gaps = by_value.max(axis=1) - by_value.min(axis=1)
    return gaps.reshape(len(tables), -1).mean(axis=1)


def _signed(tables: Tables, level: Hashable) -> Floats:
    """The disparity with its sign, (B,)."""
    if len(tables.table.values) < 2:
        return np.full(len(tables), np.nan)
    k = tables.table.position(level)
    if tables.table.continuous:
        return np.mean([_slopes(tables, fit)[:, 0] for fit in FITS["separation"].values()], axis=0)
    here = tables.cells[:, k]
    rest = tables.cells.sum(axis=1) - here
    return (_share(here[..., 1], here.sum(axis=-1)) - _share(rest[..., 1], rest.sum(axis=-1))).mean(axis=1)


def _slopes(tables: Tables, fit: Fit) -> Floats:
    """Signed logistic coefficients, (B, K), or (B, 1) where one says all."""
    if tables.table.continuous:
        return tables.slopes(fit)[:, None]
    here = _outcomes(tables.cells, fit).astype(np.float64)
    rest = here.sum(axis=1, keepdims=True) - here
    if len(tables.table.values) == 2:
        here, rest = here[:, 1:], rest[:, 1:]
    # Of a table with an empty cell Firth's fit is the plain one with 1/2 added to every cell.
    half = np.where((here == 0).any(axis=-1) | (rest == 0).any(axis=-1), 0.5, 0.0)[..., None]
    both = here + rest
    has_fit = (here.sum(axis=-1) > 0) & (rest.sum(axis=-1) > 0) & (both > 0).all(axis=-1)
    a, b = np.where(has_fit[..., None], here + half, 1.0), np.where(has_fit[..., None], rest + half, 1.0)
    return np.where(has_fit, np.log(a[..., 1] * b[..., 0] / (a[..., 0] * b[..., 1])), np.nan)


def _outcomes(cells: Ints, fit: Fit) -> Ints:
    """Rows by value and outcome of a fit, (..., K, 2)."""
    flat = cells.reshape(*cells.shape[:-2], 4)
    return np.stack([flat[..., np.array(fit) == outcome].sum(axis=-1) for outcome in (0, 1)], axis=-1)


def _quantity(name: str, of: str, score: Floats | None) -> Quantity:
    """What a gap is of, by value: (B, K), or (B, K, 2) of two rates."""
    if name == "max_gap" and score is not None:
        return partial(_areas, score=score)
    by_cells = {"equalised_odds": _rates_by_label, "demographic_parity": _rates}.get(name) or GAP_OF[of]
    return lambda tables: by_cells(tables.cells)


def _scores(score: ArrayLike | None, table: Table) -> Floats:
    if score is None:
        raise SettingError("a gap of 'auc' is one of scores, and none were given: score= (n,) of the positive class")
    values = np.asarray(score, dtype=np.float64)
    if values.shape != table.code.shape:
        raise DataError(f"found {len(values)} scores for {len(table.code)} rows; give one for every row")
    return values


def _areas(tables: Tables, score: Floats) -> Floats:
    """Area under the ROC curve within each value, (B, K): the other values' rows count as not drawn."""
    truth = tables.table.code % 4 >= 2
    by_value = [resampling.auc_draws(truth, score, tables.rows_at(k)) for k in range(len(tables.table.values))]
    return np.stack(by_value, axis=1)


def _rates(cells: Ints) -> Floats:
    """Share of positive decisions by value, (B, K)."""
    return _share(cells[..., 1].sum(axis=2), cells.sum(axis=(2, 3)))


def _rates_by_label(cells: Ints) -> Floats:
    """Share of positive decisions by value and label, (B, K, 2): false and true positive rates."""
    return _share(cells[..., 1], cells.sum(axis=3))


GAP_OF: dict[str, Callable[[Ints], Floats]] = {
    "balanced_accuracy": lambda cells: (1 + _rates_by_label(cells)[..., 1] - _rates_by_label(cells)[..., 0]) / 2,
    "accuracy": lambda cells: _share(cells[..., 0, 0] + cells[..., 1, 1], cells.sum(axis=(2, 3))),
    "true_positive_rate": lambda cells: _rates_by_label(cells)[..., 1],
    "false_positive_rate": lambda cells: _rates_by_label(cells)[..., 0],
    "positive_predictive_value": lambda cells: _share(cells[..., 1, 1], cells[..., 1].sum(axis=2)),
}

AUC = "auc"
GAPS_OF = (*GAP_OF, AUC)


def _share(part: NDArray, of: NDArray) -> Floats:
    return np.divide(part, of, out=np.full(np.shape(part), np.nan), where=of > 0)


# ---------------------------------------------------------------------------------------------------- reasons


def _why(name: str, table: Table, k: int, coefficient: float) -> str:
    """Why the logistic coefficient of value k is undefined."""
    if not math.isnan(coefficient):
        return ""
    for where, fit in FITS[name].items():
        if reason := _why_no_fit(table, _outcomes(table.whole.cells[0], fit), k):
            return f"{reason} among {where}"
    return "undefined"


def _why_no_fit(table: Table, rows: Ints, k: int) -> str:
    """Why a fit on rows by (value, outcome), (K, 2), has no coefficient; empty if it has one."""
    if not rows.sum():
        return "no rows"
    several = not table.continuous and len(table.values) > 2
    if np.count_nonzero(rows.sum(axis=1)) < 2 or (several and not rows[k].sum()):
        return "constant attribute"
    if not rows.sum(axis=0).all():
        return "one outcome only"
    return ""


def _why_no_sign(table: Table) -> str:
    if table.continuous:
        return _why("separation", table, 0, math.nan)
    if len(table.values) > 1:
        return "an attribute value has no rows at a label"
    return "constant attribute"


# ---------------------------------------------------------------------------------------------------- logistic fits


def _continuous_slopes(x: Floats, code: Ints, counts: Counts) -> Floats:
    """Slopes (B,) of logistic fits of rows coded 2 value + outcome, each started at the fit to the whole data."""
    used = x[code[code >= 0] // 2]
    if len(used) == 0 or used.min() == used.max():
        return np.full(len(counts), np.nan)
    centre, scale = used.mean(), used.std()
    z = (x - centre) / scale
    start, out = np.empty((1, 2)), np.empty((len(counts), 2))
    fit = resampling.kernels().logistic_fits
    fit(resampling.whole(len(code)), code, z, np.zeros(2), start)
    counts = resampling.as_counts(counts, len(code))
    fit(counts, code, z, np.nan_to_num(start[0]), out)
    slopes = out[:, 1] / scale
    separated = np.flatnonzero(np.isnan(slopes))
    if len(separated):
        cells = resampling.tally(counts[separated], code, 2 * len(x)).reshape(len(separated), -1, 2)
        slopes[separated] = firth_slopes(x, cells.sum(axis=2), cells[..., 1])
    return slopes


def _steps(name: str, table: Table) -> Formula:
    """A logistic metric of a continuous attribute: each slope of `FITS`, exact where a fit has few rows, else `one_step`."""
    fits = []
    for which, fit in FITS[name].items():
        outcome = np.array(fit)[table.code % 4]
        rows = np.flatnonzero((table.code >= 0) & (outcome >= 0))
        fits.append(one_step(f"{name} {which}", table.x[table.code[rows] // 4], outcome[rows], rows))
    return totals.mean_of(fits)


def one_step(name: str, x: Floats, outcome: Ints, rows: Ints) -> Formula:
    """|slope| of the logistic fit of an outcome on x, (m,): one step of Newton from the fit to the data, which is off by about
    1 part in the number of rows. Few rows, and those that no fit without a penalty separates, are fitted anew every time.
    """
    distinct, place = np.unique(x, return_inverse=True)
    code = 2 * place.astype(np.int64) + outcome
    start = np.full((1, 2), np.nan)
    centre, scale = x.mean() if len(x) else 0.0, x.std() if len(x) else 0.0
    if len(x) > totals.EXACT and scale > 0:
        whole = resampling.whole(len(x))
        resampling.kernels().logistic_fits(whole, code, (distinct - centre) / scale, np.zeros(2), start)
    intercept, slope = start[0]
    if np.isnan(slope):
        return Formula((Exact(rows, lambda counts: np.abs(_continuous_slopes(distinct, code, counts))),), lambda drawn: drawn)
    z = (x - centre) / scale
    p = expit(intercept + slope * z)
    columns = {"g0": outcome - p, "g1": (outcome - p) * z, "h0": p * (1 - p), "h1": p * (1 - p) * z, "h2": p * (1 - p) * z * z}
    one = np.zeros(len(x), dtype=np.int64)

    def value(*sums: Floats) -> Floats:
        g0, g1, h0, h1, h2 = (each[:, 0] for each in sums)
        step = _share(h0 * g1 - h1 * g0, h0 * h2 - h1 * h1)
        return np.abs(slope + step) / scale

    return Formula(tuple(Sum(f"{name} {key}", 1, partial(_pair, one, v), rows) for key, v in columns.items()), value)


def _pair(code: Ints, values: Floats) -> tuple[Ints, Floats]:
    return code, values


def _slopes_by_row(x: Floats, y: NDArray) -> Floats:
    """Slopes (P,) of logistic fits of one outcome y (m,) on P columns of numbers x (P, m), all by Newton's steps at once."""
    slopes = np.full(len(x), np.nan)
    if not len(y) or y.min() == y.max():
        return slopes
    scale = x.std(axis=1, keepdims=True)
    low, high = x[:, y == 0], x[:, y == 1]
    overlap = (scale[:, 0] > 0) & (low.min(axis=1) < high.max(axis=1)) & (high.min(axis=1) < low.max(axis=1))
    z = (x - x.mean(axis=1, keepdims=True)) / np.where(scale > 0, scale, 1.0)
    share = y.mean()
    a, b = np.full(len(x), np.log(share / (1 - share))), np.zeros(len(x))
    for _ in range(50):
        p = expit(a[:, None] + b[:, None] * z)
        w, r = p * (1 - p), y - p
        s0, s1, s2 = w.sum(axis=1), (w * z).sum(axis=1), (w * z * z).sum(axis=1)
        g0, g1 = r.sum(axis=1), (r * z).sum(axis=1)
        det = np.where(overlap, s0 * s2 - s1 * s1, 1.0)
        da, db = (s2 * g0 - s1 * g1) / det, (s0 * g1 - s1 * g0) / det
        # A step of at most 2 keeps Newton from running away where the classes hardly overlap.
        shrink = np.where(overlap, np.minimum(1.0, 2.0 / np.maximum(np.maximum(np.abs(da), np.abs(db)), 1e-300)), 0.0)
        a, b = a + shrink * da, b + shrink * db
        if (np.abs(np.where(overlap, da, 0)).max() < 1e-9) and (np.abs(np.where(overlap, db, 0)).max() < 1e-9):
            break
    slopes[overlap] = (b / np.where(scale[:, 0] > 0, scale[:, 0], 1.0))[overlap]
    separated = x[~overlap]
    if len(separated):
        slopes[~overlap] = firth_slopes(separated, np.ones(separated.shape), np.broadcast_to(y, separated.shape))
    return slopes


def _newton(design: Floats, y: NDArray) -> tuple[Floats, Floats] | None:
    """Unpenalised logistic fit: coefficients and their covariance; None where it does not converge."""
    beta = np.zeros(design.shape[1])
    if y.min() == y.max():
        return None
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(design @ beta, -500, 500)))
        hessian = design.T @ (design * (p * (1 - p))[:, None])
        if np.linalg.cond(hessian) > 1e12:
            return None
        step = np.linalg.solve(hessian, design.T @ (y - p))
        beta += step
        if np.abs(step).max() < 1e-9:
            return beta, np.linalg.inv(hessian).astype(np.float64)
    return None
