"""Statistics over trained models, each one a unit: correlation, degradation outside, regression, seeds, pairs (sdi-ccr, IV-K)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from rightreasons.errors import DataError, SettingError
from rightreasons.stats import calibration, groups, resampling
from rightreasons.stats.correlation import ROUNDING
from rightreasons.stats.resampling import Counts, Interval, benjamini_hochberg, interval, p_value, resamples, subject_codes

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

FEWEST_UNITS = 3
# A bootstrap of fewer clusters than this says little more than how many of each were drawn.
FEWEST_CLUSTERS = 5
# Values that differ by less, as a share of the largest, are ties: centring leaves such differences behind.
TIE_DIGITS = 12
METHODS = ("spearman", "pearson")
# Of subsets of seeds; beyond it a seeded sample of them is taken.
MOST_SUBSETS = 500
# Pairs up to which the signed-rank test counts every assignment of signs.
MOST_EXACT = 200
# Leverage above which a unit alone fixes the line there.
ALONE = 1 - 1e-10


# ---- correlation ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Correlation:
    """A correlation over model units.

    Attributes
    ----------
    coefficient : with the percentile interval over resamples of units, or of clusters of them
    p : two-sided, by permutation; NaN with `p_reason`
    p_adjusted : over the tests that were made together (Benjamini-Hochberg); p itself if there was one
    n : units that have both values; `left_out` lack one
    clusters : how many were resampled, 0 where units were
    within : whether the values were centred within groups
    """

    method: str
    coefficient: Interval
    p: float
    p_adjusted: float
    n: int
    left_out: int
    clusters: int
    within: bool
    p_reason: str = ""


def correlation(
    x: ArrayLike,
    y: ArrayLike,
    *,
    rng: np.random.Generator,
    method: str = "spearman",
    cluster: ArrayLike | None = None,
    within: ArrayLike | None = None,
    B: int = 10_000,
    level: float = 0.95,
) -> Correlation:
    """Spearman or Pearson correlation of two values of each unit, x and y (K,), with interval and p (eq. 19).

    The interval is the paper's percentile interval. Simulated with 30 normal units and a correlation of 0.6 it holds the truth in
    95 % (Spearman) and 91 % (Pearson) of the cases; over six clusters of five, without a correlation, in 90 %.

    Parameters
    ----------
    cluster : (K,) or a sequence of such columns, e.g. (architecture, regime): whole clusters are resampled, and the null permutes
        y between clusters of one size (in any order inside them)
    within : (K,) or columns, e.g. architecture: x and y are centred within it in every resample, and the null permutes y
        within it (with `cluster`: clusters within it)
    B : resamples, and permutations
    """
    (single,) = correlations({"": (x, y)}, rng=rng, method=method, cluster=cluster, within=within, B=B, level=level).values()
    return single


def correlations(
    tests: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    rng: np.random.Generator,
    method: str = "spearman",
    cluster: ArrayLike | None = None,
    within: ArrayLike | None = None,
    B: int = 10_000,
    level: float = 0.95,
) -> dict[str, Correlation]:
    """Several correlations over the same units, name → (x, y), on the same resamples; their p are adjusted together."""
    if method not in METHODS:
        raise SettingError(f"no correlation named {method!r}; known: {', '.join(METHODS)}")
    if B < 1 or not 0 < level < 1:
        raise SettingError(f"found B={B} and level={level}; B must be at least 1 and level between 0 and 1")
    seed = int(rng.integers(2**63))
    results = {}
    for name, (x, y) in tests.items():
        a, b = _columns(x, y)
        kept = np.isfinite(a) & np.isfinite(b)
        clusters = None if cluster is None else _codes(cluster, len(a))[kept]
        inside = None if within is None else _codes(within, len(a))[kept]
        # Every test starts from the same generator: those with the same units then have the same resamples.
        own = np.random.default_rng(seed)
        test = _correlation(a[kept], b[kept], method, clusters, inside, own, B, level)
        results[name] = replace(test, left_out=int(np.sum(~kept)))
    adjusted = benjamini_hochberg([test.p for test in results.values()])
    return {name: replace(test, p_adjusted=float(p)) for (name, test), p in zip(results.items(), adjusted, strict=True)}


def _correlation(
    x: Floats, y: Floats, method: str, cluster: Codes | None, within: Codes | None, rng: np.random.Generator, B: int, level: float
) -> Correlation:
    n, x, y = len(x), _scaled(x), _scaled(y)
    groups_drawn = 0
    if cluster is not None:
        groups_drawn = len(np.unique(cluster))
    if n >= FEWEST_UNITS:
        value = float(correlation_draws(x, y, resampling.whole(n), method, within)[0])
    else:
        value = math.nan
    if math.isnan(value):
        if n < FEWEST_UNITS:
            reason = f"{n} units, at least {FEWEST_UNITS} needed"
        else:
            reason = _constant(x, y, within)
        nothing = Interval(math.nan, math.nan, math.nan, reason=reason, level=level)
        return Correlation(method, nothing, math.nan, math.nan, n, 0, groups_drawn, within is not None, reason)
    if cluster is not None and groups_drawn < FEWEST_CLUSTERS:
        reason = f"no interval: {groups_drawn} clusters, at least {FEWEST_CLUSTERS} needed"
        spread = Interval(value, math.nan, math.nan, reason=reason, level=level)
    else:
        drawn = resamples(n, rng=rng, B=B, subject=cluster)
        draws = drawn.apply(lambda counts: correlation_draws(x, y, counts, method, within))
        spread = interval(value, draws, level)
    p, why = _permutation_p(x, y, method, cluster, within, rng, B)
    return Correlation(method, spread, p, math.nan, n, 0, groups_drawn, within is not None, why)


def correlation_draws(
    x: ArrayLike, y: ArrayLike, counts: Counts, method: str = "spearman", within: Codes | None = None
) -> Floats:
    """Correlation of each resample of units, counts (B, K) to (B,); NaN where all drawn x or all drawn y are equal.

    Ranks are taken anew in every resample, and copies of a unit tie.
    """
    a = _drawn_values(_scaled(np.asarray(x, dtype=np.float64)), counts, method, within)
    b = _drawn_values(_scaled(np.asarray(y, dtype=np.float64)), counts, method, within)
    weight = np.asarray(counts, dtype=np.float64)
    a = a - _mean(a, weight)[:, None]
    b = b - _mean(b, weight)[:, None]
    squares = [np.sum(weight * v * v, axis=1) for v in (a, b)]
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.sum(weight * a * b, axis=1) / np.sqrt(squares[0] * squares[1])
    # Values are scaled into [-1, 1] and ranks differ by halves: below this a sum of squares is rounding.
    r[np.minimum(*squares) <= ROUNDING**2] = np.nan
    return np.clip(r, -1.0, 1.0)


def _drawn_values(values: Floats, counts: Counts, method: str, within: Codes | None) -> Floats:
    """What is correlated, (B, K) or (1, K): the values, centred within groups and ranked as asked."""
    if within is None:
        if method == "pearson":
            return values[None, :]
        return _ranks_once_sorted(values, counts)
    size = int(within.max()) + 1
    sums = resampling.tally(counts, within, size, values)
    number = resampling.tally(counts, within, size)
    means = np.divide(sums, number, out=np.zeros_like(sums), where=number > 0)
    centred = np.round(values - means[:, within], TIE_DIGITS)
    if method == "pearson":
        return centred
    return _ranks(centred, counts)


def _ranks_once_sorted(values: Floats, counts: Counts) -> Floats:
    """Average ranks (B, K) of values (K,) that are the same in every resample: each distinct value is looked up once."""
    distinct, code = np.unique(values, return_inverse=True)
    number = resampling.tally(counts, code, len(distinct))
    return (np.cumsum(number, axis=1) - (number - 1) / 2)[:, code]


def _ranks(values: Floats, counts: Counts) -> Floats:
    """Average ranks (B, K) of values (B, K) that differ between resamples."""
    B, K = values.shape
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    number = np.take_along_axis(np.asarray(counts, dtype=np.int64), order, axis=1)
    new = np.ones((B, K), dtype=np.int64)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run = np.cumsum(new.ravel()) - 1  # the first of every row is new, so no run crosses rows
    held = np.bincount(run, number.ravel())
    up_to = np.zeros(len(held))
    np.maximum.at(up_to, run, np.cumsum(number, axis=1).ravel())
    ranks = np.empty((B, K))
    np.put_along_axis(ranks, order, (up_to - (held - 1) / 2)[run].reshape(B, K), axis=1)
    return ranks


def _mean(values: Floats, weight: Floats) -> Floats:
    return np.sum(weight * values, axis=1) / np.sum(weight, axis=1)


def _permutation_p(
    x: Floats, y: Floats, method: str, cluster: Codes | None, within: Codes | None, rng: np.random.Generator, B: int
) -> tuple[float, str]:
    """The share of permutations of y that reach the correlation, and why there is none."""
    order = _Exchange(cluster, within, len(x))
    if order.arrangements < math.log(20):
        return (
            math.nan,
            f"fewer than 20 ways to exchange {'clusters' if cluster is not None else 'units'}: no p could be below 0.05",
        )
    whole = resampling.whole(len(x))
    # No permutation crosses groups, so centres and ranks stay what they are.
    a = _drawn_values(x, whole, method, within)[0]
    b = _drawn_values(y, whole, method, within)[0]
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt(np.sum(a * a) * np.sum(b * b))
    null = np.concatenate([b[order.permutations(rng, k)] @ a for k in _blocks(B, len(x))]) / scale
    return p_value(float(a @ b / scale), null), ""


class _Exchange:
    """Permutations of units under the null: anywhere, within groups, or whole clusters among those of one size (and group)."""

    def __init__(self, cluster: Codes | None, within: Codes | None, n: int) -> None:
        self.n = n
        if cluster is None:
            self.own = np.arange(n)
        else:
            self.own = subject_codes(cluster)
        if cluster is not None and within is not None:
            self.own = subject_codes([f"{c} {g}" for c, g in zip(cluster, within, strict=True)])
        size = np.bincount(self.own)
        if within is None:
            group = np.zeros(n, dtype=np.int64)
        else:
            group = within
        first = np.unique(self.own, return_index=True)[1]
        self.stratum = np.unique(np.stack([size, group[first]], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
        self.size = size
        # Inside a cluster units exchange too, but those arrangements alone could not tell clusters from chance.
        self.arrangements = sum(math.lgamma(k + 1) for k in np.bincount(self.stratum))

    def permutations(self, rng: np.random.Generator, B: int) -> NDArray[np.int64]:
        """Rows (B, n) from which each unit takes its y."""
        C = len(self.size)
        # Clusters in order of (stratum, chance) fill the places of those in order of stratum.
        home = np.argsort(self.stratum, kind="stable")
        away = np.argsort(self.stratum + rng.random((B, C)), axis=1, kind="stable")
        donor = np.empty((B, C), dtype=np.int64)
        donor[:, home] = away
        if self.n == C:
            return donor[:, self.own]
        mine = np.lexsort((np.arange(self.n), self.own))  # units by cluster, as they stand
        theirs = np.argsort(self.own + rng.random((B, self.n)), axis=1, kind="stable")  # units by cluster, in any order
        start = np.concatenate([[0], np.cumsum(self.size)[:-1]])
        place = np.arange(self.n) - start[self.own[mine]]
        rows = np.empty((B, self.n), dtype=np.int64)
        rows[:, mine] = np.take_along_axis(theirs, start[donor[:, self.own[mine]]] + place, axis=1)
        return rows


def _blocks(B: int, n: int) -> list[int]:
    block = max(1, resampling.BLOCK_BYTES // (8 * n))
    return [min(block, B - start) for start in range(0, B, block)]


def _constant(x: Floats, y: Floats, within: Codes | None) -> str:
    where = " within groups" if within is not None else ""
    for name, values in (("x", x), ("y", y)):
        if not np.any(_drawn_values(values, resampling.whole(len(x)), "pearson", within)):  # scaled: a constant is zeros
            return f"all {name} are equal{where}"
    return f"x or y does not vary{where}"


# ---- inside against outside ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predictions:
    """What every unit says of one data set.

    Attributes
    ----------
    label : (n,) codes 0..C-1
    probability : (U, n, C), one matrix a unit
    subject : (n,) rows of a subject are drawn together
    """

    label: ArrayLike
    probability: ArrayLike
    subject: ArrayLike | None = None


@dataclass(frozen=True)
class Degradation:
    """By how much units do worse outside; positive is worse, whatever the metric.

    Attributes
    ----------
    change : one interval a unit
    p : (U,) two-sided, against no change
    p_adjusted : (U,) over the units
    draws : (B, U), resample by resample the same rows for every unit, so that units can be compared draw by draw
    """

    metric: str
    change: tuple[Interval, ...]
    p: Floats
    p_adjusted: Floats
    draws: Floats


LARGER_IS_BETTER = {"auc": True, "accuracy": True, "ece": False, "brier": False}


def degradation(
    inside: Predictions,
    outside: Predictions,
    *,
    rng: np.random.Generator,
    metric: str = "auc",
    B: int = 10_000,
    level: float = 0.95,
) -> Degradation:
    """Coupled bootstrap of a metric inside against outside (eq. 18): each data set has its own draws, the same for all units."""
    if metric not in LARGER_IS_BETTER:
        raise SettingError(f"no metric {metric!r}; known: {', '.join(LARGER_IS_BETTER)}")
    (value_in, draws_in), (value_ex, draws_ex) = (_metric_draws(data, metric, rng, B) for data in (inside, outside))
    if len(value_in) != len(value_ex):
        raise DataError(f"found {len(value_in)} units inside and {len(value_ex)} outside; give the same units in the same order")
    return coupled(draws_in, draws_ex, value_in, value_ex, metric=metric, larger_is_better=LARGER_IS_BETTER[metric], level=level)


def coupled(
    inside: ArrayLike,
    outside: ArrayLike,
    inside_value: ArrayLike,
    outside_value: ArrayLike,
    *,
    metric: str = "",
    larger_is_better: bool = True,
    level: float = 0.95,
) -> Degradation:
    """The same from draws that are already there, (B,) or (B, U), and the values (U,) on the data as they are."""
    sign = 1.0
    if not larger_is_better:
        sign = -1.0
    drawn = [np.asarray(d, dtype=np.float64) for d in (inside, outside)]
    if drawn[0].shape != drawn[1].shape or drawn[0].ndim not in (1, 2):
        raise DataError(f"found draws of shapes {drawn[0].shape} and {drawn[1].shape}; expected one shape, (B,) or (B, units)")
    draws = sign * (drawn[0] - drawn[1]).reshape(len(drawn[0]), -1)
    values = sign * np.atleast_1d(np.asarray(inside_value, dtype=np.float64) - np.asarray(outside_value, dtype=np.float64))
    if values.shape != draws.shape[1:]:
        raise DataError(f"found {values.size} values for {draws.shape[1]} units; give one value per unit, inside and outside")
    reason = "a class is missing inside or outside" if metric == "auc" else ""
    change = tuple(interval(value, draws[:, u], level, reason) for u, value in enumerate(values))
    p = np.array([bootstrap_p(estimate.value, draws[:, u]) for u, estimate in enumerate(change)])
    return Degradation(metric, change, p, benjamini_hochberg(p), draws)


def bootstrap_p(value: float, draws: ArrayLike) -> float:
    """Two-sided p of no difference from bootstrap draws (B,): twice the smaller share on either side of 0, at most 1.

    A draw at 0, or undefined, counts on both sides.
    """
    drawn = np.asarray(draws, dtype=np.float64)
    if math.isnan(value) or not len(drawn):
        return math.nan
    below, above = np.sum(~(drawn > 0)), np.sum(~(drawn < 0))
    return float(min(1.0, 2 * (1 + min(below, above)) / (len(drawn) + 1)))


def _metric_draws(data: Predictions, metric: str, rng: np.random.Generator, B: int) -> tuple[Floats, Floats]:
    """Value (U,) and draws (B, U) of a metric."""
    p, label = np.asarray(data.probability, dtype=np.float64), np.asarray(data.label)
    if p.ndim != 3 or p.shape[1:2] != label.shape:
        raise DataError(f"found probabilities {p.shape} and labels {label.shape}, expected (units, n, C) and (n,)")

    def of_all(counts: Counts) -> Floats:
        return np.stack([_one_metric(metric, label, unit, counts) for unit in p], axis=1)

    sample = resamples(len(label), rng=rng, B=B, subject=data.subject)
    return of_all(resampling.whole(len(label)))[0], sample.apply(of_all)


def _one_metric(metric: str, label: NDArray[Any], p: Floats, counts: Counts) -> Floats:
    if metric == "auc":
        return groups.auc_draws(label, p, counts)
    if metric == "accuracy":
        return groups.accuracy_draws(label, p.argmax(axis=1), counts)
    if metric == "ece":
        return calibration.ece_draws(p, label, counts)
    return calibration.brier_draws(p, label, counts)


# ---- regression ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regression:
    """y = intercept + slope x over units, by ordinary least squares, and what its residuals look like.

    Attributes
    ----------
    slope, intercept : with t intervals; `slope_robust` has the interval that allows for unequal variance (HC3), or for clusters
    p : two-sided, of the slope being 0; `p_robust` from the robust interval's standard error
    normal_p : Shapiro-Wilk test of the residuals; `jarque_bera_p` from their skewness and kurtosis
    equal_variance_p : Breusch-Pagan test, in Koenker's form
    cook : (n,) distance of each unit that has both values, `leverage` (n,) likewise; `kept` (K,) says which those are
    influential : (K,) units whose Cook's distance exceeds 4 / n
    reason : why everything is NaN; `residual_reason`: why the diagnostics are
    """

    slope: Interval
    intercept: Interval
    slope_robust: Interval
    p: float
    p_robust: float
    r2: float
    n: int
    left_out: int
    normal_p: float
    jarque_bera_p: float
    equal_variance_p: float
    cook: Floats
    leverage: Floats
    kept: NDArray[np.bool_]
    influential: NDArray[np.bool_]
    reason: str = ""
    residual_reason: str = ""

    @property
    def cook_max(self) -> float:
        if np.isfinite(self.cook).any():
            return float(np.nanmax(self.cook))
        return math.nan

    @property
    def leverage_max(self) -> float:
        if self.leverage.size:
            return float(self.leverage.max())
        return math.nan


def regression(x: ArrayLike, y: ArrayLike, *, cluster: ArrayLike | None = None, level: float = 0.95) -> Regression:
    """Line through the units' values x and y (K,), with residual diagnostics.

    Parameters
    ----------
    cluster : (K,) or columns: `slope_robust` then allows for residuals that are alike within clusters (CR1, t with G - 1 degrees)
    """
    a, b = _columns(x, y)
    kept = np.isfinite(a) & np.isfinite(b)
    clusters = None
    if cluster is not None:
        clusters = _codes(cluster, len(a))[kept]
    a, b = a[kept], b[kept]
    n = len(a)
    if n < FEWEST_UNITS:
        return _no_line(kept, f"{n} units, at least {FEWEST_UNITS} needed", level)
    if _is_constant(a) or _is_constant(b):
        return _no_line(kept, f"all {'x' if _is_constant(a) else 'y'} are equal", level)
    return _line(a, b, clusters, kept, level)


def _line(a: Floats, b: Floats, cluster: Codes | None, kept: NDArray[np.bool_], level: float) -> Regression:
    import statsmodels.api as sm  # a second to import, and most commands never fit a line

    n = len(a)
    design = np.column_stack([np.ones(n), a])
    fit = sm.OLS(b, design).fit()
    limits = fit.conf_int(1 - level)
    leverage = np.clip(fit.get_influence().hat_matrix_diag, 0.0, 1.0)
    robust, p_robust = _robust_slope(fit, leverage, cluster, level)
    exact = float(np.sqrt(np.sum(fit.resid**2))) <= 1e-10 * float(np.sqrt(np.sum((b - b.mean()) ** 2)))
    few = n < FEWEST_UNITS + 1
    why = ""
    if exact:
        why = "the line goes through every unit"
    elif few:
        why = f"{n} units, at least {FEWEST_UNITS + 1} needed"
    if why:
        normal, jarque, equal = (math.nan,) * 3
    else:
        normal, jarque, equal = _residual_p(fit.resid, design)
    fixing = leverage >= ALONE  # such a unit has no residual of its own: its distance is 0/0
    cook = np.full(n, np.nan)
    if not exact:
        free = ~fixing
        cook[free] = fit.resid[free] ** 2 / (2 * fit.mse_resid) * leverage[free] / (1 - leverage[free]) ** 2
    influential = np.zeros(len(kept), dtype=bool)
    influential[np.flatnonzero(kept)[cook > 4 / n]] = True
    return Regression(
        slope=Interval(float(fit.params[1]), float(limits[1, 0]), float(limits[1, 1]), level=level),
        intercept=Interval(float(fit.params[0]), float(limits[0, 0]), float(limits[0, 1]), level=level),
        slope_robust=robust,
        p=float(fit.pvalues[1]),
        p_robust=p_robust,
        r2=float(np.clip(fit.rsquared, 0.0, 1.0)),
        n=n,
        left_out=int(np.sum(~kept)),
        normal_p=normal,
        jarque_bera_p=jarque,
        equal_variance_p=equal,
        cook=cook,
        leverage=leverage,
        kept=kept,
        influential=influential,
        residual_reason=why,
    )


def _robust_slope(fit: Any, leverage: Floats, cluster: Codes | None, level: float) -> tuple[Interval, float]:
    slope = float(fit.params[1])
    if cluster is None:
        if leverage.max() >= ALONE:
            return Interval(slope, math.nan, math.nan, reason="one unit alone fixes the line (leverage 1)", level=level), math.nan
        other = fit.get_robustcov_results("HC3", use_t=True)
    else:
        number = len(np.unique(cluster))
        if number < FEWEST_CLUSTERS:
            reason = f"no interval: {number} clusters, at least {FEWEST_CLUSTERS} needed"
            return Interval(slope, math.nan, math.nan, reason=reason, level=level), math.nan
        other = fit.get_robustcov_results("cluster", groups=cluster, use_t=True)
    low, high = other.conf_int(1 - level)[1]
    return Interval(slope, float(low), float(high), level=level), float(other.pvalues[1])


def _residual_p(residual: Floats, design: Floats) -> tuple[float, float, float]:
    from statsmodels.stats.diagnostic import het_breuschpagan

    normal = float(stats.shapiro(residual).pvalue) if len(residual) <= 5000 else math.nan  # beyond it its p is not exact
    return normal, float(stats.jarque_bera(residual).pvalue), float(het_breuschpagan(residual, design)[1])


def _no_line(kept: NDArray[np.bool_], reason: str, level: float) -> Regression:
    nothing = Interval(math.nan, math.nan, math.nan, reason=reason, level=level)
    empty = np.full(int(kept.sum()), np.nan)
    return Regression(
        slope=nothing,
        intercept=nothing,
        slope_robust=nothing,
        p=math.nan,
        p_robust=math.nan,
        r2=math.nan,
        n=int(kept.sum()),
        left_out=int(np.sum(~kept)),
        normal_p=math.nan,
        jarque_bera_p=math.nan,
        equal_variance_p=math.nan,
        cook=empty,
        leverage=empty,
        kept=kept,
        influential=np.zeros(len(kept), dtype=bool),
        reason=reason,
        residual_reason=reason,
    )


# ---- seeds and pairs -----------------------------------------------------------------------------------------------------


def over_seeds(values: ArrayLike, level: float = 0.95) -> Interval:
    """Mean over seeds with its t interval; seeds without a value leave and are counted in `undefined`."""
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    defined = array[np.isfinite(array)]
    described: dict[str, Any] = {"draws": len(array), "undefined": len(array) - len(defined), "level": level}
    if not len(defined):
        return Interval(math.nan, math.nan, math.nan, reason="no seed has a value", **described)
    mean = float(defined.mean())
    if len(defined) == 1:
        return Interval(mean, math.nan, math.nan, reason="no interval: one seed", **described)
    half = float(stats.t.ppf((1 + level) / 2, len(defined) - 1) * defined.std(ddof=1) / math.sqrt(len(defined)))
    return Interval(mean, mean - half, mean + half, **described)


@dataclass(frozen=True)
class Paired:
    """Differences a - b of pairs, seed by seed.

    Attributes
    ----------
    difference : mean with t interval
    median : of the differences
    positive, negative, zero : numbers of pairs
    sign_p, wilcoxon_p : two-sided and exact; pairs without a difference leave both tests
    least_p : the smallest p that so many pairs can give; above 0.05 neither test could have seen anything
    """

    difference: Interval
    median: float
    positive: int
    negative: int
    zero: int
    left_out: int
    sign_p: float
    wilcoxon_p: float
    least_p: float
    reason: str = ""


def paired(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Paired:
    """Compare two values of the same seeds, a and b (S,), with the sign test and the signed-rank test."""
    first, second = _columns(a, b)
    both = np.isfinite(first) & np.isfinite(second)
    d = first[both] - second[both]
    # Rounding of equal numbers is no difference.
    d = np.where(np.abs(d) <= ROUNDING * np.maximum(np.abs(first[both]), np.abs(second[both])), 0.0, d)
    more, less = int(np.sum(d > 0)), int(np.sum(d < 0))
    n = more + less
    reason = ""
    median = sign_p = wilcoxon_p = least_p = math.nan
    if not len(d):
        reason = "no pair has both values"
    else:
        median = float(np.median(d))
    if n:
        sign_p, wilcoxon_p = float(stats.binomtest(more, n).pvalue), signed_rank_p(d)
        least_p = min(1.0, 2.0 ** (1 - n))
    elif len(d):
        reason = "all pairs are equal"
    return Paired(
        difference=over_seeds(d, level),
        median=median,
        positive=more,
        negative=less,
        zero=int(np.sum(d == 0)),
        left_out=int(np.sum(~both)),
        sign_p=sign_p,
        wilcoxon_p=wilcoxon_p,
        least_p=least_p,
        reason=reason,
    )


def signed_rank_p(difference: ArrayLike) -> float:
    """Two-sided p of Wilcoxon's signed-rank test, zeros left out, over all assignments of signs, ties included."""
    d = np.asarray(difference, dtype=np.float64)
    d = d[d != 0]
    if not len(d):
        return math.nan
    size = np.abs(d)
    # Average ranks are halves, so twice a rank is an integer; differences that only rounding sets apart tie.
    twice = np.rint(2 * stats.rankdata(np.round(size / size.max(), TIE_DIGITS))).astype(np.int64)
    if len(d) > MOST_EXACT:
        z = abs(float(np.sum(np.sign(d) * twice))) / math.sqrt(float(np.sum(twice.astype(np.float64) ** 2)))
        return float(2 * stats.norm.sf(z))
    law = np.ones(1)
    for rank in twice:  # the law of the sum of positive ranks, rank by rank
        longer = np.zeros(len(law) + rank)
        longer[: len(law)] += law / 2
        longer[rank:] += law / 2
        law = longer
    positive = int(twice[d > 0].sum())
    return float(min(1.0, 2 * min(law[: positive + 1].sum(), law[positive:].sum())))


@dataclass(frozen=True)
class SeedStability:
    """A correlation over the units of fewer seeds (sec. IV-J), by number of seeds.

    Attributes
    ----------
    whole : with all seeds; NaN with `reason`
    seeds : (m,) how many were kept
    subsets : (m,) how many such subsets were tried, `undefined` (m,) of them without a value
    mean, low, high : (m,) over subsets; `low` and `high` are the least and the greatest
    same_sign : (m,) share of the subsets that have a value whose sign is that of `whole`
    """

    method: str
    whole: float
    seeds: NDArray[np.int64]
    subsets: NDArray[np.int64]
    undefined: NDArray[np.int64]
    mean: Floats
    low: Floats
    high: Floats
    same_sign: Floats
    reason: str = ""


def seed_stability(
    x: ArrayLike,
    y: ArrayLike,
    seed: Sequence[Any] | NDArray[Any],
    *,
    rng: np.random.Generator,
    method: str = "spearman",
    within: ArrayLike | None = None,
) -> SeedStability:
    """Correlation of x and y (K,) over the units of every subset of seeds, or of `MOST_SUBSETS` of each size; seed (K,)."""
    if method not in METHODS:
        raise SettingError(f"no correlation named {method!r}; known: {', '.join(METHODS)}")
    a, b = _columns(x, y)
    kept = np.isfinite(a) & np.isfinite(b)
    code = _codes(seed, len(a))[kept]
    inside = None
    if within is not None:
        inside = _codes(within, len(a))[kept]
    a, b = a[kept], b[kept]
    S = len(np.unique(code))
    code = np.unique(code, return_inverse=True)[1].reshape(-1)
    sizes = np.arange(1, max(S, 1))
    if len(a) >= FEWEST_UNITS:
        whole = float(correlation_draws(a, b, resampling.whole(len(a)), method, inside)[0])
    else:
        whole = math.nan
    by_size = []
    for size in sizes:
        by_size.append(_over_subsets(a, b, _subsets(S, int(size), rng)[:, code], method, inside))
    reason = ""
    if math.isnan(whole):
        reason = f"{len(a)} units, at least {FEWEST_UNITS} needed, none of them constant"
    summary = np.array([_summary(values[~np.isnan(values)], whole) for values in by_size]).reshape(-1, 4)
    return SeedStability(
        method=method,
        whole=whole,
        seeds=sizes,
        subsets=np.array([len(values) for values in by_size], dtype=np.int64),
        undefined=np.array([np.isnan(values).sum() for values in by_size], dtype=np.int64),
        mean=summary[:, 0],
        low=summary[:, 1],
        high=summary[:, 2],
        same_sign=summary[:, 3],
        reason=reason,
    )


def _subsets(S: int, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Which seeds are in each subset, (m, S)."""
    if math.comb(S, size) <= MOST_SUBSETS:
        chosen = np.array(list(itertools.combinations(range(S), size)), dtype=np.int64)
    else:
        chosen = np.argsort(rng.random((MOST_SUBSETS, S)), axis=1)[:, :size]
    member = np.zeros((len(chosen), S), dtype=np.uint8)
    np.put_along_axis(member, chosen, 1, axis=1)
    return member


def _summary(correlations: Floats, whole: float) -> tuple[float, float, float, float]:
    """Mean, smallest and largest of defined correlations, and the share with the sign of the one of all seeds."""
    if not len(correlations):
        return (math.nan,) * 4
    same_sign = math.nan
    if not math.isnan(whole):
        same_sign = float(np.mean(np.sign(correlations) == np.sign(whole)))
    return float(correlations.mean()), float(correlations.min()), float(correlations.max()), same_sign


def _over_subsets(a: Floats, b: Floats, counts: NDArray[np.uint8], method: str, within: Codes | None) -> Floats:
    values = np.full(len(counts), np.nan)
    enough = counts.sum(axis=1, dtype=np.int64) >= FEWEST_UNITS
    if enough.any():
        values[enough] = correlation_draws(a, b, counts[enough], method, within)
    return values


# ---- what the others use -------------------------------------------------------------------------------------------------


def _columns(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise DataError(f"found shapes {a.shape} and {b.shape}, expected one value per unit in both, (K,) and (K,)")
    return a, b


def _codes(columns: Any, n: int) -> Codes:
    """Numbers 0..G-1 of one column (n,), or of the combinations of several."""
    table = np.asarray(columns)
    if table.ndim == 1 and table.dtype == object and len(table) and isinstance(table[0], list | tuple | np.ndarray):
        table = np.array([np.asarray(column) for column in columns])
    if table.ndim == 1:
        rows = table[None, :]
    else:
        rows = table
    if rows.ndim != 2 or rows.shape[1] != n:
        raise DataError(f"found groups of shape {table.shape} for {n} units; give one column (K,), or several of that length")
    names = np.array(["\x1f".join(map(str, column)) for column in rows.T])
    return np.unique(names, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _scaled(values: Floats) -> Floats:
    """Shifted and scaled into [-1, 1], so that sums of squares keep their digits; a correlation does not notice."""
    if not len(values):
        return values
    low, high = float(values.min()), float(values.max())
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    if half <= ROUNDING * max(abs(low), abs(high)):
        return np.zeros_like(values)
    if half < np.finfo(np.float64).max / 4:
        return (values - middle) / half
    return (values / 4 - middle / 4) / (half / 4)


def _is_constant(values: Floats) -> bool:
    return not _scaled(values).any()
