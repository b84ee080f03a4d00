"""The pull of one attribute within others: what is left of it among rows that are alike in everything else that is recorded.

Within every label, predictions are regressed on the attribute and on all other attributes together. So ten attributes need no
rows in every combination of their values. An attribute that merely goes with a cue that is used keeps its pull alone and loses it
here; two attributes that always go together cannot be told apart, and their intervals say so.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightreasons.stats import resampling
from rightreasons.stats.groups import FEWEST, coded
from rightreasons.stats.resampling import Counts

Floats = NDArray[np.float64]

ALONE = 1e-6  # share of the variance of a value that others must leave for its effect to be defined


def partial_pull_draws(
    label: ArrayLike,
    probability: ArrayLike,
    attribute: ArrayLike,
    aligned: Mapping[Hashable, Any],
    others: Sequence[ArrayLike],
    counts: Counts,
) -> Floats:
    """The pull within the labels and within other attributes, of each resample: counts (B, n) to (B,).

    Without others it is `groups.pull`.

    Parameters
    ----------
    probability : (n, C)
    aligned : value of the attribute to the column of `probability` it stands for
    others : codes (n,) of each other attribute; a missing value is a level of its own
    """
    y, labels = coded(label)
    a, values = coded(attribute)
    p = np.asarray(probability, dtype=np.float64)
    adjusting = _levels_as_columns(others, len(y))
    pulls = []
    for k, value in enumerate(values):
        if value not in aligned:
            continue
        effects = []
        for c in range(len(labels)):
            rows = np.flatnonzero((y == c) & (a >= 0))
            here = (a[rows] == k).astype(np.float64)
            if min(here.sum(), len(here) - here.sum()) >= FEWEST:
                effects.append(_effect(here, adjusting[rows], p[rows, aligned[value]], counts[:, rows]))
        if effects:
            pulls.append(np.mean(effects, axis=0))
    defined = [draws for draws in pulls if not np.isnan(draws).all()]
    if defined:
        return np.mean(defined, axis=0)
    return np.full(len(counts), np.nan)


# ---- what the function above uses ----------------------------------------------------------------------------------------


def _levels_as_columns(others: Sequence[ArrayLike], n: int) -> Floats:
    """A column of ones, and one for every level of every other attribute but its first, (n, k)."""
    columns = [np.ones(n)]
    for other in others:
        code = np.asarray(other)
        columns += [(code == level).astype(np.float64) for level in np.unique(code)[1:]]
    return np.stack(columns, axis=1)


def _effect(here: Floats, adjusting: Floats, values: Floats, counts: Counts) -> Floats:
    """Coefficient of `here` in the regression of `values` on it and on the adjusting columns, (B,).

    By Frisch, Waugh and Lovell: what the adjusting columns leave of `here`, against what they leave of the values.
    """
    n, k = adjusting.shape
    products = (adjusting[:, :, None] * adjusting[:, None, :]).reshape(n, k * k)
    gram = resampling.sums(counts, products).reshape(-1, k, k)
    with_here = resampling.sums(counts, adjusting * here[:, None])
    with_values = resampling.sums(counts, adjusting * values[:, None])
    sums = resampling.sums(counts, np.stack([here, here * values], axis=1))
    coefficients = np.linalg.pinv(gram, hermitian=True) @ with_here[:, :, None]
    explained = (coefficients[:, :, 0] * with_here).sum(axis=1)
    left = sums[:, 0] - explained
    share = left / np.maximum(gram[:, 0, 0], 1.0)
    together = sums[:, 1] - (coefficients[:, :, 0] * with_values).sum(axis=1)
    return np.divide(together, left, out=np.full(len(left), np.nan), where=share > ALONE)
