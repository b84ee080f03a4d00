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
from rightreasons.stats.correlation import partial, pearson
from rightreasons.stats.resampling import Interval, interval, p_value

Floats = NDArray[np.float64]

FEWEST = 3  # models of a correlation


def spearman(x: ArrayLike, y: ArrayLike) -> Floats:
    """Spearman's rho over models, x (M,) and y (M,) or (M, P) to () or (P,); a model without a value leaves its column."""
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.ndim != 1 or b.ndim not in (1, 2) or len(a) != len(b):
        raise DataError(f"found shapes {a.shape} and {b.shape}; expected (M,) and (M,) or (M, P)")
    columns = b.reshape(len(b), -1)
    known = ~np.isnan(columns) & ~np.isnan(a)[:, None]
    found = np.full(columns.shape[1], np.nan)
    for pattern in np.unique(known, axis=1).T:
        rows = np.flatnonzero(pattern)
        which = (known == pattern[:, None]).all(axis=0)
        if len(rows) >= FEWEST:
            found[which] = pearson(rankdata(a[rows])[None], rankdata(columns[np.ix_(rows, which)], axis=0).T)
    return found[0] if b.ndim == 1 else found


def partial_spearman(x: ArrayLike, y: ArrayLike, given: ArrayLike) -> float:
    """Rank correlation of x and y with `given` taken out of both, all (M,)."""
    columns = np.stack([np.asarray(v, dtype=np.float64) for v in (x, y, given)])
    columns = columns[:, ~np.isnan(columns).any(axis=0)]
    return float(partial(*rankdata(columns, axis=1))) if columns.shape[1] > FEWEST else math.nan


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
        reason = f"{n} models have a value" if n < FEWEST else "encoding or unfairness is the same for all models"
        return Test(math.nan, math.nan, math.nan, n, np.full(drawn.shape[1], np.nan), reason)
    rhos = spearman(e[kept], drawn[kept])
    return Test(rho, p_value(rho, rhos) if drawn.shape[1] else math.nan, spearman_p(rho, n), n, rhos)


def bootstrap(
    encoding: ArrayLike, disparity: ArrayLike, *, value: float, rng: np.random.Generator, level: float = 0.95
) -> Interval:
    """Interval of rho over models and examples: draws (M, B) over the rows' resamples, models drawn anew for each of them."""
    e, d = np.asarray(encoding, dtype=np.float64), np.asarray(disparity, dtype=np.float64)
    if e.shape != d.shape or e.ndim != 2:
        raise DataError(f"found draws of shapes {e.shape} and {d.shape}; expected (M, B) twice")
    M, B = e.shape
    if M < FEWEST:
        return Interval(value, math.nan, math.nan, B, B, f"{M} models", level)
    which = rng.integers(0, M, (M, B))
    x, y = np.take_along_axis(e, which, axis=0), np.take_along_axis(d, which, axis=0)
    whole = ~(np.isnan(x) | np.isnan(y)).any(axis=0)
    draws = np.full(B, np.nan)
    if whole.any():
        draws[whole] = pearson(rankdata(x[:, whole], axis=0).T, rankdata(y[:, whole], axis=0).T)
    return interval(value, draws, level, "rho is undefined")


def over_floors(encoding: ArrayLike, disparity: ArrayLike, performance: ArrayLike, floors: ArrayLike) -> tuple[Floats, Floats]:
    """Rho of the models whose performance reaches each floor, and how many these are, (F,) both."""
    e, d, auc = (np.asarray(v, dtype=np.float64) for v in (encoding, disparity, performance))
    kept = [auc >= floor for floor in np.asarray(floors, dtype=np.float64)]
    rho = [float(spearman(e[k], d[k])) if k.sum() >= FEWEST else math.nan for k in kept]
    return np.array(rho), np.array([float(k.sum()) for k in kept])


@dataclass(frozen=True)
class Difference:
    """Correlation in one family less that of another; p by exchanging models between them."""

    value: float
    p: float
    rhos: tuple[float, float]
    n: tuple[int, int]


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
    pairs = [np.stack([np.asarray(v, dtype=np.float64) for v in family]) for family in (first, second)]
    pairs = [p[:, ~np.isnan(p).any(axis=0)] for p in pairs]
    sizes = tuple(p.shape[1] for p in pairs)
    if min(sizes) < FEWEST:
        raise SettingError(f"found {sizes[0]} and {sizes[1]} models with a value; at least {FEWEST} of each are needed")
    rhos = tuple(float(spearman(*p)) for p in pairs)
    value = rhos[0] - rhos[1]
    if math.isnan(value):
        return Difference(math.nan, math.nan, (rhos[0], rhos[1]), (sizes[0], sizes[1]))
    pooled = np.concatenate([rankdata(p, axis=1) / p.shape[1] if ranked else p for p in pairs], axis=1)
    order = rng.permuted(np.broadcast_to(np.arange(pooled.shape[1]), (P, pooled.shape[1])), axis=1)
    drawn = []
    for part in (order[:, : sizes[0]], order[:, sizes[0] :]):
        ranks = [rankdata(pooled[k][part], axis=1) for k in range(2)]
        drawn.append(pearson(ranks[0], ranks[1]))
    return Difference(value, p_value(value, drawn[0] - drawn[1]), (rhos[0], rhos[1]), (sizes[0], sizes[1]))


def pareto_front(performance: ArrayLike, unfairness: ArrayLike) -> NDArray[np.bool_]:
    """(M,) models that no other one beats in performance without being less fair, or the reverse."""
    good, bad = np.asarray(performance, dtype=np.float64), np.asarray(unfairness, dtype=np.float64)
    known = ~(np.isnan(good) | np.isnan(bad))
    at_least = (good[:, None] >= good) & (bad[:, None] <= bad) & known[:, None]
    better = at_least & ((good[:, None] > good) | (bad[:, None] < bad))
    return known & ~better.any(axis=0)
