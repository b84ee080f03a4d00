"""Pull: do predictions follow the attribute where the label does not?

How much more probable a label is where the attribute stands for it, within the label, averaged over labels. A model that uses a
cue is drawn the same way whatever the label; images that are merely harder in one group are drawn away from their own label, and
that cancels. It needs nothing but decisions, and in planted worlds it follows the change that an intervention on the cue makes
(docs/calibration.md). What it cannot tell apart: an attribute that goes with how strongly the label shows (the sicker patients
lie in one ward) draws a model that reads the right thing. That is why other audits change the cue, or look where the model looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rightreasons.audits._alignment import say_alignment
from rightreasons.audits._conditions import complete_rows, enough_rows, has_direction, training_rows_known
from rightreasons.audits._contract import Context, Need, OneModelResult, Role
from rightreasons.audits._following import NO_SIDES, Pull, formula_intervals, pull_interval, pull_of
from rightreasons.evidence import Evidence
from rightreasons.findings import Bars, Check, Estimate, Exhibit, Row, Verdict
from rightreasons.measurements import spread
from rightreasons.stats import groups, totals
from rightreasons.stats.exchanged_pull import crossed_pull_null, pull_null
from rightreasons.stats.resampling import Interval, exchange_within_label, limits_of, p_value, sequential_p

QUESTION = "Do predictions follow the attribute where the label does not?"
ROW: Row = "behaviour"
TOLERANCE = 0.05  # what a pull must exceed to count
SEEN = 0.1  # what must be excluded before there is no evidence of one
FEWEST = 30  # test rows


def needs() -> tuple[Need, ...]:
    """Logits of the test rows; of audit rows to learn in which direction to look where the training rows do not say."""
    return (Need("test", "test", "logits"), Need("test", "audit", "logits", optional=True))


def roles() -> tuple[Role, ...]:
    return ()


# ---- measuring -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByLabel:
    """The pull of every value within every label, k of them.

    Attributes
    ----------
    name : "label, value → the label it stands for"
    value, low, high : (k,)
    """

    name: tuple[str, ...]
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Measurement:
    """The pull of an attribute on one model's predictions, overall and label by label.

    Attributes
    ----------
    p : of a permutation of the attribute within the label, two-sided; `no_p` says why there is none
    aligned, aligned_from : which label each value stands for, and where that comes from
    """

    model: str
    attribute: str
    n: int
    n_subjects: int | None
    missing: int
    pull: Interval
    p: float
    no_p: str
    aligned: str
    aligned_from: str
    training_known: bool
    by_label: ByLabel

    def scalars(self) -> dict[str, float | int | str]:
        return {"attribute": self.attribute, "n": self.n, "p": self.p, **spread("pull", self.pull)}


def measure(
    evidence: Evidence,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    aligned: Mapping[Any, Any] | None = None,
    B: int = 10_000,
    permutations: int = 2_000,
    level: float = 0.95,
) -> Measurement:
    """The pull on test rows.

    Parameters
    ----------
    aligned : attribute value → the label it stands for; learnt as in `groups` by default, where the training rows show none
        from the audit rows, and without those by each half of the test rows for the other
    B : resamples, of subjects where they are known
    permutations : of the attribute within the label
    """
    pull = pull_of(evidence, attribute, aligned, rng=rng, B=B, level=level, by_halves=True)
    p, no_p = permutation_p(pull, permutations, rng)
    return Measurement(
        model=evidence.card.name,
        attribute=pull.attribute.name,
        n=len(pull.rows.label),
        n_subjects=None if pull.rows.cohort.subject is None else pull.sample.units,
        missing=pull.missing,
        pull=pull.interval,
        p=p,
        no_p=no_p,
        aligned=say_alignment(pull.aligned, pull.attribute, evidence),
        aligned_from=pull.source,
        training_known=evidence.training is not None,
        by_label=pull_by_label(evidence, pull, level),
    )


def permutation_p(pull: Pull, permutations: int, rng: np.random.Generator) -> tuple[float, str]:
    """Two-sided p when rows of one label exchange the attribute, and why there is none."""
    rows, values = pull.rows, pull.attribute.values
    exchange = exchange_within_label(rows.label, values, rows.cohort.subject)
    if exchange.reason or np.isnan(pull.interval.value):
        return np.nan, exchange.reason
    if totals.is_large(len(values)):
        if pull.crossed is None:
            drawn = pull_null(rows.label, rows.probability, values, pull.aligned, exchange, rng=rng, B=permutations)
        else:
            drawn = crossed_pull_null(rows.label, rows.probability, values, pull.crossed.half, exchange, rng=rng, B=permutations)
        return sequential_p(pull.interval.value, drawn, permutations), ""
    null = []
    for order in exchange.permutations(permutations, rng):
        null.append(pull.among(values[order]))
    return p_value(pull.interval.value, null), ""


def pull_by_label(evidence: Evidence, pull: Pull, level: float) -> ByLabel:
    """The pull within every label: where one label is drawn along and another is not, there is no shortcut."""
    rows, a = pull.rows, pull.attribute
    levels, classes = dict(enumerate(a.levels)), dict(enumerate(evidence.card.classes))
    sides = [(value, towards, y) for value, towards in pull.aligned.items() for y in np.unique(rows.label)]
    names = [f"label {classes[y]}: {levels[value]} → {classes[towards]}" for value, towards, y in sides]  # type: ignore[index]
    if sides and totals.is_large(len(rows.label)):
        parts = [groups.pull_formula(rows.label, rows.probability, a.values, {v: t}, only=int(y)) for v, t, y in sides]
        intervals = formula_intervals(parts, pull.sample, level, NO_SIDES)
    else:
        intervals = []
        for value, towards, y in sides:
            only_this_label = np.where(rows.label == y, 0, -1)
            intervals.append(
                pull_interval(only_this_label, rows.probability, a.values, {value: towards}, pull.sample, level, NO_SIDES)
            )
    return ByLabel(tuple(names), *limits_of(intervals).T)


# ---- saying --------------------------------------------------------------------------------------------------------------


def conclude(
    measurements: Mapping[str, Sequence[Measurement]],
    *,
    rng: np.random.Generator,
    tolerance: float = TOLERANCE,
    seen: float = SEEN,
) -> Result:
    """`shortcut` where the lower limit exceeds `tolerance`, `no evidence` where the upper one lies below `seen`."""
    models = tuple(measurements["test"])
    first = models[0]
    context = Context(attribute=first.attribute, n_rows=first.n, n_subjects=first.n_subjects)
    return Result(models, context, tolerance=tolerance, seen=seen)


@dataclass(frozen=True)
class Result(OneModelResult[Measurement]):
    """What the pull says of one model."""

    question: ClassVar[str] = QUESTION
    row: ClassVar[Row] = ROW

    tolerance: float = TOLERANCE
    seen: float = SEEN

    @property
    def verdict(self) -> Verdict:
        m = self.first
        if m.n < FEWEST or np.isnan(m.pull.low):
            return "inconclusive"
        if m.pull.low > self.tolerance:
            return "shortcut"
        if m.pull.high < self.seen:
            return "no evidence"
        return "inconclusive"

    def sentence(self, m: Measurement) -> str:
        if m.n < FEWEST:
            return f"Only {m.n} test rows have a label and “{m.attribute}”; at least {FEWEST} are needed to judge."
        if np.isnan(m.pull.low):
            return f"There is no pull to judge: {m.pull.reason}."
        how = f"Within a label, predictions lie {m.pull:.3f} nearer to what “{m.attribute}” stands for"
        if self.verdict == "shortcut":
            return f"{how}: they follow it."
        if self.verdict == "inconclusive":
            return f"{how}: neither beyond {self.tolerance:g} nor surely below {self.seen:g}."
        if m.pull.high < -self.tolerance:
            return f"{how}: they move against it, which is not a shortcut."
        return f"{how}: they do not follow it."

    def estimates(self, m: Measurement) -> tuple[Estimate, ...]:
        p = None
        if not np.isnan(m.p):
            p = m.p
        return (Estimate.of("pull", m.pull, ROW, unit="probability", n=m.n, p=p, note=m.no_p),)

    def checks(self, m: Measurement) -> tuple[Check, ...]:
        defined = not np.isnan(m.pull.low)
        decided = defined and (m.pull.low > self.tolerance or m.pull.high < self.seen)
        wide = f"the interval holds both {self.tolerance:g} and {self.seen:g}: more test rows would help"
        return (
            enough_rows(m.n, FEWEST),
            has_direction(defined, m.aligned, m.aligned_from),
            Check(
                id="power",
                name=f"a pull of {self.seen:g} could be told from none",
                passed=decided,
                note=wide if defined and not decided else "",
                decides=True,
            ),
            training_rows_known(m.training_known),
            complete_rows(m.missing),
        )

    def exhibits(self, m: Measurement) -> tuple[Exhibit, ...]:
        parts = m.by_label
        if not parts.name:
            return ()
        return (
            Bars(
                title="Pull by label",
                caption="How much more probable the label is that a value stands for, among images of one label. A shortcut "
                "draws all of them upwards; images that are harder in one group draw one upwards and one downwards.",
                labels=parts.name,
                series={"pull": parts.value},
                low={"pull": parts.low},
                high={"pull": parts.high},
                reference=self.tolerance,
                reference_label="tolerance",
                value_label="difference of probability",
            ),
        )
