"""DFR: the last layer fitted anew on group-balanced, held-out rows (Kirichenko et al. 2023, deep feature reweighting).

Features of a seeded half of `audit` are standardised; an l1 logistic regression is fitted on balanced subsamples of them, the
penalty chosen on `val`; the mean of the refits, folded back to raw features, replaces the last linear layer and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError
from rightreasons.head import Head, Layer
from rightreasons.mitigations import card_settings, handed_on
from rightreasons.mitigations._last_layer import Refitting, smallest_of_the_best, standard, with_last_layer
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import score
from rightreasons.models.training_keywords import Places, runs

STARTS = "model"
AUTO = "last layer"

PENALTIES = (0.01, 0.03, 0.07, 0.1, 0.3, 0.7, 1.0)  # the released code's
LEAST = 5  # rows of the smallest group


@runs
def mitigate(
    classifier: Classifier,
    cohort: Cohort,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    C: Sequence[float] = PENALTIES,
    refits: int = 20,
    batch: int = 64,
    **places: Unpack[Places],
) -> Classifier:
    """The classifier with its last linear layer fitted anew.

    Parameters
    ----------
    C : inverse penalties to choose from, scikit-learn's: `sum |w| + C · sum of losses`. Of equally good ones the smallest.
    refits : balanced subsamples whose fits are averaged
    batch : images at a time when features are read
    folder : not used: nothing here takes long enough to be resumed
    """
    settings = card_settings(attribute=attribute, C=C, refits=refits, batch=batch)
    if not len(C) or not all(0 < c < np.inf for c in C) or refits < 1:
        raise SettingError(f"C={list(C)} and refits={refits}: give penalties above 0, and at least one refit")
    rows = Refitting.begin(classifier, cohort, rng, attribute, {"batch": batch, **places}, smallest=("dfr", LEAST))
    fit, by, z, z_val = rows.fit, rows.by, rows.inputs, rows.val_inputs
    mean, std = standard(z)
    counts = balanced_counts(fit.group, refits, rng)
    ascending = sorted(map(float, C))
    fits = l1_fits((z - mean) / std, fit.y, counts, ascending, fit.C, rng)
    heads = {c: each.mean() for c, each in zip(ascending, fits, strict=True)}
    scores = {c: score(rows.val, (z_val - mean) / std @ head.weight.T + head.bias, by) for c, head in heads.items()}
    best = smallest_of_the_best(scores)
    last = Head((Layer("linear", {"weight": heads[best].weight, "bias": heads[best].bias}),)).fold(mean, std)
    return handed_on(
        with_last_layer(classifier, last.weight, last.bias),
        classifier,
        "dfr",
        settings,
        selected=by,
        fitted=rows.used,
        chosen={
            "C": best,
            by: scores[best],
            "scores": {f"{c:g}": value for c, value in scores.items()},
            "rows": len(fit),
            "rows_of_a_refit": int(counts[0].sum()),
            "inputs_in_use": int((heads[best].weight != 0).any(axis=0).sum()),
            "converged": heads[best].converged,
        },
    )


def balanced_counts(group: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """(draws, n) of 0 and 1: the rows in each subsample. Every group that occurs gives as many as the smallest one has."""
    members = [np.flatnonzero(group == g) for g in np.unique(group)]
    size = min(map(len, members))
    counts = np.zeros((draws, len(group)))
    for row in counts:
        row[np.concatenate([rng.choice(rows, size, replace=False) for rows in members])] = 1
    return counts


# ---- the l1 logistic regression ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fits:
    """Logistic regressions that share their rows: weight (R, C, d), bias (R, C)."""

    weight: np.ndarray
    bias: np.ndarray
    converged: bool

    def mean(self) -> Fits:
        """The mean of the fits, weight (C, d) and bias (C,)."""
        return Fits(self.weight.mean(axis=0), self.bias.mean(axis=0), self.converged)


def l1_fits(
    x: np.ndarray, y: np.ndarray, counts: np.ndarray, C: Sequence[float], classes: int, rng: np.random.Generator
) -> list[Fits]:
    """For each C the minima of `sum |w| + C · sum of counts · cross-entropy` with a free bias, one per row of counts (R, n).

    Two classes are left to liblinear's coordinate descent, which knows no more than two; `l1_path` is for any number.

    Parameters
    ----------
    x : (n, d) standardised
    y : (n,) classes
    counts : (R, n) 0 and 1
    C : ascending
    """
    if classes > 2:
        return l1_path(x, y, counts, C, classes)
    fits = []
    for c in C:
        weight, bias = np.zeros((len(counts), classes, x.shape[1])), np.zeros((len(counts), classes))
        steps = []
        for r, rows in enumerate(counts > 0):
            # liblinear penalises the bias too, divided by its scaling: at 100 it is as good as free
            model = LogisticRegression(
                C=c, l1_ratio=1, solver="liblinear", intercept_scaling=100, max_iter=1000, random_state=int(rng.integers(2**31))
            ).fit(x[rows], y[rows])
            weight[r, 1], bias[r, 1] = model.coef_[0], model.intercept_[0]
            steps.append(int(model.n_iter_.max()))
        fits.append(Fits(weight, bias, max(steps) < 1000))
    return fits


def l1_path(
    x: np.ndarray, y: np.ndarray, counts: np.ndarray, C: Sequence[float], classes: int, tolerance: float = 1e-2
) -> list[Fits]:
    """`l1_fits` of any number of classes, by accelerated proximal gradients.

    The fits are counts on shared rows, so that one product of matrices serves all of them; each C starts at the minimum of
    the last, on the inputs that can be in use there. For two classes the multinomial minimum is the binary one: |w0| + |w1| is
    least where one of the two is zero.

    Parameters
    ----------
    tolerance : of the optimality conditions, relative to the penalty
    """
    used = counts.any(axis=0)
    x, y, counts = x[used], y[used], counts[:, used]
    share = counts / counts.sum(axis=1, keepdims=True)  # (R, n)
    right = np.eye(classes)[y]  # (n, C)
    steepness = _steepness(x, share)
    R, d = len(counts), x.shape[1]
    weight, bias = np.zeros((R, classes, d)), np.zeros((R, classes))
    fits = []
    for c in C:
        penalty = 1 / (c * counts.sum(axis=1))[:, None, None]
        active = (weight != 0).any(axis=(0, 1))
        for _ in range(d + 1):
            inside = _Smooth(x[:, active], right, share)
            weight[..., active], bias, converged = _descend(inside, weight[..., active], bias, penalty, steepness, tolerance)
            slope = inside.slope_of(x, weight[..., active], bias)
            late = ~active & (np.abs(slope) > penalty * (1 + tolerance)).any(axis=(0, 1))
            if not late.any():
                break
            active |= late
        fits.append(Fits(weight.copy(), bias.copy(), converged))
    return fits


@dataclass(frozen=True)
class _Smooth:
    """The mean cross-entropy of every fit, and its slopes."""

    x: np.ndarray
    right: np.ndarray
    share: np.ndarray

    def slopes(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rest = self._rest(weight, bias)
        return self._onto(self.x, rest), rest.sum(axis=0)

    def slope_of(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """(R, C, k) slopes at the weights of further inputs (n, k), which are still zero."""
        return self._onto(x, self._rest(weight, bias))

    def _rest(self, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """(n, R, C) share · (probability - right)."""
        R, C, d = weight.shape
        logits = (self.x @ weight.reshape(R * C, d).T).reshape(-1, R, C) + bias
        return (softmax(logits, axis=-1) - self.right[:, None]) * self.share.T[..., None]

    @staticmethod
    def _onto(x: np.ndarray, rest: np.ndarray) -> np.ndarray:
        n, R, C = rest.shape
        return (rest.reshape(n, R * C).T @ x).reshape(R, C, x.shape[1])


def _descend(
    smooth: _Smooth, weight: np.ndarray, bias: np.ndarray, penalty: np.ndarray, steepness: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray, bool]:
    """FISTA, each fit restarted by itself where its momentum points uphill (O'Donoghue and Candès 2015)."""
    w, b, step = weight, bias, 1 / steepness[:, None, None]
    ahead_w, ahead_b, t = w, b, np.ones(len(w))
    for _ in range(MOST_STEPS):
        slope_w, slope_b = smooth.slopes(ahead_w, ahead_b)
        new_w = ahead_w - step * slope_w
        new_w = np.sign(new_w) * np.maximum(np.abs(new_w) - step * penalty, 0)
        new_b = ahead_b - step[..., 0] * slope_b
        off_w, off_b = (ahead_w - new_w) / step, (ahead_b - new_b) / step[..., 0]
        off = np.maximum(np.abs(off_w).max(axis=(1, 2), initial=0), np.abs(off_b).max(axis=1))
        if (off <= tolerance * penalty[:, 0, 0]).all():
            return new_w, new_b, True
        uphill = (off_w * (new_w - w)).sum(axis=(1, 2)) + (off_b * (new_b - b)).sum(axis=1) > 0
        t = np.where(uphill, 1.0, t)
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        momentum = np.where(uphill, 0.0, (t - 1) / t_next)
        ahead_w, ahead_b = new_w + momentum[:, None, None] * (new_w - w), new_b + momentum[:, None] * (new_b - b)
        w, b, t = new_w, new_b, t_next
    return w, b, False


MOST_STEPS = 5_000


def _steepness(x: np.ndarray, share: np.ndarray) -> np.ndarray:
    """(R,) an upper bound of the curvature of each fit: half the largest eigenvalue of its second moments, bias included."""
    whole = np.column_stack([x, np.ones(len(x))])
    v = np.ones((whole.shape[1], len(share))) + np.abs(whole).mean(axis=0)[:, None]
    size = np.ones(len(share))
    for _ in range(100):
        v = whole.T @ (share.T * (whole @ (v / np.linalg.norm(v, axis=0))))
        size, last = np.linalg.norm(v, axis=0), size
        if (np.abs(size - last) <= 1e-3 * size).all():
            break
    return 0.5 * 1.05 * size
