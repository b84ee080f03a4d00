"""How far predictions differ with the cue within the label, and what an operator takes of that difference. This rule is ours.

A model that uses a cue predicts differently for rows that differ in it; an operator that removes the cue removes that difference.
An operator that spoils the images removes it as well, and with it the difference between labels. So only what is taken beyond
the label's share counts. Unlike a ratio to content operators this needs no common scale for two kinds of change. And because an
operator may push all predictions to one side, which says nothing about any cue, predictions are compared at the model's own
working point.
"""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from rightreasons.audits.sdi.formulas import p_against
from rightreasons.audits.sdi.measurement import CueEffect, Intervals
from rightreasons.stats import resampling
from rightreasons.stats.resampling import Resamples

TOLERATED = 0.02  # of the cue's effect on a probability: what `flips` tolerates of its change
FEWEST = 5  # rows of a cell
RARE, CLOSE, ROUNDS = 1e-6, 1e-3, 500  # of the search for the working point, in log probabilities
LABELLED = 0.1  # the label's effect below which it cannot show how much an operator spoils
CUE, LABEL = 0, 1  # the two effects, along the second axis of `Effects.draws`


def cue_effect(effects: Effects, sample: Resamples, level: float) -> CueEffect:
    """The cue's effect as images are and under every operator, and what each operator takes of it."""
    if effects.problem:
        return undefined_effect(len(effects.probabilities) - 1, effects.problem)
    point, draws = effects.draws(resampling.whole(sample.n)), sample.apply(effects.draws)
    has_label = bool(point[0, LABEL, 0] >= LABELLED)
    lost, lost_draws = taken(point, has_label)[0], taken(draws, has_label)

    def as_it_is(effect: int) -> Intervals:
        return Intervals.of(point[0, effect, :1], draws[:, effect, :1], level)

    def under_operators(effect: int) -> Intervals:
        return Intervals.of(point[0, effect, 1:], draws[:, effect, 1:], level)

    return CueEffect(
        cue=as_it_is(CUE).at(0),
        label=as_it_is(LABEL).at(0),
        left_cue=under_operators(CUE),
        left_label=under_operators(LABEL),
        taken=Intervals.of(lost, lost_draws, level),
        p=np.array([p_against(TOLERATED, value, lost_draws[:, k]) for k, value in enumerate(lost)]),
        reason="",
    )


def undefined_effect(k: int, reason: str) -> CueEffect:
    nothing = Intervals.undefined(k)
    none = Intervals.undefined(1).at(0, reason)
    return CueEffect(none, none, nothing, nothing, nothing, np.full(k, np.nan), reason)


def taken(effects: np.ndarray, has_label: bool) -> np.ndarray:
    """(b, k) what each of k conditions takes of the cue's effect beyond what it takes of the label's; effects (b, 2, 1 + k).

    The first condition is the images as they are. `has_label` is False for a model that does not tell the labels apart within the
    cue, and so has no such effect to lose.
    """
    cue, label = effects[:, CUE], effects[:, LABEL]
    left = np.divide(label[:, 1:], label[:, :1], out=np.ones_like(label[:, 1:]), where=label[:, :1] > 0)
    share = 1.0
    if has_label:
        share = np.clip(left, 0, 1)
    lost: np.ndarray = share * cue[:, :1] - cue[:, 1:]
    return lost


def at_working_point(logits: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """(n, C) probabilities after one shift of all rows' logits that gives each class its mean probability in `mean` (C,)."""
    shift, wanted = np.zeros(logits.shape[1]), np.log(np.maximum(mean, RARE))
    for _ in range(ROUNDS):
        p = softmax(logits + shift, axis=1)
        step = wanted - np.log(np.maximum(p.mean(axis=0), RARE))
        if np.abs(step).max() < CLOSE:
            break
        shift += step
    return p


class Effects:
    """The cue's and the label's effect on predictions, for any resample.

    The cue's effect: the mean prediction for one value of the cue minus that for the other values, within each label, averaged
    over labels with its sign; its size is the total variation over classes, and the value of the cue with the largest counts.
    For a continuous cue the difference is between one standard deviation above its mean and one below. The label's effect is the
    same for one label against the others, within the cue.

    Parameters
    ----------
    probabilities : (k, n, C) of k conditions
    label : (n,) codes, -1 for rows to leave out
    cue : (n,) codes, -1 for rows to leave out; numbers, NaN to leave out, where `continuous`
    """

    def __init__(self, probabilities: np.ndarray, label: np.ndarray, cue: np.ndarray, *, continuous: bool = False) -> None:
        self.probabilities, self.continuous = np.asarray(probabilities, dtype=np.float64), continuous
        known = (label >= 0) & (~np.isnan(cue) if continuous else cue >= 0)
        self.cue = np.where(known, cue, 0).astype(np.float64)
        by_label = [known & (label == y) for y in np.unique(label[known])]
        if continuous:
            self.cells = [[np.flatnonzero(rows)] for rows in by_label if _varies(cue[rows])]
        else:
            self.cells = _cells(by_label, cue, np.unique(cue[known]))

    @property
    def problem(self) -> str:
        if self.cells:
            return ""
        return f"no label has two values of the cue with {FEWEST} rows"

    def draws(self, counts: np.ndarray) -> np.ndarray:
        """(b, 2, k): the cue's effect and the label's in every resample, counts (b, n)."""
        effects = np.full((len(counts), 2, len(self.probabilities)), np.nan)
        if not self.cells:
            return effects
        size = self._slopes if self.continuous else self._differences
        for k, p in enumerate(self.probabilities):
            effects[:, CUE, k], effects[:, LABEL, k] = size(p, counts)
        return effects

    def _differences(self, p: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(b,) the cue's effect and the label's, from the mean predictions of the cells."""
        by_label = []
        for cells in self.cells:
            by_label.append(np.stack([_mean(p, rows, counts) for rows in cells], axis=1))
        means = np.stack(by_label, axis=1)  # (b, labels, values of the cue, C)
        cue = _average(_against_others(means, 2), 1)
        label = _against_others(_average(means, 2), 1)
        return np.fmax.reduce(_size(cue), axis=1), _average(_size(label)[..., None], 1)[:, 0]

    def _slopes(self, p: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(b,) the same from slopes over a continuous cue, two standard deviations long."""
        slopes, means = [], []
        for (rows,) in self.cells:
            a = self.cue[rows] - self.cue[rows].mean()
            mean = _mean(p, rows, counts)
            moments = np.concatenate([p[rows] * a[:, None], np.stack([a, a * a], axis=1)], axis=1)
            products = _mean(moments, np.arange(len(rows)), counts[:, rows])
            variance = np.maximum(products[:, -1] - products[:, -2] ** 2, 0)
            sd = np.sqrt(np.where(variance > 0, variance, np.nan))
            slopes.append(2 * (products[:, :-2] - mean * products[:, -2:-1]) / sd[:, None])
            means.append(mean)
        label = _against_others(np.stack(means, axis=1), 1)
        return _size(_average(np.stack(slopes, axis=1), 1)), _average(_size(label)[..., None], 1)[:, 0]


def _varies(cue: np.ndarray) -> bool:
    """Whether the rows of a label show a slope over a continuous cue."""
    return len(np.unique(cue)) > 1 and len(cue) >= 2 * FEWEST


def _cells(by_label: list[np.ndarray], cue: np.ndarray, values: np.ndarray) -> list[list[np.ndarray]]:
    """Row numbers by label and value of the cue, none where they are few; labels with fewer than two values are left out."""
    cells_of_label = []
    for rows in by_label:
        cells = [_enough(rows & (cue == value)) for value in values]
        if sum(len(cell) > 0 for cell in cells) > 1:
            cells_of_label.append(cells)
    return cells_of_label


def _enough(rows: np.ndarray) -> np.ndarray:
    """Row numbers; none where they are few."""
    if rows.sum() >= FEWEST:
        return np.flatnonzero(rows)
    return np.empty(0, dtype=np.int64)


def _mean(values: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(b, C) mean over rows in every resample; NaN where a resample has none of them."""
    if not len(rows):
        return np.full((len(counts), values.shape[1]), np.nan)
    weight = np.ascontiguousarray(counts[:, rows])
    number = weight.sum(axis=1, dtype=np.int64)[:, None]
    total = resampling.sums(weight, values[rows])
    return np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)


def _average(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean of what is defined."""
    known = ~np.isnan(values)
    number = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)


def _against_others(means: np.ndarray, axis: int) -> np.ndarray:
    """Each entry along an axis minus the mean of the other defined ones."""
    known = ~np.isnan(means)
    filled = np.where(known, means, 0.0)
    others = known.sum(axis=axis, keepdims=True) - known
    rest = filled.sum(axis=axis, keepdims=True) - filled
    return means - np.divide(rest, others, out=np.full(means.shape, np.nan), where=others > 0)


def _size(difference: np.ndarray) -> np.ndarray:
    """Total variation over the classes, the last axis."""
    size: np.ndarray = np.abs(difference).sum(axis=-1) / 2
    return size
