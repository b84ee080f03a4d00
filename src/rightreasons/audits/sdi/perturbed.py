"""Probes 1 and 2: how far a model moves under nuisance operators, and under content operators that change pixels as much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from rightreasons.audits.sdi.effect import at_working_point
from rightreasons.audits.sdi.formulas import head_read, p_against, ratio
from rightreasons.audits.sdi.measurement import FEATURES, HEAD, Intervals, Sensitivities
from rightreasons.audits.sdi.severities import Severity, content_recipe
from rightreasons.errors import DataError
from rightreasons.evidence import Evidence
from rightreasons.stats import resampling
from rightreasons.stats.resampling import Resamples

MATCHED = (0.8, 1.25)  # the content operators' pixel change over the nuisance operator's, on the rows that are measured
UNREACHED = "no content operator changes pixels as much as this one"
NO_HEAD = "the head is not known as data"
S_NC, S_C, R_SC = 0, 1, 2  # the quantities of `Distances.sensitivities`, along its second axis


@dataclass(frozen=True)
class Shift:
    """How far features move under one nuisance operator, and on average under its content operators.

    Attributes
    ----------
    nuisance, content : (2, n) distances in each space; `content` is NaN where no content operator changes pixels as much
    change, content_change : mean RMS pixel change of both
    compared : the content operators, in words
    uncompared : why there are none, empty where there are some
    """

    nuisance: np.ndarray
    content: np.ndarray
    change: float
    content_change: float
    compared: str
    uncompared: str


class Perturbed:
    """One model's features on test rows, as the images are and under operators; each array is read once."""

    def __init__(self, evidence: Evidence, draws: int) -> None:
        self.view, self.head, self.draws = evidence.on("test"), evidence.head, draws
        self.arrays = frozenset(evidence.arrays("test"))
        self.cohort, self.label, self.z = self.view.by_case("features")
        self.read = None
        if self.head is not None:
            self.read = head_read(self.head, self.z)
        unread = np.full(len(self.z), np.nan)
        self.norm = np.stack([_norm(self.z), unread if self.read is None else _norm(self.read)])
        self._distance: dict[str, np.ndarray] = {}

    def shift(self, operator: Severity) -> Shift:
        """The operator beside those of its content operators that change pixels as much."""
        change = self.pixel_change(operator.operator, operator.severity)
        distances, changes, compared, mismatches = [], [], [], []
        for name, severity in operator.content.items():
            if not self.arrays.issuperset(self.recipes("features", name, severity)):
                continue
            own_change = self.pixel_change(name, severity)
            mismatch = _mismatch(operator.operator, change, name, own_change)
            if mismatch:
                mismatches.append(mismatch)
                continue
            distances.append(self.mean_distance(name, severity))
            changes.append(own_change)
            compared.append(f"{name} ({severity:.3g})")
        return Shift(
            nuisance=self.mean_distance(operator.operator, operator.severity),
            content=np.mean(distances, axis=0) if distances else np.full(self.norm.shape, np.nan),
            change=change,
            content_change=float(np.mean(changes)) if changes else math.nan,
            compared=", ".join(compared),
            uncompared="" if compared else "; ".join([UNREACHED, *mismatches]),
        )

    def features(self, operator: Severity) -> list[np.ndarray]:
        """(n, d) under the operator, one array a draw."""
        return [self._features(recipe) for recipe in self.recipes("features", operator.operator, operator.severity)]

    def probabilities(self, operators: Sequence[Severity]) -> np.ndarray:
        """(1 + k, n, C) predictions as images are and under operators, at the model's own working point, mean over draws."""
        if self.head is None:
            raise DataError(NO_HEAD)
        clean = softmax(self.head(self.z.astype(np.float64)), axis=1)
        conditions = [clean]
        for operator in operators:
            logits = [self.head(z.astype(np.float64)) for z in self.features(operator)]
            conditions.append(np.mean([at_working_point(each, clean.mean(axis=0)) for each in logits], axis=0))
        return np.stack(conditions)

    def recipes(self, quantity: str, operator: str, severity: float) -> list[str]:
        return [content_recipe(quantity, operator, severity, draw) for draw in range(self.draws)]

    def pixel_change(self, operator: str, severity: float) -> float:
        """Mean RMS change of a pixel; NaN where it was not stored."""
        recipes = self.recipes("change", operator, severity)
        if not self.arrays.issuperset(recipes):
            return math.nan
        return float(np.mean([self.view[recipe].mean() for recipe in recipes]))

    def mean_distance(self, operator: str, severity: float) -> np.ndarray:
        """(2, n) mean over draws."""
        distances: np.ndarray = np.mean([self.distance(r) for r in self.recipes("features", operator, severity)], axis=0)
        return distances

    def distance(self, recipe: str) -> np.ndarray:
        """(2, n) between the features as they are and perturbed ones, in each space: the numerators of eq. 1 and 3."""
        if recipe not in self._distance:
            moved = self._features(recipe)
            read = np.full(len(moved), np.nan)
            if self.head is not None and self.read is not None:
                read = _norm(self.read - head_read(self.head, moved))
            self._distance[recipe] = np.stack([_norm(self.z - moved), read])
        return self._distance[recipe]

    def _features(self, recipe: str) -> np.ndarray:
        moved = self.view.by_case(recipe)[2]
        if moved.shape != self.z.shape:
            raise DataError(f"{recipe!r} has shape {moved.shape} and features {self.z.shape}: extract them again")
        return moved


def _mismatch(operator: str, change: float, content: str, content_change: float) -> str:
    """Why a content operator is no match in pixel change, empty where it is one or nobody knows."""
    if change == 0:
        return f"{operator} changes no pixel"
    times = content_change / change
    if math.isnan(times) or MATCHED[0] <= times <= MATCHED[1]:
        return ""
    return f"{content} changes pixels {times:.2f} times as much"


def _norm(values: np.ndarray) -> np.ndarray:
    lengths: np.ndarray = np.linalg.norm(values, axis=1)
    return lengths


# ---- equations 2 to 4 ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BothSpaces:
    """Sensitivities of the features and of what the head reads.

    Attributes
    ----------
    family_draws : (B, 2, 2) S_nc and R_sc over all operators in every resample, by space
    """

    features: Sensitivities
    head: Sensitivities
    family_draws: np.ndarray


def sensitivities(perturbed: Perturbed, shifts: Sequence[Shift], sample: Resamples, level: float) -> BothSpaces:
    """S_nc, S_c and R_sc of every operator and of the family, in both spaces, with their intervals."""
    distances = Distances.of(shifts, perturbed.norm)
    point = distances.sensitivities(resampling.whole(sample.n))[0]
    draws = sample.apply(distances.sensitivities)
    return BothSpaces(
        features=_one_space(point[:, FEATURES], draws[:, :, FEATURES], level),
        head=_one_space(point[:, HEAD], draws[:, :, HEAD], level),
        family_draws=draws[..., -1][:, [S_NC, R_SC]].transpose(0, 2, 1),
    )


def _one_space(point: np.ndarray, draws: np.ndarray, level: float) -> Sensitivities:
    """From values (3, k + 1) and their resamples (B, 3, k + 1), the family last."""

    def operators(quantity: int) -> Intervals:
        return Intervals.of(point[quantity, :-1], draws[:, quantity, :-1], level)

    def family(quantity: int) -> Intervals:
        return Intervals.of(point[quantity, -1:], draws[:, quantity, -1:], level)

    return Sensitivities(
        s_nc=operators(S_NC),
        s_c=operators(S_C),
        r_sc=operators(R_SC),
        p=np.array([p_against(1.0, value, draws[:, R_SC, k]) for k, value in enumerate(point[R_SC, :-1])]),
        family_s_nc=family(S_NC).at(0),
        family_r_sc=family(R_SC).at(0),
    )


@dataclass(frozen=True)
class Distances:
    """Distances of every row as one matrix, so that one product serves all operators, spaces and resamples.

    Attributes
    ----------
    matrix : (n, 4 k + 2) nuisance distances by space and operator, content distances likewise, then the norm in each space;
        0 where undefined
    known : (4 k + 2,) columns that are defined
    """

    k: int
    matrix: np.ndarray
    known: np.ndarray

    @classmethod
    def of(cls, shifts: Sequence[Shift], norm: np.ndarray) -> Distances:
        k, n = len(shifts), norm.shape[1]
        nuisance = np.stack([shift.nuisance for shift in shifts], axis=1).reshape(2 * k, n)
        content = np.stack([shift.content for shift in shifts], axis=1).reshape(2 * k, n)
        matrix = np.concatenate([nuisance, content, norm]).T
        known = ~np.isnan(matrix).any(axis=0)
        return cls(k, np.where(known, matrix, 0.0), known)

    def sensitivities(self, counts: np.ndarray) -> np.ndarray:
        """(b, 3, 2, k + 1) S_nc, S_c and R_sc by space and operator, the family last, for resamples (b, n)."""
        k = self.k
        total = resampling.sums(counts, self.matrix)
        total[:, ~self.known] = np.nan
        norm = total[:, 4 * k :]
        scale = np.where(norm > 0, norm, np.nan)[:, :, None]
        s_nc = total[:, : 2 * k].reshape(-1, 2, k) / scale
        s_c = total[:, 2 * k : 4 * k].reshape(-1, 2, k) / scale
        # The family's ratio is that of means over operators that have both.
        compared = ~np.isnan(s_c)
        family_s_c = _mean_over(s_c, compared)
        family_r_sc = ratio(_mean_over(s_nc, compared), family_s_c)
        return np.stack(
            [
                np.concatenate([s_nc, s_nc.mean(axis=2)[:, :, None]], axis=2),
                np.concatenate([s_c, family_s_c[:, :, None]], axis=2),
                np.concatenate([ratio(s_nc, s_c), family_r_sc[:, :, None]], axis=2),
            ],
            axis=1,
        )


def _mean_over(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Mean over the last axis of what is chosen; NaN where nothing is."""
    mean = np.where(chosen, values, 0.0).sum(axis=2) / np.maximum(chosen.sum(axis=2), 1)
    return np.where(chosen.any(axis=2), mean, np.nan)
