"""Does unfairness follow the encoding over a family of models? Rank correlations, permutation tests, and the models to choose.

All arrays have the M models of a sweep first. Encoding is oriented so that more is more (AUC, or minus an error), unfairness so
that less is fairer: a positive correlation is a shortcut's (ShorT, Methods "ShorT: testing for shortcut learning").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import rankdata
from scipy.stats import t as student

from rightreasons.errors import DataError, SettingError
from rightreasons.stats.correlation import partial
from rightreasons.stats.resampling import p_value

Floats = NDArray[np.float64]

FEWEST = 3  # models of a correlation


def spearman(x: ArrayLike, y: ArrayLike) -> Floats:
    """Spearman's rho over models, x (M,) and y (M,) or (M, P) to () or (P,); a model without a value leaves its column."""
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.ndim != 1 or b.ndim not in (1, 2) or len(a) != len(b):
        raise DataError(f"found shapes {a.shape} and {b.shape}; expected (M,) and (M,) or (M, P)")
    columns = b.reshape(len(b), -1).T
    known = ~np.isnan(columns) & ~np.isnan(a)
    rho = np.full(len(columns), np.nan)
    # Columns that lack the same models are ranked together; bits packed into bytes are much faster to compare.
    patterns, which = np.unique(np.packbits(known, axis=1), axis=0, return_inverse=True)
    for k in range(len(patterns)):
        own = np.flatnonzero(which.reshape(-1) == k)
        rows = np.flatnonzero(known[own[0]])
        if len(rows) >= FEWEST:
            rho[own] = rank_correlation(a[rows], columns[np.ix_(own, rows)])
    if b.ndim == 1:
        return rho[0]
    return rho


def rank_correlation(x: Floats, y: Floats) -> Floats:
    """Spearman's rho over the last axis, x (M,) or (P, M) and y (P, M), nothing missing; NaN where either is constant."""
    a = _ranks(np.atleast_2d(x)) - (np.shape(x)[-1] + 1) / 2
    b = _ranks(np.atleast_2d(y)) - (np.shape(y)[-1] + 1) / 2
    product, norm = np.sum(a * b, axis=1), np.sqrt(np.sum(a * a, axis=1) * np.sum(b * b, axis=1))
    return np.divide(product, norm, out=np.full(len(product), np.nan), where=norm > 0)


def _ranks(values: Floats) -> Floats:
    """Ranks (P, M) along the last axis, ties sharing their mean; scipy does it too, and slower."""
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    place = np.arange(values.shape[1])
    is_new = ordered[:, 1:] != ordered[:, :-1]
    edge = np.ones((len(values), 1), dtype=bool)
    first = np.maximum.accumulate(np.where(np.hstack([edge, is_new]), place, 0), axis=1)
    last = np.minimum.accumulate(np.where(np.hstack([is_new, edge]), place, len(place))[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=1)
    return ranks


def partial_spearman(x: ArrayLike, y: ArrayLike, given: ArrayLike) -> float:
    """Rank correlation of x and y with `given` taken out of both, all (M,)."""
    columns = np.stack([np.asarray(v, dtype=np.float64) for v in (x, y, given)])
    columns = columns[:, ~np.isnan(columns).any(axis=0)]
    if columns.shape[1] > FEWEST:
        return float(partial(*rankdata(columns, axis=1)))
    return math.nan


def spearman_p(rho: float, n: int) -> float:
    """The usual two-sided p of Spearman's rho over n models taken as independent, which models of one sweep are not."""
    if math.isnan(rho) or n < FEWEST:
        return math.nan
    if abs(rho) >= 1:
        return 0.0
    return float(2 * student.sf(abs(rho) * math.sqrt((n - 2) / (1 - rho * rho)), n - 2))


@dataclass(frozen=True)
class Test:
    """A correlation over models.

    Attributes
    ----------
    p : two-sided, from exchanging the attribute among test rows of one label; the encoding is held
    usual_p : Spearman's own, of models taken as independent (the paper's)
    null : (P,) correlations under exchange
    """

    __test__ = False

    rho: float
    p: float
    usual_p: float
    n: int
    null: Floats
    reason: str = ""


def permutation_test(encoding: ArrayLike, disparity: ArrayLike, null: ArrayLike) -> Test:
    """Encoding (M,), disparity (M,), and disparity under P exchanges that all models share, (M, P)."""
    e = np.asarray(encoding, dtype=np.float64)
    d = np.asarray(disparity, dtype=np.float64)
    drawn = np.asarray(null, dtype=np.float64)
    if drawn.ndim != 2 or not len(e) == len(d) == len(drawn):
        raise DataError(f"found shapes {e.shape}, {d.shape} and {drawn.shape}; expected (M,), (M,) and (M, P)")
    kept = ~np.isnan(d) & ~np.isnan(e)
    n = int(kept.sum())
    rho = float(spearman(e, d))
    if math.isnan(rho):
        if n < FEWEST:
            reason = f"{n} models have a value"
        else:
            reason = "encoding or unfairness is the same for all models"
        return Test(math.nan, math.nan, math.nan, n, np.full(drawn.shape[1], np.nan), reason)
    rhos = spearman(e[kept], drawn[kept])
    return Test(rho, p_value(rho, rhos) if drawn.shape[1] else math.nan, spearman_p(rho, n), n, rhos)


def smallest_visible(null: ArrayLike, alpha: float = 0.05, power: float = 0.8) -> float:
    """The smallest |rho| that a test with this null (P,) calls with this power; NaN without a null, 1 at most."""
    draws = np.asarray(null, dtype=np.float64)
    known = draws[~np.isnan(draws)]
    if not len(known):
        return math.nan
    needed = float(np.quantile(np.abs(known), 1 - alpha)) + float(ndtri(power)) * float(known.std())
    return min(1.0, needed)


def bootstrap(encoding: ArrayLike, disparity: ArrayLike, *, rng: np.random.Generator) -> Floats:
    """Rho (B,) over models and examples: draws (M, B) over the rows' resamples, models drawn anew for each of them."""
    e, d = np.asarray(encoding, dtype=np.float64), np.asarray(disparity, dtype=np.float64)
    if e.shape != d.shape or e.ndim != 2:
        raise DataError(f"found draws of shapes {e.shape} and {d.shape}; expected (M, B) twice")
    M, B = e.shape
    draws = np.full(B, np.nan)
    if M < FEWEST:
        return draws
    which = rng.integers(0, M, (M, B))
    x, y = np.take_along_axis(e, which, axis=0), np.take_along_axis(d, which, axis=0)
    whole = ~(np.isnan(x) | np.isnan(y)).any(axis=0)
    draws[whole] = rank_correlation(x[:, whole].T, y[:, whole].T)
    return draws


def over_rows(encoding: ArrayLike, disparity: ArrayLike) -> Floats:
    """Rho (B,) of the same models over resamples of the test rows: draws (M, B) of both."""
    e, d = np.asarray(encoding, dtype=np.float64), np.asarray(disparity, dtype=np.float64)
    if e.shape != d.shape or e.ndim != 2:
        raise DataError(f"found draws of shapes {e.shape} and {d.shape}; expected (M, B) twice")
    draws = np.full(e.shape[1], np.nan)
    whole = ~(np.isnan(e) | np.isnan(d)).any(axis=0)
    if len(e) >= FEWEST:
        draws[whole] = rank_correlation(e[:, whole].T, d[:, whole].T)
    return draws


def over_floors(encoding: ArrayLike, disparity: ArrayLike, performance: ArrayLike, floors: ArrayLike) -> tuple[Floats, Floats]:
    """Rho of the models whose performance reaches each floor, and how many these are, (F,) both."""
    e = np.asarray(encoding, dtype=np.float64)
    d = np.asarray(disparity, dtype=np.float64)
    auc = np.asarray(performance, dtype=np.float64)
    kept = [auc >= floor for floor in np.asarray(floors, dtype=np.float64)]
    rho = [float(spearman(e[k], d[k])) if k.sum() >= FEWEST else math.nan for k in kept]
    return np.array(rho), np.array([float(k.sum()) for k in kept])


@dataclass(frozen=True)
class Family:
    """A family of M models as it is compared with another: those above the floor, on one side.

    Attributes
    ----------
    encoding, disparity : (M,)
    replicate : (M,) names of what a repetition of the family would draw anew: seeds, or resamples of the training rows
    draws : (B,) of its rho over resamples of the test rows, its models held; empty where there are none
    """

    encoding: Floats
    disparity: Floats
    replicate: tuple[str, ...]
    draws: Floats


@dataclass(frozen=True)
class Difference:
    """Correlation in one family less that of another.

    Attributes
    ----------
    p, low, high : two-sided, and 95 % interval: t with the jackknife over replicates and the test rows' bootstrap
    replicates : how many of either family
    reason : why there is no p
    exchange_p : the paper's, by exchanging models between the families as if they were independent
    """

    value: float
    p: float
    low: float
    high: float
    rhos: tuple[float, float]
    n: tuple[int, int]
    replicates: tuple[int, int]
    reason: str = ""
    exchange_p: float = math.nan


def difference(first: Family, second: Family, *, same_rows: bool = True, level: float = 0.95) -> Difference:
    """Do two families differ in rho, beyond what other replicates and other test rows would change?

    Models of one seed share their batches, models of one family their training rows, and all of them the test rows, so exchanging
    models between families (Supp. Methods, "Significance testing"; `exchange_p` here) calls equal families different. What is
    independent are replicates: each is left out in turn, and the spread of what is left is the error of rho. That error is taken
    to be no smaller than independent models would give, which a lucky agreement of two or three replicates could.

    Parameters
    ----------
    same_rows : whether both were measured on the same test rows, whose resamples then are the same too
    """
    families = [_defined(f) for f in (first, second)]
    sizes = (len(families[0].encoding), len(families[1].encoding))
    if min(sizes) < FEWEST:
        raise SettingError(f"found {sizes[0]} and {sizes[1]} models with a value; at least {FEWEST} of each are needed")
    errors = [_over_replicates(f) for f in families]
    rhos = (errors[0].rho, errors[1].rho)
    value, replicates = rhos[0] - rhos[1], (errors[0].number, errors[1].number)
    reason = ""
    if math.isnan(value):
        reason = "encoding or unfairness is the same for all models of a family"
    elif min(replicates) < 2:
        reason = "one replicate of a family: give each at least two seeds, or two resamples of its training rows"
    if reason:
        return Difference(value, math.nan, math.nan, math.nan, rhos, sizes, replicates, reason)
    squared = [e.squared for e in errors]
    rows = _squared_error_of_rows(families[0].draws, families[1].draws, same_rows)
    # Welch and Satterthwaite; the part of the test rows has as good as infinitely many degrees of freedom.
    total = sum(squared) + rows
    spent = sum(s * s / (k - 1) for s, k in zip(squared, replicates, strict=True))
    if total == 0:
        return Difference(value, float(value == 0), value, value, rhos, sizes, replicates)
    df = total * total / spent if spent > 0 else math.inf
    error = math.sqrt(total)
    reach = float(student.ppf((1 + level) / 2, df)) * error
    p = float(2 * student.sf(abs(value) / error, df))
    return Difference(value, p, value - reach, value + reach, rhos, sizes, replicates)


@dataclass(frozen=True)
class _Error:
    """Rho of a family, its squared error over replicates, and how many these are."""

    rho: float
    squared: float
    number: int


def _over_replicates(family: Family) -> _Error:
    e, d, names = family.encoding, family.disparity, np.asarray(family.replicate)
    rho, distinct = float(spearman(e, d)), np.unique(names)
    K = len(distinct)
    if K < 2 or math.isnan(rho):
        return _Error(rho, math.nan, K)
    left = np.array([float(spearman(e[names != name], d[names != name])) for name in distinct])
    left = left[~np.isnan(left)]
    jackknife = (K - 1) * float(((left - left.mean()) ** 2).mean()) if len(left) > 1 else math.inf
    independent = (1 - rho * rho) ** 2 / (len(e) - 1)
    return _Error(rho, max(jackknife, independent), K)


def _squared_error_of_rows(first: Floats, second: Floats, same_rows: bool) -> float:
    """Of the difference over resamples of the test rows."""
    if not len(first) or not len(second):
        return 0.0
    if same_rows and len(first) == len(second):
        return float(np.nanvar(first - second))
    return float(np.nanvar(first) + np.nanvar(second))


def _defined(family: Family) -> Family:
    """The models that have both values."""
    known = ~(np.isnan(family.encoding) | np.isnan(family.disparity))
    names = tuple(np.asarray(family.replicate, dtype=object)[known])
    return Family(family.encoding[known], family.disparity[known], names, family.draws)


def exchange_p(
    first: tuple[ArrayLike, ArrayLike],
    second: tuple[ArrayLike, ArrayLike],
    *,
    rng: np.random.Generator,
    P: int = 9_999,
    ranked: bool = True,
) -> float:
    """The paper's p of a difference in rho: models change families (Supp. Methods, "Significance testing").

    Parameters
    ----------
    first, second : (encoding, disparity) of the models above the floor
    ranked : models enter as ranks within their own family, so that two data sets that differ in level alone do not differ;
        False pools the numbers themselves, as the paper does
    """
    pairs = [_defined_pairs(*family) for family in (first, second)]
    sizes = tuple(p.shape[1] for p in pairs)
    if min(sizes) < FEWEST:
        raise SettingError(f"found {sizes[0]} and {sizes[1]} models with a value; at least {FEWEST} of each are needed")
    value = float(spearman(*pairs[0])) - float(spearman(*pairs[1]))
    if math.isnan(value):
        return math.nan
    if ranked:
        pairs = [rankdata(p, axis=1) / p.shape[1] for p in pairs]
    pooled = np.concatenate(pairs, axis=1)
    order = rng.permuted(np.broadcast_to(np.arange(pooled.shape[1]), (P, pooled.shape[1])), axis=1)
    drawn = []
    for part in (order[:, : sizes[0]], order[:, sizes[0] :]):
        drawn.append(rank_correlation(pooled[0][part], pooled[1][part]))
    return p_value(value, drawn[0] - drawn[1])


def _defined_pairs(encoding: ArrayLike, disparity: ArrayLike) -> Floats:
    """(2, M) encoding and disparity of the models that have both."""
    both = np.stack([np.asarray(encoding, dtype=np.float64), np.asarray(disparity, dtype=np.float64)])
    return both[:, ~np.isnan(both).any(axis=0)]


def pareto_front(performance: ArrayLike, unfairness: ArrayLike) -> NDArray[np.bool_]:
    """(M,) models that no other one beats in performance without being less fair, or the reverse."""
    good, bad = np.asarray(performance, dtype=np.float64), np.asarray(unfairness, dtype=np.float64)
    known = ~(np.isnan(good) | np.isnan(bad))
    at_least = (good[:, None] >= good) & (bad[:, None] <= bad) & known[:, None]
    better = at_least & ((good[:, None] > good) | (bad[:, None] < bad))
    return known & ~better.any(axis=0)
