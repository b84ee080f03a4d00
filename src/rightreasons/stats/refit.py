"""A head with nothing to gain from an attribute: the last layer, refitted where label and attribute are independent.

The trunk is left as it is, so both heads read the same features. Where the model's head follows the attribute and the refitted
one does not, the model uses it. Where both follow it alike, the attribute goes with how strongly the label shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize
from scipy.special import log_softmax, softmax
from sklearn.utils.extmath import randomized_svd

from rightreasons.errors import DataError
from rightreasons.stats.groups import coded
from rightreasons.stats.resampling import subject_codes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PENALTIES = tuple(10.0**k for k in range(0, -6, -1))  # of the squared weights on standardised columns, strongest first
FOLDS = 5
PASSED = 1.02  # loss, relative to the best one so far, from which the path of penalties ends
MOST_COLUMNS = 256  # leading directions of the features that are refitted on; the model's own logits come beside them
STEPS = 200  # of L-BFGS
CLOSE, ROUGHLY = 1e-8, 1e-6  # relative fall of the loss at which steps end; penalties are compared roughly
MEAN_CURVATURE = 0.1  # of the loss of a row in its logit; at most 1/4, where a row is undecided
RAKING_STEPS = 200
RAKED = 1e-6  # largest relative difference between the weights of cells
MATCHED_ON = 2_000  # rows on which two heads are made equally sharp
SHARPNESS = (-6.0, 6.0)  # logarithm of the factor that is tried
MOST_SHORTFALL = 2.0


def raked_weights(label: ArrayLike, attributes: Sequence[ArrayLike], base: ArrayLike | None = None) -> Floats:
    """Weights (n,) of mean 1 under which, for every attribute, all cells (label, value) weigh the same.

    With one attribute this is one division. With several it is iterative proportional fitting: the label becomes independent of
    each of them, without asking for rows in every combination of all.

    Parameters
    ----------
    base : (n,) weights to begin with, such as how often a resample drew each row
    """
    cells = [_cells(label, attribute) for attribute in attributes]
    if base is None:
        weight = np.ones(len(np.asarray(label)))
    else:
        weight = np.asarray(base, dtype=np.float64).copy()
    for _ in range(RAKING_STEPS):
        for cell in cells:
            total = np.bincount(cell, weight)
            weight = weight / np.where(total > 0, total, 1.0)[cell]
        weight *= len(weight) / weight.sum()
        if max((_unevenness(cell, weight) for cell in cells), default=0.0) < RAKED:
            break
    return weight


@dataclass(frozen=True)
class Columns:
    """What a head is refitted on: standardised features, in their leading directions where there are many, and the logits.

    The logits are columns too, so that nothing the model's own head reads is lost with the trailing directions. Together they are
    turned onto their own axes: a ridge penalty does not notice, and a fit of uncorrelated columns takes few steps.
    """

    mean: Floats
    scale: Floats
    directions: Floats | None
    logit_mean: Floats
    logit_scale: Floats
    axes: Floats

    def __call__(self, features: ArrayLike, logits: ArrayLike) -> Floats:
        """(n, d) and (n, C) to (n, p)."""
        return self._joined(features, logits) @ self.axes

    def _joined(self, features: ArrayLike, logits: ArrayLike) -> Floats:
        z, scores = np.asarray(features), np.asarray(logits, dtype=np.float64)
        if self.directions is None:
            z = (z - self.mean) / self.scale
        else:  # the same, without a copy of all features
            turned = self.directions / self.scale[:, None]
            z = z @ turned - self.mean @ turned
        return np.concatenate([z, (scores - self.logit_mean) / self.logit_scale], axis=1)


def columns_of(features: ArrayLike, logits: ArrayLike, rng: np.random.Generator) -> Columns:
    """The columns that these rows suggest."""
    z, scores = np.asarray(features), np.asarray(logits, dtype=np.float64)
    mean, scale = _standard(z)
    directions = None
    if min(z.shape) > MOST_COLUMNS:
        # One power iteration in single precision is enough: what is left out is noise to a penalised fit.
        seed = int(rng.integers(2**31))
        standard = ((z - mean) / scale).astype(np.float32)
        _, lengths, axes = randomized_svd(standard, MOST_COLUMNS, n_iter=1, power_iteration_normalizer="QR", random_state=seed)
        # Every direction keeps its spread, so that the penalty still prefers what varies much.
        spread = lengths / np.sqrt(len(z))
        directions = axes.T.astype(np.float64) / max(float(spread.max()), np.finfo(np.float32).tiny)
    as_they_are = Columns(mean, scale, directions, *_standard(scores), np.eye(1))
    joined = as_they_are._joined(z, scores)
    return replace(as_they_are, axes=np.linalg.eigh(joined.T @ joined)[1])


@dataclass(frozen=True)
class Refit:
    """A linear head (C, p) and its bias (C,), with the penalty it was fitted with."""

    weight: Floats
    bias: Floats
    penalty: float

    def __call__(self, columns: Floats) -> Floats:
        """Logits (n, C)."""
        return columns @ self.weight.T + self.bias


def refit(
    columns: Floats, label: Ints, C: int, weight: Floats, *, rng: np.random.Generator, subject: ArrayLike | None = None
) -> Refit:
    """A multinomial logistic head, its penalty chosen by the weighted loss of held-out folds (of subjects, where known)."""
    fold = _folds(len(label), subject, rng)
    heads: list[Refit | None] = [None] * FOLDS
    losses: list[float] = []
    for penalty in PENALTIES:
        loss = 0.0
        for k in range(FOLDS):
            inside, outside = fold != k, fold == k
            if outside.any() and inside.any():
                head = fitted(columns[inside], label[inside], C, weight[inside], penalty, heads[k], ROUGHLY)
                loss += held_out_loss(head, columns[outside], label[outside], weight[outside])
                heads[k] = head
        losses.append(loss)
        if loss > PASSED * min(losses):  # the path has passed its best: weaker penalties only overfit more
            break
    return fitted(columns, label, C, weight, PENALTIES[int(np.argmin(losses))])


def held_out_loss(head: Refit, columns: Floats, label: Ints, weight: Floats) -> float:
    """Weighted negative log likelihood of rows that the head was not fitted on."""
    log_p = log_softmax(head(columns), axis=1)
    return -float(weight @ log_p[np.arange(len(label)), label])


def fitted(
    columns: Floats, label: Ints, C: int, weight: Floats, penalty: float, start: Refit | None = None, close: float = CLOSE
) -> Refit:
    """The weighted multinomial logistic head of one penalty, by L-BFGS from `start` until the loss falls by less than `close`."""
    n, p = columns.shape
    if len(label) != n or len(weight) != n:
        raise DataError(f"found {n} rows, {len(label)} labels and {len(weight)} weights; give all over the same rows")
    share = weight / weight.sum()
    truth = np.eye(C)[label]
    # Steps are taken in units in which every column curves the loss about as much.
    unit = 1 / np.sqrt(MEAN_CURVATURE * np.einsum("i,ij,ij->j", share, columns, columns) + penalty)
    unit = np.append(unit, 1 / np.sqrt(MEAN_CURVATURE))

    def loss(flat: Floats) -> tuple[float, Floats]:
        head = flat.reshape(C, p + 1) * unit
        logits = columns @ head[:, :p].T + head[:, p]
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        total = odds.sum(axis=1, keepdims=True)
        error = (odds / total - truth) * share[:, None]
        log_p = (logits * truth).sum(axis=1) - np.log(total[:, 0])
        value = -float(share @ log_p) + 0.5 * penalty * float((head[:, :p] ** 2).sum())
        slope = np.concatenate([error.T @ columns + penalty * head[:, :p], error.sum(axis=0)[:, None]], axis=1)
        return value, (slope * unit).ravel()

    first = np.zeros((C, p + 1))
    if start is not None:
        first = np.concatenate([start.weight, start.bias[:, None]], axis=1) / unit
    best = minimize(loss, first.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": close, "gtol": 1e-6})
    head = best.x.reshape(C, p + 1) * unit
    return Refit(head[:, :p], head[:, p], penalty)


def matched(logits: Floats, answers: Floats, label: Ints, weight: Floats) -> Floats:
    """Probabilities (n, C) of a head, made as sharp and as ready to say each class as `answers` (n, C).

    A pull is a difference of probabilities, so two heads can be compared only at equal sharpness: one factor and one bias per
    class are chosen so that the mean probability of the label and of every class equals that of the answers.
    """
    n = len(label)
    used = np.linspace(0, n - 1, min(n, MATCHED_ON)).astype(np.int64)
    share = weight[used] / weight[used].sum()
    aim = share @ answers[used]
    hit = float(share @ answers[used, label[used]])
    bias = np.zeros(answers.shape[1])

    def missed(sharpness: float) -> float:
        """By how much the label is more probable than it should be, on average, at a (log) sharpness."""
        nonlocal bias
        scaled = np.exp(sharpness) * logits[used]
        bias = _biased(scaled, aim, share, bias)
        reached = softmax(scaled + bias, axis=1)
        return float(share @ reached[np.arange(len(used)), label[used]]) - hit

    low, high = SHARPNESS
    if missed(low) >= 0:
        sharpness = low
    elif missed(high) <= 0:
        sharpness = high
    else:
        sharpness = brentq(missed, low, high, xtol=1e-3)
    factor = np.exp(sharpness)
    bias = _biased(factor * logits[used], aim, share, bias)
    return softmax(factor * logits + bias, axis=1)


def shortfall(answers: Floats, others: Floats, label: Ints, weight: Floats) -> float:
    """By what factor `answers` tell the labels apart better than `others`, from 1 to 2: sharpness cannot make up for errors."""
    mine, theirs = (label_effect(p, label, weight) for p in (answers, others))
    if theirs <= 0:
        return MOST_SHORTFALL
    return float(np.clip(mine / theirs, 1.0, MOST_SHORTFALL))


def label_effect(probability: Floats, label: Ints, weight: Floats) -> float:
    """How much more probable a class is where it is the label than elsewhere, mean over the classes that occur."""
    effects = []
    for c in np.unique(label):
        here = label == c
        if here.all():
            continue
        inside = np.average(probability[here, c], weights=weight[here])
        outside = np.average(probability[~here, c], weights=weight[~here])
        effects.append(inside - outside)
    if effects:
        return float(np.mean(effects))
    return float("nan")


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _cells(label: ArrayLike, attribute: ArrayLike) -> Ints:
    y = coded(label)[0]
    a, values = coded(attribute)
    if (y < 0).any() or (a < 0).any():
        raise DataError("rows without a label or an attribute cannot be weighted: leave them out")
    return y * len(values) + a


def _unevenness(cell: Ints, weight: Floats) -> float:
    total = np.bincount(cell, weight)
    present = total[total > 0]
    return float(np.ptp(present) / present.mean())


def _standard(z: Floats) -> tuple[Floats, Floats]:
    scale = z.std(axis=0, dtype=np.float64)
    return z.mean(axis=0, dtype=np.float64), np.where(scale > 0, scale, 1.0)


def _folds(n: int, subject: ArrayLike | None, rng: np.random.Generator) -> Ints:
    if subject is None:
        unit = np.arange(n)
    else:
        unit = subject_codes(subject)
    return rng.integers(FOLDS, size=int(unit.max()) + 1)[unit]


def _biased(logits: Floats, aim: Floats, share: Floats, bias: Floats) -> Floats:
    """The bias under which every class is as probable on average as `aim` says, from a first guess."""
    for _ in range(8):
        mean = share @ softmax(logits + bias, axis=1)
        step = np.log(np.maximum(aim, 1e-9) / np.maximum(mean, 1e-9))
        bias = bias + step
        if np.abs(step).max() < 1e-5:
            break
    return bias
