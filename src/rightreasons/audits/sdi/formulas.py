"""The formulas of the Shortcut Dependence Index: sensitivities, their ratio, and the index over a panel (SDI, eq. 1 to 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from rightreasons.audits.sdi import stored
from rightreasons.errors import DataError, SettingError
from rightreasons.head import Head

COMPONENTS = ("S_nc", "R_sc", "AUC_nc")
WEIGHTS = (1 / 3, 1 / 3, 1 / 3)
EPSILON = 1e-8
PANEL_FORMAT = "rightreasons SDI panel 1"


def sensitivity(features: ArrayLike, perturbed: ArrayLike) -> np.ndarray:
    """(n,) how far each row of features (n, d) moves, in mean feature norms (eq. 1 and 3)."""
    z, moved = np.asarray(features, dtype=np.float64), np.asarray(perturbed, dtype=np.float64)
    if z.ndim != 2 or z.shape != moved.shape:
        raise DataError(f"found features {z.shape} and perturbed features {moved.shape}, expected two arrays (n, d) of one shape")
    norm = np.linalg.norm(z, axis=1).mean() if len(z) else np.nan
    distance = np.linalg.norm(z - moved, axis=1)
    if norm > 0:
        return distance / norm
    return np.full(len(z), np.nan)


def ratio(s_nc: ArrayLike, s_c: ArrayLike, epsilon: float = EPSILON) -> np.ndarray:
    """R_sc, nuisance over content sensitivity (eq. 4); NaN where nothing moves under the content operators."""
    above, below = np.broadcast_arrays(np.asarray(s_nc, dtype=np.float64), np.asarray(s_c, dtype=np.float64))
    return np.divide(above, below + epsilon, out=np.full(above.shape, np.nan), where=below > 0)


def p_against(null: float, value: float, draws: np.ndarray) -> float:
    """Two-sided p that a value is `null`, from its resamples (B,): twice the share of them on the other side."""
    if math.isnan(value):
        return math.nan
    known = draws[~np.isnan(draws)]
    if value > null:
        beyond = np.sum(known <= null)
    else:
        beyond = np.sum(known >= null)
    return float(min(1.0, 2 * (1 + beyond) / (len(known) + 1)))


def head_read(head: Head, features: ArrayLike) -> np.ndarray:
    """(n, r) the part of the features that the head reads.

    For a linear head this is the projection on the row space of its centred weights, because what is added to all logits alike
    decides nothing; for any other head it is the centred logits.
    """
    z = np.asarray(features, dtype=np.float64)
    if not head.is_linear:
        logits = head(z)
        return logits - logits.mean(axis=1, keepdims=True)
    weight = head.weight.astype(np.float64)
    _, size, rows = np.linalg.svd(weight - weight.mean(axis=0), full_matrices=False)
    return z @ rows[size > 1e-10 * max(size.max(initial=0.0), 1e-300)].T


# ---- the index -----------------------------------------------------------------------------------------------------------


def normalise(components: ArrayLike, panel: ArrayLike) -> np.ndarray:
    """(m, 3) components in the panel's range, cut to [0, 1] (eq. 6); NaN where the panel has no range."""
    values, (low, high) = _components(components), _limits(panel)
    span = high - low
    scaled = np.divide(values - low, span, out=np.full(values.shape, np.nan), where=np.broadcast_to(span > 0, values.shape))
    return np.clip(scaled, 0, 1)


def combine(components: ArrayLike, panel: ArrayLike, weights: Sequence[float] = WEIGHTS) -> np.ndarray:
    """(m,) the Shortcut Dependence Index of models with components (m, 3) S_nc, R_sc, AUC_nc (eq. 5).

    A component in which the panel does not vary is left out and the other weights are scaled up. A model that lacks one of the
    remaining components has no index.

    Parameters
    ----------
    panel : (2, 3) smallest and largest value of each component over a frozen panel of models
    weights : alpha, beta and gamma, none negative, with sum 1
    """
    w = check_weights(weights)
    low, high = _limits(panel)
    varying = w * (high > low)
    scaled = normalise(components, panel)
    if varying.sum() == 0:
        return np.full(len(scaled), np.nan)
    total: np.ndarray = np.where(varying > 0, scaled, 0.0) @ (varying / varying.sum())
    return total


def check_weights(weights: Sequence[float]) -> np.ndarray:
    """(3,) the weights of eq. 5, refused where they are no weights."""
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (3,) or (w < 0).any() or not np.isclose(w.sum(), 1):
        raise SettingError(f"weights={tuple(weights)}: three numbers of at least 0 and of sum 1 expected")
    return w


@dataclass(frozen=True)
class Panel:
    """A named panel of models, frozen: every later model is compared with it.

    Attributes
    ----------
    low, high : of each component, first in the features, then in what the head reads
    """

    name: str
    models: tuple[str, ...]
    low: tuple[tuple[float | None, ...], ...]
    high: tuple[tuple[float | None, ...], ...]

    @classmethod
    def fit(cls, name: str, models: Sequence[str], components: ArrayLike) -> Panel:
        """From components (m, 2, 3) of the panel's models; undefined values are passed over."""
        values = np.asarray(components, dtype=np.float64)
        if values.ndim != 3 or values.shape[1:] != (2, 3) or len(values) != len(models):
            raise DataError(f"found components {values.shape} of {len(models)} models, expected (m, 2, 3)")
        known = ~np.isnan(values)
        defined = known.any(axis=0)
        low = np.where(defined, np.where(known, values, np.inf).min(axis=0), np.nan)
        high = np.where(defined, np.where(known, values, -np.inf).max(axis=0), np.nan)
        return cls(name, tuple(models), _none_for_nan(low), _none_for_nan(high))

    def limits(self, space: int) -> np.ndarray:
        """(2, 3) for `combine`: space 0 is the features, 1 what the head reads."""
        return np.array([self.low[space], self.high[space]], dtype=np.float64)

    def save(self, path: str | Path) -> Path:
        return stored.save(path, PANEL_FORMAT, asdict(self))

    @classmethod
    def read(cls, path: str | Path) -> Panel:
        panel = stored.read(path, PANEL_FORMAT, "SDI panel", "fit one on named models and save it")
        low, high = tuple(map(tuple, panel["low"])), tuple(map(tuple, panel["high"]))
        return cls(panel["name"], tuple(panel["models"]), low, high)


def _none_for_nan(values: np.ndarray) -> tuple[tuple[float | None, ...], ...]:
    """JSON has no NaN."""
    plain = values.astype(object)
    plain[np.isnan(values)] = None
    return tuple(map(tuple, plain.tolist()))


def _components(components: ArrayLike) -> np.ndarray:
    values = np.asarray(components, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != 3:
        raise DataError(f"found components {values.shape}, expected (m, 3): {', '.join(COMPONENTS)}")
    return values


def _limits(panel: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    limits = np.asarray(panel, dtype=np.float64)
    if limits.shape != (2, 3) or (limits[0] > limits[1]).any():
        raise DataError(
            f"found a panel {limits.tolist()}, expected (2, 3): smallest and largest value of {', '.join(COMPONENTS)}"
        )
    return limits[0], limits[1]
