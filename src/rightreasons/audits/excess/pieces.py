"""What `excess` measures of one model: a few named pieces."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rightreasons.measurements import spread
from rightreasons.stats.resampling import Interval

UNDEFINED = Interval(np.nan, np.nan, np.nan, reason="not measured")


@dataclass(frozen=True)
class Cells:
    """Rows of every (label, value) cell, k of them; `audit` rows fit the new head, `test` rows are reported on."""

    name: tuple[str, ...]
    audit: np.ndarray
    test: np.ndarray

    @property
    def smallest(self) -> int:
        return int(self.audit.min(initial=np.iinfo(np.int64).max))


@dataclass(frozen=True)
class Pulls:
    """The pull of the attribute on the model's answers, on those of the refitted head, and the difference, the excess.

    Attributes
    ----------
    p : that the excess is 0, two-sided
    draws : (B,) pull of the model in every resample; models that are measured alike share the resamples
    """

    model: Interval = UNDEFINED
    refitted: Interval = UNDEFINED
    excess: Interval = UNDEFINED
    p: float = np.nan
    draws: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Heads:
    """How well both heads do: share decided right, mean over the cells, and how strongly answers follow the label there."""

    model: Interval = UNDEFINED
    refitted: Interval = UNDEFINED
    label_effect: Interval = UNDEFINED
    chance: float = np.nan
    penalty: float = np.nan


@dataclass(frozen=True)
class ByLabel:
    """The pull of every value within every label, k of them, for both heads: (k,) each."""

    name: tuple[str, ...] = ()
    model: np.ndarray = field(default_factory=lambda: np.zeros(0))
    model_low: np.ndarray = field(default_factory=lambda: np.zeros(0))
    model_high: np.ndarray = field(default_factory=lambda: np.zeros(0))
    refitted: np.ndarray = field(default_factory=lambda: np.zeros(0))
    refitted_low: np.ndarray = field(default_factory=lambda: np.zeros(0))
    refitted_high: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Within:
    """Every attribute within all others, this one first, k of them: pull and excess with limits, (k, 3) each.

    Attributes
    ----------
    association : (k,) how strongly each goes with this attribute within the labels of the test rows (Cramér's V); one that goes
        with it only because both go with the label cannot stand in for it, because pulls are compared within labels
    reason : why there is nothing, where there is nothing
    left_out : attributes with too many values, or too few rows of one
    """

    name: tuple[str, ...] = ()
    pull: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    excess: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    association: np.ndarray = field(default_factory=lambda: np.zeros(0))
    reason: str = ""
    left_out: tuple[str, ...] = ()

    def pull_of(self, k: int) -> Interval:
        value, low, high = map(float, self.pull[k])
        return Interval(value, low, high)

    def excess_of(self, k: int) -> Interval:
        value, low, high = map(float, self.excess[k])
        return Interval(value, low, high)


@dataclass(frozen=True)
class Shown:
    """Whether the recorded attribute is what the features show; asked of attributes with two values.

    Attributes
    ----------
    low, high : share of rows recorded as the second value though they plainly show the first, and the other way round
    otherwise : mean of both
    ratio : twice the log likelihood that these two shares add to a readout without them
    followed : pull of what the features show, among rows that are recorded alike
    record_followed : pull of the record, among rows that show the same
    reason : why it was not asked, where it was not
    """

    low: Interval = UNDEFINED
    high: Interval = UNDEFINED
    otherwise: Interval = UNDEFINED
    ratio: float = np.nan
    followed: Interval = UNDEFINED
    record_followed: Interval = UNDEFINED
    reason: str = ""


@dataclass(frozen=True)
class Pictures:
    """Test images that the two heads answer differently, (k, h, w, 3), with captions and how far apart the answers are."""

    pixels: np.ndarray = field(default_factory=lambda: np.zeros((0, 1, 1, 3), np.uint8))
    captions: tuple[str, ...] = ()
    apart: np.ndarray = field(default_factory=lambda: np.zeros(0))
    reason: str = ""


@dataclass(frozen=True)
class Measurement:
    """The excess of one model.

    Attributes
    ----------
    aligned, aligned_from : which label each value stands for, and where that comes from
    cut : how a number was cut into levels, in words; empty where the attribute has levels
    prevalence : how much more frequent a label is, in the training rows, with the value that stands for it
    annotation : the pull of the labels themselves, within the adjudicated ones; undefined where there are none
    changed : test rows that the two heads decide differently
    reason : why there is no refitted head, where there is none
    """

    model: str
    attribute: str
    n: int
    n_audit: int
    n_subjects: int | None
    missing: int
    aligned: str
    aligned_from: str
    cut: str
    training_known: bool
    cells: Cells
    pulls: Pulls
    heads: Heads
    by_label: ByLabel
    within: Within
    shown: Shown
    prevalence: Interval
    annotation: Interval
    changed: int
    pictures: Pictures
    reason: str

    def scalars(self) -> dict[str, float | int | str]:
        return {
            "attribute": self.attribute,
            "n": self.n,
            "p": self.pulls.p,
            **spread("excess", self.pulls.excess),
            **spread("pull", self.pulls.model),
            **spread("refitted", self.pulls.refitted),
        }
