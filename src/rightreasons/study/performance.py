"""How well one model does on the internal test rows and on external cohorts, with bootstrap distributions (sdi-ccr, sec. IV-K).

Rows are resampled with the same draws for every model; a degradation is the difference of an internal and an external draw
(coupled resampling, eq. 18).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rightreasons.evidence import Decisions
from rightreasons.measurements import spread
from rightreasons.stats import calibration, groups
from rightreasons.stats.resampling import interval, resamples, task_rng, whole

INTERNAL = "test"
METRICS = ("auc", "accuracy", "ece", "brier")
BETTER = np.array([1, 1, -1, -1])  # whether a larger value is the better one, so that a degradation is always positive


@dataclass(frozen=True)
class Performance:
    """Metrics by cohort.

    Attributes
    ----------
    cohort : (k,) names, the internal one first
    size : (k,) decisions that have a label
    value : (k, 4) the metrics named in METRICS
    draws : (k, B, 4) their bootstrap distributions
    degradation : (k - 1, B, 4) of each external cohort, draw by draw (eq. 18), positive where it does worse than the
        internal one: ΔAUC = internal - external, ΔECE = external - internal
    level : of the intervals
    """

    cohort: tuple[str, ...]
    size: np.ndarray
    value: np.ndarray
    draws: np.ndarray
    degradation: np.ndarray
    level: float

    def scalars(self) -> dict[str, float | int | str]:
        """Columns `test_auc`, `test_auc_low`, `test_auc_high`, …; and of an external cohort also `siteb_delta_auc`, …"""
        columns: dict[str, float | int | str] = {}
        for k, name in enumerate(self.cohort):
            columns[f"{name}_n"] = int(self.size[k])
            for m, metric in enumerate(METRICS):
                columns |= spread(f"{name}_{metric}", interval(self.value[k, m], self.draws[k, :, m], self.level))
                if k:
                    lost = BETTER[m] * (self.value[0, m] - self.value[k, m])
                    columns |= spread(f"{name}_delta_{metric}", interval(lost, self.degradation[k - 1, :, m], self.level))
        return columns


def performance(cohorts: Mapping[str, Decisions], *, seed: int = 0, B: int = 2_000, level: float = 0.95) -> Performance:
    """AUC, accuracy, ECE and Brier score of every cohort; rows without a label leave.

    Parameters
    ----------
    cohorts : decisions by name, the internal one first
    B : resamples
    """
    by_cohort = [_one(name, decisions, seed, B) for name, decisions in cohorts.items()]
    size, value, draws = (np.stack(part) for part in zip(*by_cohort, strict=True))
    return Performance(tuple(cohorts), size, value, draws, BETTER * (draws[:1] - draws[1:]), level)


def _one(name: str, decisions: Decisions, seed: int, B: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = decisions.select(np.flatnonzero(decisions.label >= 0))
    n, label, p = len(rows.label), rows.label, rows.probability
    if not n:
        return np.array(0), np.full(4, np.nan), np.full((B, 4), np.nan)
    guess = p.argmax(axis=1)

    def metrics(counts: np.ndarray) -> np.ndarray:
        drawn = (
            groups.auc_draws(label, p, counts),
            groups.accuracy_draws(label, guess, counts),
            calibration.ece_draws(p, label, counts),
            calibration.brier_draws(p, label, counts),
        )
        return np.stack(drawn, axis=1)

    sample = resamples(n, rng=task_rng(seed, f"performance {name}"), B=B, subject=rows.cohort.subject)
    return np.array(n), metrics(whole(n))[0], sample.apply(metrics)
