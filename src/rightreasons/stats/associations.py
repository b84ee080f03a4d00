"""Does an attribute go with the label? There, surely small, or not known: by subject, over all values, whatever the shape.

A shortcut needs an association to exploit, and a family of models follows the association that its training rows happen to have.
So this asks for more certainty than usual before it says `there`, and it says `small` only where the interval leaves no room for
more. Subjects enter by the design effect of the score: rows of one subject tell less than as many rows of different subjects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.stats import chi2, ncx2
from scipy.stats import t as student

from rightreasons.errors import DataError, SettingError
from rightreasons.stats.firth import firth_fit
from rightreasons.stats.resampling import subject_codes

Floats = NDArray[np.float64]
Answer = Literal["there", "small", "not known"]

SHAPE_BINS = 5  # of a number, of equal size: enough for a U, a step and a wave
FEWEST_CLUSTERS = 3


@dataclass(frozen=True)
class Rules:
    """When an association is called there, and when surely small.

    Parameters
    ----------
    sure : confidence that it takes to call an association there, over all values together
    small : odds ratio (of a value against the rest; of a number two standard deviations apart) below which it is small
    level : confidence of the interval that must lie within it
    """

    sure: float = 0.99
    small: float = 1.5
    level: float = 0.95

    def __post_init__(self) -> None:
        if not 0.5 < self.sure < 1 or not 0.5 < self.level < 1 or not self.small > 1:
            raise SettingError(f"sure={self.sure}, level={self.level}, small={self.small}: give confidences and a ratio above 1")


@dataclass(frozen=True)
class Shape:
    """How often the label is positive over the range of a number, which need not be a slope.

    Attributes
    ----------
    edges : (k - 1,) that part the number into k bins
    log_odds : (k,) of the positive label in each of them
    """

    edges: Floats
    log_odds: Floats

    def __call__(self, attribute: ArrayLike) -> Floats:
        """The log odds that the training rows give to each value, (n,)."""
        return self.log_odds[np.searchsorted(self.edges, np.asarray(attribute, dtype=np.float64), side="right")]


@dataclass(frozen=True)
class Associations:
    """What the rows say of each value against the rest, or of a number's slope and of its shape.

    Attributes
    ----------
    answer : of all of them together
    value, low, high : (k,) log odds ratio with its interval, simultaneous over the k; of a number for two standard deviations.
        A shape has none
    p : (k,) adjusted for their number (Bonferroni)
    sign : (k,) 1 or -1 where there; 0 where not. A shape has 1, and only where the slope has none: it is along itself
    answers : (k,) one by one
    units : subjects, or rows where those are not known
    design_effect : by how much subjects widen the variance, at most over the k
    """

    answer: Answer
    value: Floats
    low: Floats
    high: Floats
    p: Floats
    sign: Floats
    answers: tuple[Answer, ...]
    units: int
    design_effect: float
    shape: Shape | None = None
    reason: str = ""


def of_values(
    label: ArrayLike, attribute: ArrayLike, levels: int, *, subject: ArrayLike | None = None, rules: Rules | None = None
) -> Associations:
    """Of a categorical attribute: codes (n,) in 0 … levels - 1 against a label (n,) of 0 and 1; of two values only the second.

    A table with an empty cell has 1/2 added everywhere: total agreement is an association, not an undefined one.
    """
    rules = rules or Rules()
    y, a, cluster = _columns(label, attribute, subject)
    compared = [1] if levels == 2 else list(range(levels))
    tests = [_of_indicator(y, a == k, cluster) for k in compared]
    return _answered(tests, rules, math.log(rules.small), len(np.unique(cluster)))


def of_number(
    label: ArrayLike, attribute: ArrayLike, *, subject: ArrayLike | None = None, rules: Rules | None = None
) -> Associations:
    """Of a number: its slope, and its shape by bins of equal size, which also finds a U."""
    rules = rules or Rules()
    y, a, cluster = _columns(label, attribute, subject)
    tests = [_of_slope(y, a, cluster), _of_shape(y, a, cluster, rules)]
    found = _answered(tests, rules, math.log(rules.small), len(np.unique(cluster)))
    sign = found.sign.copy()
    sign[1] = 1.0 if found.answers[1] == "there" and sign[0] == 0 else 0.0
    bins = _bins(a)
    return Associations(**{**vars(found), "sign": sign, "shape": None if bins is None else _shape(y, a, bins)})


# ---- one test ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _One:
    """A log odds ratio with its standard error, or for a shape its p and the largest ratio that is compatible with it."""

    value: float
    error: float
    df: float
    effect: float  # of the design
    p: float
    largest: float = math.nan


NOTHING = _One(math.nan, math.nan, math.nan, 1.0, math.nan)


def _of_indicator(y: NDArray[np.int64], is_it: NDArray[np.bool_], cluster: NDArray[np.int64]) -> _One:
    """Log odds ratio of the label between rows of a value and the rest."""
    table = np.array([[np.sum(is_it & (y == k)) for k in (0, 1)], [np.sum(~is_it & (y == k)) for k in (0, 1)]], dtype=float)
    if not table.sum(axis=0).all() or not table.sum(axis=1).all():
        return NOTHING
    if (table == 0).any():
        table = table + 0.5
    value = math.log(table[0, 1] * table[1, 0] / (table[0, 0] * table[1, 1]))
    effect, df = _design_effect(y, is_it.astype(np.float64), cluster)
    error = math.sqrt(effect * (1 / table).sum())
    return _One(value, error, df, effect, float(2 * student.sf(abs(value) / error, df)))


def _of_slope(y: NDArray[np.int64], a: Floats, cluster: NDArray[np.int64]) -> _One:
    """Log odds ratio of the label between rows two standard deviations apart; Firth's fit is there in every sample."""
    if len(np.unique(y)) < 2 or len(np.unique(a)) < 2:
        return NOTHING
    fit = firth_fit((a - a.mean()) / (2 * a.std()), y)
    effect, df = _design_effect(y, a, cluster)
    error = fit.error * math.sqrt(effect)
    return _One(fit.slope, error, df, effect, float(2 * student.sf(abs(fit.slope) / error, df)))


def _of_shape(y: NDArray[np.int64], a: Floats, cluster: NDArray[np.int64], rules: Rules) -> _One:
    """Chi-square of label against bins, divided by its mean design effect (Rao and Scott 1981)."""
    edges = _bins(a)
    if edges is None or len(np.unique(y)) < 2:
        return NOTHING
    code = np.searchsorted(edges, a, side="right")
    number = np.bincount(code, minlength=len(edges) + 1).astype(np.float64)
    share, positive = y.mean(), np.bincount(code, y, minlength=len(edges) + 1)
    chi = float((((positive - number * share) ** 2) / (number * share * (1 - share))).sum())
    effects = [_design_effect(y, (code == k).astype(np.float64), cluster)[0] for k in range(len(number))]
    effect, df = float(np.average(effects, weights=1 - number / len(y))), len(number) - 1
    if math.isinf(effect):
        return NOTHING
    # Divided by the odds' own scale, the noncentrality is the squared log odds ratio of two standard deviations of the shape.
    upper = _largest_noncentrality(chi / effect, df, rules.level)
    largest = 2 * math.sqrt(upper * effect / len(y) / (share * (1 - share)))
    return _One(math.nan, math.nan, df, effect, float(chi2.sf(chi / effect, df)), largest)


def _largest_noncentrality(chi: float, df: int, level: float) -> float:
    """The largest noncentrality that a chi-square this small is still compatible with."""
    tail = (1 - level) / 2

    def below(noncentrality: float) -> float:
        return float(ncx2.cdf(chi, df, noncentrality)) - tail

    if chi2.cdf(chi, df) <= tail:
        return 0.0
    return float(brentq(below, 1e-9, 4 * (chi + 40 * df)))


def _design_effect(y: NDArray[np.int64], x: Floats, cluster: NDArray[np.int64]) -> tuple[float, float]:
    """Variance of the score with its subjects over that with all rows by themselves (at least 1), and degrees of freedom."""
    score = (y - y.mean()) * (x - x.mean())
    score = score - score.mean()
    sums = np.bincount(cluster, score)
    clusters = len(sums)
    alone = float(score @ score)
    if clusters == len(y):
        return 1.0, max(1.0, len(y) - 2.0)
    if clusters < FEWEST_CLUSTERS:
        return math.inf, 1.0
    if alone == 0:  # label and attribute agree in every row: each subject tells as much as one
        return len(y) / clusters, clusters - 1.0
    return max(1.0, float(sums @ sums) / alone * clusters / (clusters - 1)), clusters - 1.0


# ---- the answer ----------------------------------------------------------------------------------------------------------


def _answered(tests: list[_One], rules: Rules, bound: float, units: int) -> Associations:
    known = [test for test in tests if not math.isnan(test.p)]
    count = max(1, len(known))
    value, p = (np.array([getattr(test, name) for test in tests]) for name in ("value", "p"))
    low, high = np.array([_limits(test, 1 - (1 - rules.level) / count) for test in tests]).T
    p = np.minimum(1.0, p * count)
    answers = tuple(
        _answer(float(p[k]), float(low[k]), float(high[k]), test.largest, bound, rules) for k, test in enumerate(tests)
    )
    sign = np.array([float(np.sign(v)) if a == "there" else 0.0 for v, a in zip(np.nan_to_num(value), answers, strict=True)])
    kinds = {answer for answer, test in zip(answers, tests, strict=True) if not math.isnan(test.p)}
    together: Answer = "there" if "there" in kinds else "small" if kinds == {"small"} else "not known"
    effect = max((test.effect for test in known), default=1.0)
    reason = "" if known else "one label or one attribute value"
    return Associations(together, value, low, high, p, sign, answers, units, effect, reason=reason)


def _limits(test: _One, level: float) -> tuple[float, float]:
    if math.isnan(test.error):
        return math.nan, math.nan
    reach = float(student.ppf((1 + level) / 2, test.df)) * test.error
    return test.value - reach, test.value + reach


def _answer(p: float, low: float, high: float, largest: float, bound: float, rules: Rules) -> Answer:
    if p < 1 - rules.sure:
        return "there"
    room = largest if math.isnan(low) else max(-low, high)
    return "small" if room < bound else "not known"


# ---- what is given -------------------------------------------------------------------------------------------------------


def _columns(
    label: ArrayLike, attribute: ArrayLike, subject: ArrayLike | None
) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    y, a = np.asarray(label, dtype=np.int64), np.asarray(attribute, dtype=np.float64)
    if y.shape != a.shape or y.ndim != 1 or not set(np.unique(y).tolist()) <= {0, 1} or np.isnan(a).any():
        raise DataError(f"found labels {y.shape} and attribute {a.shape}; expected (n,) of 0 and 1, and (n,) without gaps")
    cluster = np.arange(len(y)) if subject is None else subject_codes(subject)
    if len(cluster) != len(y):
        raise DataError(f"found {len(cluster)} subjects for {len(y)} rows; give one subject for every row")
    return y, a, cluster


def _bins(a: Floats) -> Floats | None:
    """Edges of bins of equal size, fewer where values are tied; None where fewer than three are left."""
    edges = np.unique(np.quantile(a, np.linspace(0, 1, SHAPE_BINS + 1)[1:-1]))
    edges = edges[(edges > a.min()) & (edges <= a.max())]
    return edges if len(edges) >= 2 else None


def _shape(y: NDArray[np.int64], a: Floats, edges: Floats) -> Shape:
    code = np.searchsorted(edges, a, side="right")
    number = np.bincount(code, minlength=len(edges) + 1)
    positive = np.bincount(code, y, minlength=len(edges) + 1)
    return Shape(edges, np.log((positive + 0.5) / (number - positive + 0.5)))
