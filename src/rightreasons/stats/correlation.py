"""Pairwise, partial and semipartial correlation of profiles (OSCAR, sec. III), and of two columns of codes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightreasons.errors import DataError

Floats = NDArray[np.float64]

# What is left of a vector after centring or projection counts as nothing below this share of it: rounding, no signal.
ROUNDING = 1e-12


def pearson(a: ArrayLike, b: ArrayLike) -> Floats:
    """Pearson correlation over the last axis, (..., R) and (..., R) to (...); NaN where either is constant."""
    a, b = _pair(a, b)
    a, b = _centred(a), _centred(b)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Scaled one by one: the product of two norms can over- or underflow where neither does.
        r = np.sum(a / _norm(a) * (b / _norm(b)), axis=-1)
    return np.clip(r, -1.0, 1.0)[()]


def residual(a: ArrayLike, given: ArrayLike) -> Floats:
    """What ordinary least squares with an intercept leaves of `a` after `given`, both (..., R).

    A residual that is rounding only is returned as exact zeros; a constant `given` explains nothing and gives NaN.
    """
    a, given = _pair(a, given)
    a, given = _centred(a), _centred(given)
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = given / _norm(given)
    left = a - np.sum(a * unit, axis=-1, keepdims=True) * unit
    return np.where(_norm(left) <= ROUNDING * _norm(a), 0.0 * left, left)


def partial(a: ArrayLike, b: ArrayLike, given: ArrayLike) -> Floats:
    """Correlation of `a` and `b` with `given` taken out of both."""
    return pearson(residual(a, given), residual(b, given))


def deviation(a: ArrayLike, b: ArrayLike, given: ArrayLike) -> Floats:
    """Semipartial correlation: `given` is taken out of `a` only."""
    return pearson(residual(a, given), b)


def _pair(a: ArrayLike, b: ArrayLike) -> tuple[Floats, Floats]:
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[-1]:
        raise DataError(
            f"found shapes {a.shape} and {b.shape}, expected one length on the last axis: give both over the same regions"
        )
    return a, b


def _centred(a: Floats) -> Floats:
    centred = a - a.mean(axis=-1, keepdims=True)
    return np.where(_norm(centred) <= ROUNDING * _norm(a), 0.0 * centred, centred)


def _norm(a: Floats) -> Floats:
    scale = np.max(np.abs(a), axis=-1, keepdims=True, initial=0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        norm = scale * np.sqrt(np.sum((a / scale) ** 2, axis=-1, keepdims=True))
    return np.where(scale == 0, 0.0, norm)


def cramers_v(one: np.ndarray, other: np.ndarray) -> float:
    """Bias-corrected Cramér's V (Bergsma 2013) of two columns of codes: 0 is no association, 1 a full one."""
    rows, columns = (np.unique(column, return_inverse=True)[1] for column in (one, other))
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)
    n, (r, k) = table.sum(), table.shape
    expected = table.sum(axis=1, keepdims=True) @ table.sum(axis=0, keepdims=True) / n
    phi = max(0.0, float(((table - expected) ** 2 / expected).sum() / n) - (r - 1) * (k - 1) / (n - 1))
    least = min(r - (r - 1) ** 2 / (n - 1), k - (k - 1) ** 2 / (n - 1)) - 1
    return min(1.0, math.sqrt(phi / least)) if least > 0 else math.nan


def cramers_v_within(label: np.ndarray, one: np.ndarray, other: np.ndarray) -> float:
    """Cramér's V of two columns of codes within the labels: the root of the mean square over labels, weighted by their rows.

    A label in which a column has one value says nothing; NaN where every label is such.
    """
    squares, sizes = [], []
    for c in np.unique(label):
        rows = label == c
        if min(len(np.unique(one[rows])), len(np.unique(other[rows]))) < 2:
            continue
        squares.append(cramers_v(one[rows], other[rows]) ** 2)
        sizes.append(rows.sum())
    if not sizes:
        return math.nan
    return math.sqrt(np.average(squares, weights=sizes))
