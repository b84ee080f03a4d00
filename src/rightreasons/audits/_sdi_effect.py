"""How far predictions differ with the cue within the label, and what of that difference an operator takes.

A model that uses a cue predicts differently for rows that differ in it; an operator that removes the cue takes that difference.
An operator that spoils the images takes it as well, and the difference between labels with it. So only what is taken beyond the
label's share counts. Unlike a ratio to content operators it needs no common scale of two kinds of change. And because an operator
may push all predictions to one side, which says nothing of any cue, predictions are compared at the model's own working point.
"""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from rightreasons.stats import resampling

FEWEST = 5  # rows of a cell
RARE, CLOSE, ROUNDS = 1e-6, 1e-3, 500  # of the search for the working point, in log probabilities
LABELLED = 0.1  # the label's effect below which it cannot show how much an operator spoils


def at_working_point(logits: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """(n, C) probabilities of logits that are shifted, all rows alike, until each class has the mean probability given, (C,)."""
    shift, wanted = np.zeros(logits.shape[1]), np.log(np.maximum(mean, RARE))
    for _ in range(ROUNDS):
        found = softmax(logits + shift, axis=1)
        step = wanted - np.log(np.maximum(found.mean(axis=0), RARE))
        if np.abs(step).max() < CLOSE:
            break
        shift += step
    return found


class Effects:
    """The cue's and the label's effect on predictions, for any resample.

    The cue's effect: mean predicted probabilities of one value of the cue less those of the others, within the label, averaged
    over labels with its sign; as the total variation over classes, of the value where it is largest. Of a continuous cue: between
    one standard deviation above the mean and one below. The label's effect: the same of one label against the others, within the
    cue.

    Parameters
    ----------
    probabilities : (k, n, C) of k conditions
    label : (n,) codes, -1 for rows to leave out
    cue : (n,) codes, -1 for rows to leave out; numbers, NaN to leave out, where `continuous`
    """

    def __init__(self, probabilities: np.ndarray, label: np.ndarray, cue: np.ndarray, *, continuous: bool = False) -> None:
        self.p, self.continuous = np.asarray(probabilities, dtype=np.float64), continuous
        known = (label >= 0) & (~np.isnan(cue) if continuous else cue >= 0)
        self.cue = np.where(known, cue, 0).astype(np.float64)
        values = [] if continuous else np.unique(cue[known]).tolist()
        by_label = [known & (label == y) for y in np.unique(label[known])]
        if continuous:
            self.cells = [[np.flatnonzero(of)] for of in by_label if len(np.unique(cue[of])) > 1 and of.sum() >= 2 * FEWEST]
        else:
            cells = [[_enough(of & (cue == v)) for v in values] for of in by_label]
            self.cells = [row for row in cells if sum(len(rows) > 0 for rows in row) > 1]

    @property
    def problem(self) -> str:
        return "" if self.cells else f"no label has two values of the cue with {FEWEST} rows"

    def draws(self, counts: np.ndarray) -> np.ndarray:
        """(b, 2, k): the cue's effect and the label's in every resample, counts (b, n)."""
        found = np.full((len(counts), 2, len(self.p)), np.nan)
        if not self.cells:
            return found
        for k, p in enumerate(self.p):
            found[:, 0, k], found[:, 1, k] = self._slopes(p, counts) if self.continuous else self._differences(p, counts)
        return found

    def _differences(self, p: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        means = np.stack([np.stack([_mean(p, rows, counts) for rows in row], axis=1) for row in self.cells], axis=1)  # (b,Y,V,C)
        cue = _average(_against_others(means, 2), 1)
        label = _against_others(_average(means, 2), 1)
        return np.fmax.reduce(_size(cue), axis=1), _average(_size(label)[..., None], 1)[:, 0]

    def _slopes(self, p: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        slopes, means = [], []
        for (rows,) in self.cells:
            a = self.cue[rows] - self.cue[rows].mean()
            mean = _mean(p, rows, counts)
            products = _mean(np.concatenate([p[rows] * a[:, None], np.stack([a, a * a], axis=1)], axis=1), None, counts[:, rows])
            variance = np.maximum(products[:, -1] - products[:, -2] ** 2, 0)
            sd = np.sqrt(np.where(variance > 0, variance, np.nan))
            slopes.append(2 * (products[:, :-2] - mean * products[:, -2:-1]) / sd[:, None])
            means.append(mean)
        label = _against_others(np.stack(means, axis=1), 1)
        return _size(_average(np.stack(slopes, axis=1), 1)), _average(_size(label)[..., None], 1)[:, 0]


def taken(effects: np.ndarray, has_label: bool) -> np.ndarray:
    """(b, k) what each of k conditions takes of the cue's effect beyond what it takes of the label's; effects (b, 2, 1 + k).

    The first condition is the images as they are. `has_label` is False for a model that does not tell the labels apart within the
    cue, and so has no such effect to lose.
    """
    cue, label = effects[:, 0], effects[:, 1]
    left = np.divide(label[:, 1:], label[:, :1], out=np.ones_like(label[:, 1:]), where=label[:, :1] > 0)
    found: np.ndarray = (np.clip(left, 0, 1) if has_label else 1.0) * cue[:, :1] - cue[:, 1:]
    return found


def _enough(rows: np.ndarray) -> np.ndarray:
    """Row numbers; none where they are few."""
    return np.flatnonzero(rows) if rows.sum() >= FEWEST else np.empty(0, dtype=np.int64)


def _mean(values: np.ndarray, rows: np.ndarray | None, counts: np.ndarray) -> np.ndarray:
    """(b, C) mean over rows in every resample; NaN where a resample has none of them."""
    those, weight = (values, counts) if rows is None else (values[rows], counts[:, rows])
    if not len(those):
        return np.full((len(counts), values.shape[1]), np.nan)
    weight = np.ascontiguousarray(weight)
    number = weight.sum(axis=1, dtype=np.int64)[:, None]
    total = resampling.sums(weight, those)
    return np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)


def _average(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean of what is defined."""
    known = ~np.isnan(values)
    number = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)


def _against_others(means: np.ndarray, axis: int) -> np.ndarray:
    """Each entry along an axis less the mean of the other defined ones."""
    known = ~np.isnan(means)
    filled = np.where(known, means, 0.0)
    others = known.sum(axis=axis, keepdims=True) - known
    rest = filled.sum(axis=axis, keepdims=True) - filled
    return means - np.divide(rest, others, out=np.full(means.shape, np.nan), where=others > 0)


def _size(difference: np.ndarray) -> np.ndarray:
    """Total variation over the classes, the last axis."""
    found: np.ndarray = np.abs(difference).sum(axis=-1) / 2
    return found
