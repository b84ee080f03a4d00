"""Does a recorded value say what the features show, or does it only go with something that they show?

Rows that plainly show one value are recorded as it, nearly all, where the attribute itself is what shows. Where the attribute
only goes with what shows, or is recorded wrongly, a share of them is recorded as the other value, however plainly they show the
first. So the curve of the recorded value over the score of a linear readout ends short of 0 and of 1. It is the logistic curve
with four parameters: a guess and a slip beside place and slope.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit

from rightreasons.stats import resampling
from rightreasons.stats.resampling import Counts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS = 64  # of the score, within each label: the curve is fitted to their shares
STARTS = (1.0, 4.0)  # slopes over a score of spread 1
STEEPEST = 100.0
FARTHEST = 50.0
MOST = 0.5  # asymptote: beyond it the two values would exchange their names
CLIPPED = 1e-9


@dataclass(frozen=True)
class Curve:
    """P(recorded as 1 | score, label): `low` where the features plainly show 0, 1 - `high` where they plainly show 1.

    Attributes
    ----------
    ratio : twice the log likelihood that the two asymptotes add to a plain logistic curve; chi-square of 2 degrees without them
    """

    places: Floats
    slope: float
    low: float
    high: float
    ratio: float

    def __call__(self, score: ArrayLike, label: ArrayLike) -> Floats:
        shown = expit(self.places[np.asarray(label)] + self.slope * np.asarray(score, dtype=np.float64))
        return self.low + (1 - self.low - self.high) * shown

    @property
    def otherwise(self) -> float:
        """Share of rows that are recorded otherwise than they plainly show, mean of both sides."""
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class Binned:
    """Rows by label and score: (k,) label and mean score of every bin, and the bin of every row (n,)."""

    label: Ints
    score: Floats
    bin: Ints


def binned(score: ArrayLike, label: ArrayLike) -> Binned:
    """Bins of about equally many rows within every label."""
    s, y = np.asarray(score, dtype=np.float64), np.asarray(label, dtype=np.int64)
    code = np.zeros(len(s), dtype=np.int64)
    labels: list[int] = []
    for c in np.unique(y):
        rows = np.flatnonzero(y == c)
        bins = min(BINS, len(rows))
        rank = np.argsort(np.argsort(s[rows], kind="stable"), kind="stable")
        code[rows] = len(labels) + rank * bins // len(rows)
        labels += [int(c)] * bins
    size = np.bincount(code, minlength=len(labels))
    return Binned(np.array(labels), np.bincount(code, s, minlength=len(labels)) / size, code)


def curve(score: ArrayLike, value: ArrayLike, label: ArrayLike) -> Curve:
    """The curve of these rows by maximum likelihood.

    Parameters
    ----------
    score : (n,) of a readout of the value that was fitted on other rows
    value : (n,) 0 or 1, as recorded
    label : (n,) codes; every label has a place of its own, because values are more frequent with some labels
    """
    bins = binned(score, label)
    K, given = len(bins.score), np.asarray(value, dtype=np.float64)
    ones = np.bincount(bins.bin, given, minlength=K).astype(np.float64)
    zeros = np.bincount(bins.bin, 1 - given, minlength=K).astype(np.float64)
    starts = [_first(bins, slope) for slope in STARTS]
    full = min((_fit(bins, ones, zeros, start, True) for start in starts), key=lambda fit: fit.loss)
    plain = min((_fit(bins, ones, zeros, start, False) for start in starts), key=lambda fit: fit.loss)
    return full.curve(2 * (plain.loss - full.loss))


def asymptote_draws(score: ArrayLike, value: ArrayLike, label: ArrayLike, counts: Counts, of_all: Curve) -> Floats:
    """`low` and `high` of each resample, counts (B, n) to (B, 2), each fitted from the curve of all rows."""
    bins = binned(score, label)
    K = len(bins.score)
    ones = resampling.tally(counts, bins.bin, K, np.asarray(value, dtype=np.float64))
    rows = resampling.tally(counts, bins.bin, K)
    start = _as_parameters(of_all)
    fits = [_fit(bins, one, every - one, start, True) for one, every in zip(ones, rows, strict=True)]
    return np.array([(fit.low, fit.high) for fit in fits])


# ---- what the functions above use ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fit:
    places: Floats
    slope: float
    low: float
    high: float
    loss: float

    def curve(self, ratio: float) -> Curve:
        return Curve(self.places, self.slope, self.low, self.high, max(ratio, 0.0))


def _first(bins: Binned, slope: float) -> Floats:
    labels = int(bins.label.max()) + 1
    return np.concatenate([np.zeros(labels), [slope, 0.1, 0.1]])


def _as_parameters(of_all: Curve) -> Floats:
    return np.concatenate([of_all.places, [of_all.slope, of_all.low, of_all.high]])


def _fit(bins: Binned, ones: Floats, zeros: Floats, start: Floats, with_asymptotes: bool) -> _Fit:
    labels = len(start) - 3
    end = MOST - CLIPPED if with_asymptotes else 0.0
    bounds = [(-FARTHEST, FARTHEST)] * labels + [(0.0, STEEPEST), (0.0, end), (0.0, end)]
    best = minimize(_loss(bins, ones, zeros), start, jac=True, method="L-BFGS-B", bounds=bounds)
    slope, low, high = best.x[labels:]
    return _Fit(best.x[:labels], float(slope), float(low), float(high), float(best.fun))


def _loss(bins: Binned, ones: Floats, zeros: Floats) -> Callable[[Floats], tuple[float, Floats]]:
    """Negative log likelihood of places, slope and both asymptotes, with its gradient."""

    def loss(at: Floats) -> tuple[float, Floats]:
        labels = len(at) - 3
        slope, low, high = at[labels:]
        shown = expit(at[:labels][bins.label] + slope * bins.score)
        p = np.clip(low + (1 - low - high) * shown, CLIPPED, 1 - CLIPPED)
        by_p = ones / p - zeros / (1 - p)
        by_logit = by_p * (1 - low - high) * shown * (1 - shown)
        by_place = np.bincount(bins.label, by_logit, minlength=labels)
        rest = [(by_logit * bins.score).sum(), (by_p * (1 - shown)).sum(), -(by_p * shown).sum()]
        return -float(ones @ np.log(p) + zeros @ np.log(1 - p)), -np.concatenate([by_place, rest])

    return loss
