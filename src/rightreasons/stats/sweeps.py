"""Does unfairness follow the encoding over a family of models? Rank correlations, permutation tests, and the models to choose.

All arrays have the M models of a sweep first. Encoding is oriented so that more is more (AUC, or minus an error), unfairness so
that less is fairer: a positive correlation is a shortcut's (ShorT, Methods "ShorT: testing for shortcut learning").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
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
    a, b = (_ranks(np.atleast_2d(v)) - (np.shape(v)[-1] + 1) / 2 for v in (x, y))
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
    e, d, drawn = (np.asarray(v, dtype=np.float64) for v in (encoding, disparity, null))
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


def over_floors(encoding: ArrayLike, disparity: ArrayLike, performance: ArrayLike, floors: ArrayLike) -> tuple[Floats, Floats]:
    """Rho of the models whose performance reaches each floor, and how many these are, (F,) both."""
    e, d, auc = (np.asarray(v, dtype=np.float64) for v in (encoding, disparity, performance))
    kept = [auc >= floor for floor in np.asarray(floors, dtype=np.float64)]
    rho = [float(spearman(e[k], d[k])) if k.sum() >= FEWEST else math.nan for k in kept]
    return np.array(rho), np.array([float(k.sum()) for k in kept])


@dataclass(frozen=True)
class Difference:
    """Correlation in one family less that of another.

    Attributes
    ----------
    p : by exchanging models between them, as if models of one family were independent
    low, high : 95 % interval over models and examples, where their draws are known; it is the stricter of the two
    """

    value: float
    p: float
    rhos: tuple[float, float]
    n: tuple[int, int]
    low: float = math.nan
    high: float = math.nan


def difference(
    first: tuple[ArrayLike, ArrayLike],
    second: tuple[ArrayLike, ArrayLike],
    *,
    rng: np.random.Generator,
    P: int = 9_999,
    ranked: bool = True,
) -> Difference:
    """Do two families differ in rho? (Supp. Methods, "Significance testing when comparing ShorT across datasets".)

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
    rhos = tuple(float(spearman(*p)) for p in pairs)
    value = rhos[0] - rhos[1]
    if math.isnan(value):
        return Difference(math.nan, math.nan, (rhos[0], rhos[1]), (sizes[0], sizes[1]))
    if ranked:
        pairs = [rankdata(p, axis=1) / p.shape[1] for p in pairs]
    pooled = np.concatenate(pairs, axis=1)
    order = rng.permuted(np.broadcast_to(np.arange(pooled.shape[1]), (P, pooled.shape[1])), axis=1)
    drawn = []
    for part in (order[:, : sizes[0]], order[:, sizes[0] :]):
        drawn.append(rank_correlation(pooled[0][part], pooled[1][part]))
    return Difference(value, p_value(value, drawn[0] - drawn[1]), (rhos[0], rhos[1]), (sizes[0], sizes[1]))


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
