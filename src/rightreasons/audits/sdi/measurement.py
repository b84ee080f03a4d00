"""What SDI measures of one model, in pieces named after the paper's three probes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rightreasons.stats.resampling import Interval, interval, limits_of

SPACES = ("features", "what the head reads")
FEATURES, HEAD = 0, 1  # places in SPACES


@dataclass(frozen=True)
class Intervals:
    """Values with their limits, each (k,)."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, draws: np.ndarray, level: float) -> Intervals:
        """From values (k,) and their resamples (B, k)."""
        intervals = [interval(value, draws[:, k], level) for k, value in enumerate(values)]
        value, low, high = limits_of(intervals).T
        return cls(value, low, high)

    @classmethod
    def undefined(cls, k: int) -> Intervals:
        return cls(np.full(k, np.nan), np.full(k, np.nan), np.full(k, np.nan))

    def at(self, k: int, reason: str = "") -> Interval:
        """One of them; `reason` says why it is undefined, where it is."""
        value = float(self.value[k])
        return Interval(value, float(self.low[k]), float(self.high[k]), reason=reason if math.isnan(value) else "")


@dataclass(frozen=True)
class Calibration:
    """Where the severities come from.

    Attributes
    ----------
    calibrated : False for reference severities that no baseline has seen
    excluded : operators that the calibration ruled out, each with its reason
    unresolved : operators that cost the baseline AUC for an unknown reason
    missing : operators whose features were not extracted
    """

    calibrated: bool
    baseline: str
    excluded: tuple[str, ...]
    unresolved: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Operators:
    """The k nuisance operators that the model was put under, each beside its content operators.

    Attributes
    ----------
    resolved : (k,) False where the operator costs the baseline AUC for an unknown reason
    content : the content operators that each is compared with
    change, content_change : (k,) RMS pixel change under the operator and (mean) under its content operators; NaN if not stored
    uncompared : why an operator has no R_sc, empty where it has one
    """

    name: tuple[str, ...]
    severity: np.ndarray
    status: tuple[str, ...]
    resolved: np.ndarray
    content: tuple[str, ...]
    change: np.ndarray
    content_change: np.ndarray
    uncompared: tuple[str, ...]


@dataclass(frozen=True)
class Sensitivities:
    """Probes 1 and 2 in one space, the features or what the head reads (sec. III-A2 and III-A3).

    Attributes
    ----------
    s_nc, s_c, r_sc : (k,) eq. 2, 3 and 4 of every operator
    p : (k,) of R_sc = 1, two-sided, from the bootstrap
    family_s_nc, family_r_sc : over all operators; they decide nothing
    """

    s_nc: Intervals
    s_c: Intervals
    r_sc: Intervals
    p: np.ndarray
    family_s_nc: Interval
    family_r_sc: Interval


@dataclass(frozen=True)
class Probe:
    """Probe 3: can the cue be read from the features, and can it still be under each operator (sec. III-A4)?

    Attributes
    ----------
    auc : AUC_nc on held-out rows; concordance for a continuous cue
    clean : the AUC that an operator's is compared with: within the label where every label has two values of the cue
    within : whether it is
    drop : (k,) fall of that AUC under the operator
    n_audit, n_cue : audit rows that the probe is fitted on, and test rows that it is read on
    """

    auc: Interval
    clean: Interval
    within: bool
    drop: Intervals
    n_audit: int
    n_cue: int
    converged: bool


@dataclass(frozen=True)
class CueEffect:
    """How far predictions differ with the cue, and what each operator takes of that.

    Attributes
    ----------
    cue, label : how far predictions differ with the cue within the label, and with the label within the cue
    left_cue, left_label : (k,) the same under the operator
    taken : (k,) what the operator takes of the cue's effect beyond what it takes of the label's
    p : (k,) of `taken` at most `judge.TOLERATED`, from the bootstrap
    reason : why all of this is undefined, empty where it is not
    """

    cue: Interval
    label: Interval
    left_cue: Intervals
    left_label: Intervals
    taken: Intervals
    p: np.ndarray
    reason: str


@dataclass(frozen=True)
class Measurement:
    """One model under every operator.

    Attributes
    ----------
    attribute : the cue column; empty where the cue is a border inserted in a random half of the rows
    component_draws : (B, 2, 3) the components in every resample
    """

    model: str
    attribute: str
    continuous: bool
    n: int
    n_subjects: int | None
    calibration: Calibration
    operators: Operators
    features: Sensitivities
    head: Sensitivities
    probe: Probe
    effect: CueEffect
    component_draws: np.ndarray

    @property
    def calibrated(self) -> bool:
        return self.calibration.calibrated

    @property
    def spaces(self) -> tuple[Sensitivities, Sensitivities]:
        """In the order of `SPACES`."""
        return self.features, self.head

    @property
    def components(self) -> np.ndarray:
        """(2, 3) S_nc, R_sc and AUC_nc over all operators, in each space: what the index combines (eq. 5)."""
        return np.array([[s.family_s_nc.value, s.family_r_sc.value, self.probe.auc.value] for s in self.spaces])

    def scalars(self) -> dict[str, float | int | str]:
        """The raw components and every operator's sensitivity and ratio, for a row of a table."""
        columns: dict[str, float | int | str] = {"attribute": self.attribute, "n": self.n, "auc_nc": self.probe.auc.value}
        for name, space in (("features", self.features), ("head", self.head)):
            columns |= {f"s_nc_{name}": space.family_s_nc.value, f"r_sc_{name}": space.family_r_sc.value}
            for k, operator in enumerate(self.operators.name):
                columns[f"s_nc_{name}_{operator}"] = float(space.s_nc.value[k])
                columns[f"r_sc_{name}_{operator}"] = float(space.r_sc.value[k])
        return columns
