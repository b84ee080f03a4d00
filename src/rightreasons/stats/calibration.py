"""Probabilities from logits, and whether they mean what they say: ECE, Brier score, reliability curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from rightreasons.errors import DataError
from rightreasons.stats import resampling
from rightreasons.stats.resampling import Counts

Floats = NDArray[np.float64]

BINS = 15


def probabilities(logits: ArrayLike) -> Floats:
    """Softmax over classes, (n, C) to (n, C); a single logit z, (n,) or (n, 1), is read as (0, z)."""
    logits = np.asarray(logits, dtype=np.float64)
    if logits.ndim == 1:
        logits = logits[:, None]
    if logits.ndim != 2:
        raise DataError(f"found logits of shape {logits.shape}, expected (n, C)")
    if logits.shape[1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
    return softmax(logits, axis=1)


def ece(probability: ArrayLike, label: ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error of the predicted class's probability over equal-width bins, the last one closed.

    Parameters
    ----------
    probability : (n, C)
    label : (n,) codes 0..C-1
    """
    p, y = _checked(probability, label)
    if len(y):
        return float(ece_draws(p, y, resampling.whole(len(y)), bins)[0])
    return float("nan")


def ece_draws(probability: ArrayLike, label: ArrayLike, counts: Counts, bins: int = BINS) -> Floats:
    """`ece` of each resample, counts (B, n) to (B,)."""
    which, gap = gap_rows(probability, label, bins)
    gaps = resampling.tally(counts, which, bins, gap)
    return _over(np.abs(gaps).sum(axis=1), np.sum(counts, axis=1))


def gap_rows(probability: ArrayLike, label: ArrayLike, bins: int = BINS) -> tuple[NDArray[np.int64], Floats]:
    """Each row's bin and its difference of being right and confidence, (n,).

    A bin's share times |accuracy - confidence| is the absolute sum of its rows' differences.
    """
    p, y = _checked(probability, label)
    confidence = p.max(axis=1)
    return _bin(confidence, bins), (p.argmax(axis=1) == y) - confidence


def brier(probability: ArrayLike, label: ArrayLike) -> float:
    """Mean over rows of the squared distance to the one-hot label, summed over classes (0 to 2)."""
    p, y = _checked(probability, label)
    if len(y):
        return float(brier_rows(p, y).mean())
    return float("nan")


def brier_draws(probability: ArrayLike, label: ArrayLike, counts: Counts) -> Floats:
    """`brier` of each resample, counts (B, n) to (B,)."""
    return _over(resampling.sums(counts, brier_rows(probability, label)), np.sum(counts, axis=1))


def brier_rows(probability: ArrayLike, label: ArrayLike) -> Floats:
    """Each row's share of the Brier score, (n,)."""
    p, y = _checked(probability, label)
    return np.sum((p - np.eye(p.shape[1])[y]) ** 2, axis=1)


@dataclass(frozen=True)
class Reliability:
    """Mean confidence and accuracy of each bin, (bins,), NaN in empty ones; `edges` are (bins + 1,)."""

    edges: Floats
    confidence: Floats
    accuracy: Floats
    count: NDArray[np.int64]


def reliability(probability: ArrayLike, label: ArrayLike, bins: int = BINS) -> Reliability:
    """The reliability curve over the bins of `ece`."""
    p, y = _checked(probability, label)
    confidence = p.max(axis=1)
    which = _bin(confidence, bins)
    count = np.bincount(which, minlength=bins)
    accuracy = _over(np.bincount(which, p.argmax(axis=1) == y, minlength=bins), count)
    return Reliability(np.linspace(0, 1, bins + 1), _over(np.bincount(which, confidence, minlength=bins), count), accuracy, count)


def _bin(confidence: Floats, bins: int) -> NDArray[np.int64]:
    return np.clip((confidence * bins).astype(np.int64), 0, bins - 1)


def _over(sums: NDArray, number: NDArray) -> Floats:
    return np.divide(sums, number, out=np.full(np.shape(sums), np.nan), where=np.asarray(number) > 0)


def _checked(probability: ArrayLike, label: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    p, y = np.asarray(probability, dtype=np.float64), np.asarray(label)
    if p.ndim != 2 or p.shape[1] < 2 or y.shape != p.shape[:1]:
        raise DataError(f"found probabilities {p.shape} and labels {y.shape}, expected (n, C) with C >= 2 and (n,)")
    if y.size and (y.dtype.kind not in "biu" or y.min() < 0 or y.max() >= p.shape[1]):
        raise DataError(f"labels must be codes 0..{p.shape[1] - 1} of the probability columns; leave rows without a label out")
    if not np.isfinite(p).all() or (p.size and (p.min() < -1e-6 or p.max() > 1 + 1e-6)):
        raise DataError(
            "probabilities must be finite and between 0 and 1; logits become probabilities with probabilities(logits)"
        )
    return p, y.astype(np.int64)
