"""Logistic fits with Firth's penalty: finite where the two outcomes are separated and the plain fit runs off to infinity.

Firth (1993) maximises the likelihood times Jeffreys' prior. With one yes-or-no regressor that is 1/2 added to every cell of the
table; with a number it is found by Newton's steps, for many samples at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

Floats = NDArray[np.float64]

STEPS = 100
LONGEST = 1.0  # step, in log odds of a standard deviation: longer ones can run past the maximum
CLOSE = 1e-8


@dataclass(frozen=True)
class Fit:
    """Slope with its standard error."""

    slope: float
    error: float


def firth_fit(x: ArrayLike, y: ArrayLike) -> Fit:
    """Of one outcome y (n,) of 0 and 1 on one number x (n,)."""
    values, hits = np.asarray(x, dtype=np.float64)[None], np.asarray(y, dtype=np.float64)[None]
    slope, error = _newton(values, np.ones_like(values), hits)
    return Fit(float(slope[0]), float(error[0]))


def firth_slopes(x: ArrayLike, number: ArrayLike, hits: ArrayLike) -> Floats:
    """Slopes (B,) of B samples: at values x (K,) or (B, K) there are `number` (B, K) rows, `hits` (B, K) of them positive.

    NaN where a sample has one outcome or one value only: nothing varies there, and the penalty alone would speak.
    """
    rows, positive = (np.asarray(v, dtype=np.float64) for v in (number, hits))
    values = np.broadcast_to(np.asarray(x, dtype=np.float64), rows.shape)
    slopes = np.full(len(rows), np.nan)
    there = rows > 0
    low = np.where(there, values, np.inf).min(axis=1)
    high = np.where(there, values, -np.inf).max(axis=1)
    total, yes = rows.sum(axis=1), positive.sum(axis=1)
    able = (low < high) & (yes > 0) & (yes < total)
    if able.any():
        slopes[able] = _newton(values[able], rows[able], positive[able])[0]
    return slopes


def _newton(x: Floats, number: Floats, hits: Floats) -> tuple[Floats, Floats]:
    """Slopes and their standard errors, (B,) both, from (B, K) arrays."""
    total = number.sum(axis=1, keepdims=True)
    centre = (number * x).sum(axis=1, keepdims=True) / total
    scale = np.sqrt((number * (x - centre) ** 2).sum(axis=1, keepdims=True) / total)
    z = (x - centre) / scale
    share = (hits.sum(axis=1) + 0.5) / (total[:, 0] + 1)
    a, b = np.log(share / (1 - share)), np.zeros(len(x))
    for _ in range(STEPS):
        p = expit(a[:, None] + b[:, None] * z)
        w = p * (1 - p)
        s0, s1, s2 = ((number * w * z**power).sum(axis=1) for power in range(3))
        det = s0 * s2 - s1 * s1
        # The leverage of one row at each value: w (1, z) I^-1 (1, z)'.
        leverage = w * (s2[:, None] - 2 * s1[:, None] * z + s0[:, None] * z * z) / det[:, None]
        residual = hits - number * p + number * leverage * (0.5 - p)
        g0, g1 = residual.sum(axis=1), (residual * z).sum(axis=1)
        da, db = (s2 * g0 - s1 * g1) / det, (s0 * g1 - s1 * g0) / det
        longest = np.maximum(np.abs(da), np.abs(db))
        shrink = np.minimum(1.0, LONGEST / np.maximum(longest, 1e-300))
        a, b = a + shrink * da, b + shrink * db
        if longest.max() < CLOSE:
            break
    return b / scale[:, 0], np.sqrt(s0 / det) / scale[:, 0]
