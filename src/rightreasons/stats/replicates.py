"""Balanced models in the test model's place: has it moved towards the attribute model farther than seeds alone move a model?

A correlation forgets how large a difference is: what a seed changes by chance, divided by its own small size, often points at the
cue. The step keeps the size, and the spread of balanced models says how large a step chance makes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from rightreasons.errors import DataError

Floats = NDArray[np.float64]

FEWEST = 4  # balanced models, of which each takes the test model's place in turn


@dataclass(frozen=True)
class Replicates:
    """Where the test models lie among balanced models.

    Attributes
    ----------
    values : (K,) step of every balanced model from the mean of the others
    tested : mean step of the test models from the mean of all balanced models
    upper : one-sided prediction limit of it
    p : one-sided; NaN, with the reason, where it is undefined
    """

    values: Floats
    tested: float
    upper: float
    p: float
    reason: str = ""


def step(test: ArrayLike, baseline: ArrayLike, attribute: ArrayLike) -> Floats:
    """How far profiles (…, R) lie on the way from the baseline's (0) to the attribute model's (1); NaN where these are alike.

    The regression of test − baseline on attribute − baseline over regions: <t − b, a − b> / <a − b, a − b>, all centred.
    """
    b = np.asarray(baseline, dtype=np.float64)
    way = _centred(np.asarray(attribute, dtype=np.float64) - b)
    moved = _centred(np.asarray(test, dtype=np.float64) - b)
    length = (way**2).sum(axis=-1)
    return np.where(length > 0, (way * moved).sum(axis=-1) / np.where(length > 0, length, 1.0), np.nan)


def replicates(tests: ArrayLike, baselines: ArrayLike, attribute: ArrayLike, alpha: float = 0.05) -> Replicates:
    """Is the mean step of test models (m, R) farther than that of a balanced model, of which (K, R) are known?

    A t prediction interval. Each balanced model is compared with the mean of the K − 1 others, as the test model is with the mean
    of all K: the noise of a mean stands on both sides of the product, and so pulls either a little way to the attribute model. A
    step from K − 1 others has K / (K − 1) times the deviation of the model itself, and that of m test models has 1/m + 1/K times
    its variance.
    """
    tested = np.asarray(tests, dtype=np.float64)
    pool = np.asarray(baselines, dtype=np.float64)
    a = np.asarray(attribute, dtype=np.float64)
    if tested.ndim != 2 or pool.ndim != 2 or a.ndim != 1 or not tested.shape[1] == pool.shape[1] == len(a):
        raise DataError(f"found profiles {tested.shape}, {pool.shape} and {a.shape}; give (m, R), (K, R) and (R,)")
    K = len(pool)
    if K < FEWEST:
        return Replicates(np.zeros(0), np.nan, np.nan, np.nan, f"{K} balanced models, at least {FEWEST} needed")
    others = (pool.sum(axis=0) - pool) / (K - 1)
    values = step(pool, others, a)
    mean_step = float(step(tested, pool.mean(axis=0), a).mean())
    if not (np.isfinite(values).all() and np.isfinite(mean_step)):
        return Replicates(values, mean_step, np.nan, np.nan, "the attribute model's profile is the baseline's")
    width = values.std(ddof=1) * (K - 1) / K * np.sqrt(1 / len(tested) + 1 / K)
    if width == 0:
        return Replicates(values, mean_step, np.nan, np.nan, "the balanced models are all alike")
    upper = float(values.mean() + stats.t.ppf(1 - alpha, K - 1) * width)
    p = float(stats.t.sf((mean_step - values.mean()) / width, K - 1))
    return Replicates(values, mean_step, upper, p)


def _centred(x: Floats) -> Floats:
    return x - x.mean(axis=-1, keepdims=True)
