"""What ShorT measures of one model, as data: how much it encodes, how well it performs, how fair it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rightreasons.measurements import spread
from rightreasons.stats.resampling import Interval

FLIPS = "counterfactual gap"
SIGNED = "signed disparity"
SHAPE = "along the shape"  # of the association, where a number goes with the label in no straight line


@dataclass(frozen=True)
class Encoding:
    """How well the attribute is read from the frozen features ("Assessing the encoding of demographic information").

    Attributes
    ----------
    unit : "AUC", or "MAE", the mean absolute error, of which less is more encoding
    within, marginal : within the label, which decides, and over all rows, the paper's
    p : of an encoding within the label that is this strong, when test rows exchange the attribute
    chance, no_information, label_alone : the encoding of no information within the label; of none over all rows; of the label
        alone over all rows
    draws, marginal_draws : (B,)
    n_fit, fit_on : how many rows of which cohort the readout was fitted on
    """

    unit: str
    within: Interval
    marginal: Interval
    p: float
    chance: float
    no_information: float
    label_alone: float
    draws: np.ndarray
    marginal_draws: np.ndarray
    n_fit: int
    fit_on: str
    converged: bool

    @property
    def orientation(self) -> int:
        """1 where more is more encoding, -1 for an error."""
        return -1 if self.unit == "MAE" else 1


@dataclass(frozen=True)
class Performance:
    """AUC with its draws (B,), and how probabilities became decisions; `threshold` is NaN where the top outputs decide."""

    auc: Interval
    draws: np.ndarray
    threshold: float
    decided: str


@dataclass(frozen=True)
class Fairness:
    """Every fairness metric, m of them ("Assessing fairness"); none for a model that predicts the attribute.

    Attributes
    ----------
    metrics : names; the last `n_signed` are signed disparities, one per attribute value (or per unit)
    value, low, high, p : (m,); p of the metric itself under exchange of the attribute
    reason : why a metric is undefined
    draws, null : (m, B) over resamples, (m, P) over exchanges
    no_exchange : why the attribute cannot be exchanged within label
    monotone : (2,) p of a U at label 1 and 0 (continuous attributes)
    """

    metrics: tuple[str, ...]
    n_signed: int
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray
    reason: tuple[str, ...]
    draws: np.ndarray
    null: np.ndarray
    no_exchange: str
    monotone: np.ndarray

    @property
    def n_unsigned(self) -> int:
        return len(self.metrics) - self.n_signed

    @property
    def signed(self) -> tuple[str, ...]:
        """Names of the signed disparities."""
        return self.metrics[self.n_unsigned :]

    def level(self, signed: int) -> str:
        """The attribute value that a signed disparity is about; empty where there is only one."""
        return self.metrics[self.n_unsigned + signed].partition(": ")[2]


@dataclass(frozen=True)
class Association:
    """Whether and which way label and attribute go together in training, for each signed disparity.

    Attributes
    ----------
    answer : "there", "small" or "not known"; "given" where the direction was, "unknown" where training rows are
    sign : (n_signed,) 1, -1, 0 where none is shown, NaN where nothing is known
    estimate : (n_signed, 3) log odds ratio with its simultaneous interval (of a number for two standard deviations)
    p : (n_signed,) adjusted for their number
    units : subjects of the training rows, rows where those are not known; 0 without training rows
    source : where it comes from
    """

    answer: str
    sign: np.ndarray
    estimate: np.ndarray
    p: np.ndarray
    units: int
    source: str

    @property
    def is_there(self) -> bool | None:
        """None where it is not known."""
        return {"there": True, "given": True, "small": False}.get(self.answer)

    @property
    def has_sign(self) -> np.ndarray:
        """(n_signed,) which of the signed disparities have a direction."""
        return np.isin(self.sign, (-1.0, 1.0))


@dataclass(frozen=True)
class Subgroup:
    """The smallest subgroup of the test rows, by label and attribute value or quartile."""

    size: int
    name: str


@dataclass(frozen=True)
class Distribution:
    """Training rows by label and attribute value or bin, (2, k), with the names of the values or the centres of the bins."""

    count: np.ndarray
    names: tuple[str, ...]


@dataclass(frozen=True)
class Measurement:
    """One model of a family; B resamples and P exchanges are the same for all models over the same rows.

    Attributes
    ----------
    scale : of the attribute's gradient in training; NaN where the model was not trained by gradient scaling
    target : the column that it predicts, empty for the label; a model of another column has only its encoding
    rows : hash of the test rows with their label and attribute
    trained_on : hash of the training rows, empty where those are not known
    spreads : (n_signed,) standard deviation in the test rows of what each signed disparity is a slope on; NaN of a difference
    """

    model: str
    regime: str
    architecture: str
    seed: int | None
    scale: float
    target: str
    attribute: str
    kind: str
    label_name: str
    positive: str
    rows: str
    n: int
    n_subjects: int | None
    missing: int
    encoding: Encoding
    performance: Performance
    fairness: Fairness
    association: Association
    smallest: Subgroup
    training: Distribution
    trained_on: str
    spreads: np.ndarray

    @property
    def strength(self) -> float:
        """Encoding within the label, oriented so that more is more."""
        return self.encoding.within.value * self.encoding.orientation

    def scalars(self) -> dict[str, float | int | str]:
        """What a study's table shows of it."""
        columns: dict[str, float | int | str] = {"attribute": self.attribute, "scale": self.scale, "n": self.n}
        columns |= spread("encoding", self.encoding.within) | spread("encoding_marginal", self.encoding.marginal)
        if not self.target:
            columns |= spread("auc", self.performance.auc)
            for name, value in zip(self.fairness.metrics, self.fairness.value, strict=True):
                columns[name.replace(" ", "_")] = float(value)
        return columns
