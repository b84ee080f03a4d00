"""Pull: do predictions follow the attribute where the label does not?

How much more probable a label is where the attribute stands for it, within the label, averaged over labels. A model that uses a
cue is drawn the same way whatever the label; images that are merely harder in one group are drawn away from their own label, and
that cancels. It needs nothing but decisions, and in planted worlds it follows the change that an intervention on the cue makes
(docs/calibration.md). What it cannot tell apart: an attribute that goes with how strongly the label shows (the sicker patients
lie in one ward) draws a model that reads the right thing. That is why other audits change the cue, or look where the model looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rightreasons.audits._alignment import UNKNOWN_TRAINING, say_alignment
from rightreasons.audits._contract import Context, Need, Role, estimate
from rightreasons.audits._pull import NO_SIDES, Pull, drawn, pull_of
from rightreasons.evidence import Evidence
from rightreasons.findings import Bars, Check, Exhibit, Finding, Row, Verdict
from rightreasons.measurements import spread
from rightreasons.stats import groups
from rightreasons.stats.resampling import Interval, exchange_within_label, p_value

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


@dataclass(frozen=True)
class Measurement:
    """The pull of an attribute on one model's predictions, overall and label by label.

    Attributes
    ----------
    p : of a permutation of the attribute within the label, two-sided
    group : "label, value → the label it stands for"
    group_value, group_low, group_high : (k,) pull of each
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
    group: tuple[str, ...]
    group_value: np.ndarray
    group_low: np.ndarray
    group_high: np.ndarray

    def scalars(self) -> dict[str, float | int | str]:
        return {"attribute": self.attribute, "n": self.n, "p": self.p, **spread("pull", self.pull)}


@dataclass(frozen=True)
class Result:
    measurements: tuple[Measurement, ...]
    tolerance: float
    seen: float
    context: Context = field(default_factory=Context)

    @property
    def verdict(self) -> Verdict:
        m = self.measurements[0]
        if m.n < FEWEST or np.isnan(m.pull.low):
            return "inconclusive"
        if m.pull.low > self.tolerance:
            return "shortcut"
        return "no evidence" if m.pull.high < self.seen else "inconclusive"

    def finding(self) -> Finding:
        m = self.measurements[0]
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            verdict=self.verdict,
            sentence=_sentence(m, self.verdict, self.tolerance, self.seen),
            estimates=(estimate("pull", m.pull, ROW, unit="probability", n=m.n, p=None if np.isnan(m.p) else m.p, note=m.no_p),),
            checks=_checks(m, self.tolerance, self.seen),
            exhibits=_exhibits(m, self.tolerance),
        )


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
    aligned : attribute value → the label it stands for; learnt as in `groups` by default, and where the training rows show
        none, from the audit rows
    B : resamples, of subjects where they are known
    permutations : of the attribute within the label
    """
    found = pull_of(evidence, attribute, aligned, rng=rng, B=B, level=level)
    rows, a = found.rows, found.attribute
    exchange = exchange_within_label(rows.label, a.values, rows.cohort.subject)
    tested = not exchange.reason and not np.isnan(found.interval.value)
    shuffled = (a.values[order] for order in exchange.permutations(permutations if tested else 0, rng))
    null = [groups.pull(rows.label, rows.probability, values, found.aligned) for values in shuffled]
    names, parts = _parts(evidence, found, level)
    return Measurement(
        model=evidence.card.name,
        attribute=a.name,
        n=len(rows.label),
        n_subjects=None if rows.cohort.subject is None else found.sample.units,
        missing=found.missing,
        pull=found.interval,
        p=p_value(found.interval.value, null) if tested else np.nan,
        no_p=exchange.reason,
        aligned=say_alignment(found.aligned, a, evidence),
        aligned_from=found.source,
        training_known=evidence.training is not None,
        group=names,
        group_value=np.array([i.value for i in parts]),
        group_low=np.array([i.low for i in parts]),
        group_high=np.array([i.high for i in parts]),
    )


def conclude(
    measurements: Mapping[str, Sequence[Measurement]],
    *,
    rng: np.random.Generator,
    tolerance: float = TOLERANCE,
    seen: float = SEEN,
) -> Result:
    """`shortcut` where the lower limit exceeds `tolerance`, `no evidence` where the upper one lies below `seen`."""
    found = tuple(measurements["test"])
    first = found[0]
    return Result(found, tolerance, seen, Context(attribute=first.attribute, n_rows=first.n, n_subjects=first.n_subjects))


def _parts(evidence: Evidence, found: Pull, level: float) -> tuple[tuple[str, ...], list[Interval]]:
    """The pull of every value within every label: one side that is drawn along and one that is not are no shortcut."""
    rows, a = found.rows, found.attribute
    names, parts = [], []
    for value, towards in found.aligned.items():
        for y in np.unique(rows.label):
            inside = np.where(rows.label == y, 0, -1)
            names.append(f"label {evidence.card.classes[y]}: {a.levels[value]} → {evidence.card.classes[towards]}")  # type: ignore[index, call-overload]
            parts.append(drawn(inside, rows.probability, a.values, {value: towards}, found.sample, level, NO_SIDES))
    return tuple(names), parts


# ---- saying --------------------------------------------------------------------------------------------------------------


def _sentence(m: Measurement, verdict: Verdict, tolerance: float, seen: float) -> str:
    if m.n < FEWEST:
        return f"Only {m.n} test rows have a label and “{m.attribute}”; at least {FEWEST} are needed to judge."
    if np.isnan(m.pull.low):
        return f"There is no pull to judge: {m.pull.reason}."
    limits = f"{m.pull.value:.3f} ({m.pull.low:.3f} to {m.pull.high:.3f})"
    how = f"Within a label, predictions lie {limits} nearer to what “{m.attribute}” stands for"
    if verdict == "shortcut":
        return f"{how}: they follow it."
    if verdict == "inconclusive":
        return f"{how}: neither beyond {tolerance:g} nor surely below {seen:g}."
    if m.pull.high < -tolerance:
        return f"{how}: they move against it, which is no shortcut through it."
    return f"{how}: they do not follow it."


def _checks(m: Measurement, tolerance: float, seen: float) -> tuple[Check, ...]:
    defined = not np.isnan(m.pull.low)
    decided = defined and (m.pull.low > tolerance or m.pull.high < seen)
    return (
        Check(name=f"at least {FEWEST} test rows", passed=m.n >= FEWEST, note=f"{m.n} rows", decides=True),
        Check(name="a value of the attribute stands for a label", passed=defined, note=_say_direction(m), decides=True),
        Check(
            name=f"a pull of {seen:g} could be told from none",
            passed=decided,
            note=""
            if decided or not defined
            else f"the interval holds both {tolerance:g} and {seen:g}: more test rows would help",
            decides=True,
        ),
        Check(name="training rows known", passed=m.training_known, note="" if m.training_known else UNKNOWN_TRAINING),
        Check(
            name="every row has a label and the attribute",
            passed=not m.missing,
            note=f"{m.missing} rows left out" if m.missing else "",
        ),
    )


def _say_direction(m: Measurement) -> str:
    return f"{m.aligned} ({m.aligned_from})" if m.aligned else m.aligned_from


def _exhibits(m: Measurement, tolerance: float) -> tuple[Exhibit, ...]:
    if not m.group:
        return ()
    return (
        Bars(
            title="Pull by label",
            caption="How much more probable the label is that a value stands for, among images of one label. A shortcut draws "
            "all of them upwards; images that are harder in one group draw one upwards and one downwards.",
            labels=m.group,
            series={"pull": m.group_value},
            low={"pull": m.group_low},
            high={"pull": m.group_high},
            reference=tolerance,
            reference_label="tolerance",
            value_label="difference of probability",
        ),
    )
