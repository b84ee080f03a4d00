"""Groups: what do the outputs say, overall and by (label, attribute) group?

Describes behaviour and gives no verdict: a gap between groups can come from a shortcut, from harder images or from chance.

| paper | function |
|---|---|
| ART sec. 4, Acc(y, a) | `stats.behaviour.by_group` |
| ART sec. 4, WGA | `stats.behaviour.over_groups` |
| ART sec. 4, π(a) | `_alignment.alignment_of` |
| ART sec. 4, CSR | `stats.behaviour.following` |
| ShorT, Methods "Assessing fairness" | `stats.behaviour.unfairness` |
| ShorT, Supp. Methods, decision threshold | `decide` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from rightreasons.audits._alignment import UNKNOWN_TRAINING, alignment_of, say_alignment
from rightreasons.audits._contract import Context, Need, OneModelResult, Role
from rightreasons.audits._glance import Glance, glance
from rightreasons.audits._levels import levels_of
from rightreasons.audits._rows import audited_rows
from rightreasons.data.cohort import Attribute
from rightreasons.errors import NotRun, SettingError
from rightreasons.evidence import Decisions, Evidence
from rightreasons.families import suggest, with_settings
from rightreasons.findings import Bars, Cell, Check, Curves, Estimate, Exhibit, Finding, Row, Table
from rightreasons.head import outputs_for
from rightreasons.measurements import spread
from rightreasons.stats import behaviour, calibration, groups
from rightreasons.stats.behaviour import ERRORS, FAIRNESS, LOGISTIC, PERFORMANCE, Decided, Metric, Part
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.one_way import halves
from rightreasons.stats.resampling import Interval, resamples
from rightreasons.stats.totals import said

QUESTION = "What do the outputs say, overall and in every group?"
ROW: Row = "behaviour"


Threshold = float | Literal["argmax", "max_f1", "f1"]


def needs(threshold: Threshold = "argmax") -> tuple[Need, ...]:
    """Logits of the test rows; of audit rows to learn π where training rows are unknown; of val rows for a threshold."""
    needed = [Need("test", "test", "logits"), Need("test", "audit", "logits", optional=True)]
    if threshold == "max_f1":
        needed.append(Need("test", "val", "logits"))
    if threshold == "f1":
        needed.append(Need("test", "val", "logits", optional=True))
    return tuple(needed)


def roles() -> tuple[Role, ...]:
    return ()


@dataclass(frozen=True)
class Settings:
    """The settings of `measure`.

    Parameters
    ----------
    aligned : attribute value → the label it stands for (π); by default learnt from the training rows by lift, or, where those
        are unknown, from the model's errors on audit rows
    threshold : decide by argmax, or of two classes at a probability of the last: a number, or that of best F1. "max_f1" finds
        it on validation rows; "f1" does where there are any, and else each half of the test rows finds it for the other
    positive : label value that error rates and fairness metrics take against the rest; the last of two classes by default
    bins : edges that cut a continuous attribute for the metrics that need groups; its quartiles by default
    quartiles : whether a continuous attribute without edges is cut at its quartiles for those metrics
    B : resamples, of subjects where they are known
    """

    attribute: str | None = None
    aligned: Mapping[Any, Any] | None = None
    threshold: Threshold = "argmax"
    positive: Any = None
    bins: Sequence[float] | None = None
    quartiles: bool = True
    B: int = 10_000
    level: float = 0.95


# ---- measuring -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metrics:
    """Every metric of every group, k of them.

    Attributes
    ----------
    name, group : group is "" overall, "sex = f" for an attribute value, "y = 1, sex = f" for a group
    value, low, high, size : (k,) estimates with their intervals, and the rows they rest on
    undefined : (k,) resamples without a value, of `draws`
    """

    name: tuple[str, ...]
    group: tuple[str, ...]
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    size: np.ndarray
    reason: tuple[str, ...]
    undefined: np.ndarray
    draws: int

    @classmethod
    def of(cls, metrics: Sequence[Metric], groups: Sequence[str], intervals: Sequence[Interval]) -> Metrics:
        return cls(
            name=tuple(metric.name for metric in metrics),
            group=tuple(groups),
            value=np.array([i.value for i in intervals]),
            low=np.array([i.low for i in intervals]),
            high=np.array([i.high for i in intervals]),
            size=np.array([metric.size for metric in metrics]),
            reason=tuple(i.reason for i in intervals),
            undefined=np.array([i.undefined for i in intervals]),
            draws=intervals[0].draws,
        )

    def position(self, name: str, group: str = "") -> int:
        return list(zip(self.name, self.group, strict=True)).index((name, group))

    def interval(self, name: str, group: str = "") -> Interval:
        k = self.position(name, group)
        value, low, high = float(self.value[k]), float(self.low[k]), float(self.high[k])
        return Interval(value, low, high, self.draws, int(self.undefined[k]), self.reason[k])

    def rows(self, name: str, group: str = "") -> int:
        return int(self.size[self.position(name, group)])

    def overall(self) -> list[str]:
        """Names of the metrics over all rows."""
        return [name for name, group in zip(self.name, self.group, strict=True) if not group]


@dataclass(frozen=True)
class Measurement:
    """What one model's outputs say.

    Attributes
    ----------
    decision : how probabilities became decisions
    small : groups of fewer than `SMALLEST_GROUP` rows, in words
    cut : how a continuous attribute was cut into the groups; empty where it was not
    glance : what a reader sees first; None in what earlier versions measured
    aligned, aligned_from : which label each attribute value stands for, and where that comes from
    """

    model: str
    attribute: str
    kind: str
    decision: str
    metrics: Metrics
    reliability: calibration.Reliability
    n_rows: int
    n_subjects: int | None
    missing: int
    left_out: int
    training_known: bool
    aligned: str
    aligned_from: str
    small: str
    cut: str = ""
    glance: Glance | None = None

    def get(self, metric: str, group: str = "") -> Interval:
        return self.metrics.interval(metric, group)

    def has(self, metric: str) -> bool:
        return metric in self.metrics.name

    def groups_of(self, metric: str) -> tuple[str, ...]:
        """The groups, other than all rows, that a metric is measured in."""
        named = zip(self.metrics.name, self.metrics.group, strict=True)
        return tuple(group for name, group in named if name == metric and group)

    def scalars(self) -> dict[str, float | int | str]:
        """The metrics over all rows, for a row of a table."""
        found: dict[str, float | int | str] = {"attribute": self.attribute, "decision": self.decision, "n_rows": self.n_rows}
        for metric in self.metrics.overall():
            found |= spread(metric.replace("-", "_").replace(" ", "_"), self.get(metric))
        return found


@with_settings(Settings)
def measure(evidence: Evidence, *, rng: np.random.Generator, settings: Settings) -> Measurement:
    """Metrics of the test rows with bootstrap intervals (by subject where subjects are known)."""
    test = audited_rows(evidence, settings.attribute)
    rows, a = test.decisions, test.attribute
    probability, subject = rows.probability, rows.cohort.subject
    label_name = evidence.card.target or rows.cohort.label_name
    cut = _cut(evidence, a, settings)
    by = a if cut is None else cut
    aligned, aligned_from = alignment_of(evidence, by, settings.aligned)
    aligned_words = say_alignment(aligned, by, evidence)
    predicted, decision = decide(evidence, rows, settings.threshold, rng)
    positive = positive_output(evidence, settings.positive)
    n = len(rows.label)
    sample = resamples(n, rng=rng, B=settings.B, subject=subject)

    decided = Decided(rows.label, predicted, probability)
    if by is not None:
        decided = replace(decided, attribute=by.values, levels=len(by.levels), name=by.name)
    numbers = a.values if a is not None and cut is not None else None
    metrics = behaviour.describe(decided, aligned, aligned_from, positive, settings.bins, numbers)
    intervals = behaviour.intervals(metrics, sample, settings.level)
    reliability = calibration.reliability(probability, rows.label)

    names = Names(label_name, evidence.card.classes, decided.name, by.levels if by else ())
    return Measurement(
        model=evidence.card.name,
        attribute=decided.name,
        kind=a.kind if a else "",
        decision=decision,
        metrics=Metrics.of(metrics, [names.of(metric.part) for metric in metrics], intervals),
        reliability=reliability,
        n_rows=n,
        n_subjects=None if subject is None else sample.units,
        missing=test.missing,
        left_out=test.left_out,
        training_known=evidence.training is not None,
        aligned=aligned_words,
        aligned_from=aligned_from,
        small=_say_small(decided, names),
        cut="" if cut is None else f"{cut.name} is a number and was cut at its quartiles: {', '.join(map(str, cut.levels))}",
        glance=glance(evidence, rows, predicted, a, settings.aligned, sample, settings.level),
    )


def _cut(evidence: Evidence, a: Attribute | None, settings: Settings) -> Attribute | None:
    """A continuous attribute by its quartiles, for what needs groups; None where it stays as it is."""
    if a is None or a.kind != "continuous" or not settings.quartiles or settings.bins is not None:
        return None
    return levels_of(evidence, a.name).of(a)


def decide(
    evidence: Evidence, rows: Decisions, threshold: Threshold, rng: np.random.Generator | None = None
) -> tuple[np.ndarray, str]:
    """The decisions (n,), and in words how they were made.

    Parameters
    ----------
    rng : draws the halves that find a threshold for each other
    """
    if threshold == "argmax":
        return rows.probability.argmax(axis=1), "argmax"
    is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if threshold not in ("max_f1", "f1") and not is_number:
        raise SettingError(f"threshold {threshold!r} is not known: argmax, f1, max_f1 or a number between 0 and 1")
    if is_number and not 0 < float(threshold) < 1:
        raise SettingError(f"threshold {threshold} is not known: a number between 0 and 1 is expected, or argmax, f1, max_f1")
    if rows.logits.shape[1] != 2:
        raise NotRun(f"a threshold is for two classes and {evidence.card.name} has {rows.logits.shape[1]}")
    score = rows.probability[:, 1]
    if is_number:
        return (score >= float(threshold)).astype(int), f"threshold {float(threshold):g}"
    if threshold == "f1" and not ("val" in evidence.cohorts and "logits" in evidence.on("val")):
        return _decided_by_the_other_half(rows, np.random.default_rng(0) if rng is None else rng)
    tuned = evidence.on("val").decisions()
    known = tuned.label >= 0
    cut = groups.max_f1_threshold(tuned.label[known], tuned.probability[known, 1])
    if np.isnan(cut):
        raise NotRun("the max-F1 threshold needs positive validation rows, and there are none")
    return (score >= cut).astype(int), f"max-F1 threshold {cut:.3g} on validation rows"


def _decided_by_the_other_half(rows: Decisions, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    """Each half of the rows at the threshold of best F1 of the other; they have a label."""
    first, score = halves(len(rows.label), rows.cohort.subject, rng), rows.probability[:, 1]
    predicted, cuts = np.zeros(len(rows.label), dtype=np.int64), []
    for own in (first, ~first):
        cut = groups.max_f1_threshold(rows.label[~own], score[~own])
        if np.isnan(cut):
            raise NotRun("the max-F1 threshold needs positive rows in each half of the test rows")
        predicted[own] = score[own] >= cut
        cuts.append(f"{cut:.3g}")
    return predicted, f"max-F1 thresholds {' and '.join(cuts)}, which each half of the test rows finds for the other"


def positive_output(evidence: Evidence, positive: Any) -> int | None:
    """The output that is taken against the rest: the one named, else the last of two; None where more than two are unnamed."""
    classes = evidence.card.classes
    if positive is None:
        return 1 if len(classes) == 2 else None
    if str(positive) not in map(str, classes):
        known = suggest(str(positive), map(str, classes))
        raise SettingError(f"positive={positive!r} is no output of {evidence.card.name}; {known}")
    return int(outputs_for([positive], classes)[0])


@dataclass(frozen=True)
class Names:
    """Label and attribute in the manifest's words."""

    label: str
    classes: Sequence[Any]
    attribute: str
    levels: Sequence[Any]

    def of(self, part: Part) -> str:
        """Which rows a metric is about: "y = 1, sex = f"; empty for all rows."""
        words = []
        if part.label is not None:
            words.append(f"{self.label} = {self.classes[part.label]}")
        if part.value is not None:
            words.append(f"{self.attribute} = {self.levels[part.value]}")
        return ", ".join(words)


def _say_small(decided: Decided, names: Names) -> str:
    """The groups that are left out of worst-group accuracy, empty ones too, with their sizes."""
    words = []
    for y in np.unique(decided.label).tolist():
        for value in range(decided.levels):
            n = int(((decided.label == y) & (decided.attribute == value)).sum())
            if n < SMALLEST_GROUP:
                words.append(f"{names.of(Part(y, value))}: {n}")
    return "; ".join(words)


# ---- saying --------------------------------------------------------------------------------------------------------------

MAIN = ("worst-group accuracy", "accuracy", "group-balanced accuracy", "balanced accuracy", "AUC", "F1")
SHOWN = (*MAIN, "conflict shortcut rate", "pull", "ECE", "Brier", *FAIRNESS)
UNITS = {"ECE": "calibration error", "Brier": "Brier score", "pull": "probability"}
ERROR_NOTES = {
    "false positive rate": "of the rows without the positive label, the share that is called positive",
    "false negative rate": "of the rows with the positive label, the share that is not called positive",
}
NOTES = {
    "accuracy": "test-weighted: every row counts once",
    "group-balanced accuracy": "every (label, attribute) group counts the same",
    "worst-group accuracy": "percentile interval of the minimum, which lies a little low when groups are close",
    "conflict shortcut rate": "share of the rows whose attribute points to another label that are given that label",
    "pull": "how much more probable a label is where the attribute stands for it, within the label; harder images cancel in it",
    "max gap": "of balanced accuracy",
}


def conclude(measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator) -> Result:
    found = tuple(measurements["test"])
    first = found[0]
    return Result(found, Context(attribute=first.attribute, n_rows=first.n_rows, n_subjects=first.n_subjects))


@dataclass(frozen=True)
class Result(OneModelResult[Measurement]):
    """What one or several models (seeds) do on the same rows."""

    question: ClassVar[str] = QUESTION
    row: ClassVar[Row] = ROW

    def finding(self) -> Finding:
        seen = self.first.glance
        return super().finding().model_copy(update={"answers": None if seen is None else seen.shown()})

    def sentence(self, m: Measurement) -> str:
        accuracy = m.get("accuracy")
        if not m.has("worst-group accuracy") or np.isnan(m.get("worst-group accuracy").value):
            return f"{accuracy.value:.1%} of the {m.n_rows} test decisions are right."
        worst = m.get("worst-group accuracy")
        said = (
            f"{accuracy.value:.1%} of the {m.n_rows} test decisions are right, and in the worst group ({_worst_group(m)}) "
            f"{worst.value:.1%} ({worst.low:.1%} to {worst.high:.1%})."
        )
        return " ".join(filter(None, (said, _say_errors(m), f"{m.cut}." if m.cut else "")))

    def estimates(self, m: Measurement) -> list[Estimate]:
        found = []
        for name in SHOWN:
            if m.has(name):
                heading = "Performance"
                if name in FAIRNESS:
                    heading = "Fairness (lower is fairer)"
                shown = {"group": heading, "unit": _unit(name, m), "note": NOTES.get(name, ""), "n": m.metrics.rows(name)}
                found.append(Estimate.of(name, m.get(name), ROW, **shown))
        for name in ERRORS:
            for part in ("", *m.groups_of(name)):
                if m.has(name):
                    shown = {"group": "Errors", "unit": "share", "note": ERROR_NOTES[name], "n": m.metrics.rows(name, part)}
                    found.append(Estimate.of(f"{name}, {part}" if part else name, m.get(name, part), ROW, **shown))
        return found

    def checks(self, m: Measurement) -> list[Check]:
        groups_known = bool(m.attribute) and (m.kind != "continuous" or bool(m.cut))
        unstable = _undefined_in_some(m)
        return [
            Check(
                id="training rows",
                name="training rows known",
                passed=m.training_known,
                note="" if m.training_known else f"{UNKNOWN_TRAINING}: whether test rows were trained on cannot be checked",
            ),
            Check(
                id="group sizes",
                name=f"every group has at least {SMALLEST_GROUP} rows",
                passed=not m.small if groups_known else None,
                note=f"left out of worst-group accuracy: {m.small}" if m.small else "",
            ),
            Check(
                id="complete rows",
                name="every row has a label and the attribute",
                passed=not m.missing,
                note=f"{m.missing} rows left out" if m.missing else "",
            ),
            Check(
                id="unseen rows",
                name="no test row was fitted or tuned on",
                passed=not m.left_out if m.training_known else None,
                note=f"{m.left_out} rows left out" if m.left_out else "",
            ),
            Check(
                id="defined",
                name="defined in every resample",
                passed=not unstable,
                note=f"undefined in some resamples: {', '.join(unstable)}" if unstable else "",
            ),
        ]

    def exhibits(self, m: Measurement) -> list[Exhibit]:
        exhibits: list[Exhibit] = []
        if m.groups_of("group accuracy"):
            exhibits.append(_by_group(m))
        exhibits += [_by_attribute(m), _reliability(m)]
        if len(self.measurements) > 1:
            exhibits.append(_by_model(self.measurements))
        return exhibits


def _worst_group(m: Measurement) -> str:
    """The group whose accuracy is the worst-group accuracy; where all of these are small, the group with the lowest."""
    accuracy = {group: m.get("group accuracy", group).value for group in m.groups_of("group accuracy")}
    worst = m.get("worst-group accuracy").value
    named = [group for group in accuracy if accuracy[group] == worst]
    return min(named, default=min(accuracy, key=lambda group: accuracy[group]))


def _say_errors(m: Measurement) -> str:
    """The error rate that differs most between values of the attribute, where it lies and how far; empty where none is known."""
    widest: tuple[float, str] | None = None
    for name in ERRORS:
        rates = [m.get(name, part).value for part in _large(m, name)]
        if len(rates) > 1 and (widest is None or max(rates) - min(rates) > widest[0]):
            widest = (max(rates) - min(rates), name)
    if widest is None:
        return ""
    name = widest[1]
    rate = {part: m.get(name, part) for part in _large(m, name)}
    most, least = max(rate, key=lambda part: rate[part].value), min(rate, key=lambda part: rate[part].value)
    high, low = rate[most], rate[least]
    return (
        f"The {name} is {high.value:.1%} ({high.low:.1%} to {high.high:.1%}) where {most} and "
        f"{low.value:.1%} ({low.low:.1%} to {low.high:.1%}) where {least}."
    )


def _large(m: Measurement, name: str) -> list[str]:
    """The values of the attribute with rows enough for a rate."""
    return [part for part in m.groups_of(name) if m.metrics.rows(name, part) >= SMALLEST_GROUP]


def _unit(name: str, m: Measurement) -> str:
    if name not in LOGISTIC:
        return UNITS.get(name, "share")
    if m.kind != "continuous":
        return "log odds ratio"
    return f"log odds per unit of {m.attribute}"


def _undefined_in_some(m: Measurement) -> list[str]:
    """Metrics over all rows that are defined, but not in every resample."""
    overall = {name: m.get(name) for name in m.metrics.overall()}
    return [name for name, interval in overall.items() if interval.undefined and not np.isnan(interval.value)]


def _by_group(m: Measurement) -> Bars:
    named = m.groups_of("group accuracy")
    bars = [m.get("group accuracy", group) for group in named]
    stands_for = ""
    if m.aligned:
        stands_for = f"{m.attribute} stands for a label: {m.aligned} ({m.aligned_from})."
    return Bars(
        title="Accuracy by group",
        caption=f"Share of right decisions ({m.decision}) in every (label, {m.attribute}) group, with 95 % intervals; "
        f"the line is the accuracy over all rows. {stands_for}",
        labels=[f"{group} (n = {m.metrics.rows('group accuracy', group)})" for group in named],
        series={"accuracy": bars},
        reference=m.get("accuracy").value,
        reference_label="all rows",
        value_label="accuracy",
    )


def _by_attribute(m: Measurement) -> Table:
    parts = ("", *m.groups_of("AUC"))
    rows = []
    for metric in PERFORMANCE:
        rows.append([metric, *(Cell.of(m.get(metric, part)) for part in parts)])
    return Table(
        title="Performance by attribute",
        caption=f"Each with its 95 % bootstrap interval. ECE and Brier: lower is better. {said(m.n_rows, m.n_subjects)}".strip(),
        columns=("metric", *(f"{part or 'all rows'} (n = {m.metrics.rows('accuracy', part)})" for part in parts)),
        rows=rows,
    )


def _reliability(m: Measurement) -> Curves:
    curve = m.reliability
    filled = curve.count > 0
    return Curves(
        title="Reliability",
        caption="Accuracy of the decisions of equal confidence; on the diagonal, confidence means what it says. "
        f"ECE {m.get('ECE').value:.3f}, {len(curve.count)} equal bins.",
        x=curve.confidence[filled],
        series={"accuracy": curve.accuracy[filled]},
        x_label="confidence of the predicted class",
        y_label="accuracy",
        diagonal=True,
    )


def _by_model(found: Sequence[Measurement]) -> Table:
    metrics = [name for name in MAIN if found[0].has(name)]
    rows: list[Sequence[Any]] = []
    for m in found:
        rows.append([m.model, *(Cell.of(m.get(name)) for name in metrics)])
    values = np.array([[m.get(name).value for name in metrics] for m in found])
    rows.append(["mean over models", *values.mean(axis=0)])
    rows.append(["standard deviation", *values.std(axis=0, ddof=1)])
    return Table(
        title="Model by model",
        caption="The same test rows and resamples for every model.",
        columns=("model", *metrics),
        rows=rows,
    )
