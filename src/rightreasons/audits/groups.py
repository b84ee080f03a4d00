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
from rightreasons.audits._rows import audited_rows
from rightreasons.errors import NotRun, SettingError
from rightreasons.evidence import Decisions, Evidence
from rightreasons.families import suggest, with_settings
from rightreasons.findings import Bars, Cell, Check, Curves, Estimate, Exhibit, Row, Table
from rightreasons.head import outputs_for
from rightreasons.measurements import spread
from rightreasons.stats import behaviour, calibration, groups
from rightreasons.stats.behaviour import FAIRNESS, LOGISTIC, PERFORMANCE, Decided, Metric, Part
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.resampling import Interval, resamples
from rightreasons.stats.totals import said

QUESTION = "What do the outputs say, overall and in every group?"
ROW: Row = "behaviour"


def needs(threshold: str = "argmax") -> tuple[Need, ...]:
    """Logits of the test rows; of audit rows to learn π where training rows are unknown; of val rows for a threshold."""
    needed = [Need("test", "test", "logits"), Need("test", "audit", "logits", optional=True)]
    if threshold == "max_f1":
        needed.append(Need("test", "val", "logits"))
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
    threshold : decide by argmax, or at the threshold of best F1 on validation rows (two classes)
    positive : label value that fairness metrics take against the rest; the last of two classes by default
    bins : edges that cut a continuous attribute for the metrics that need groups
    B : resamples, of subjects where they are known
    """

    attribute: str | None = None
    aligned: Mapping[Any, Any] | None = None
    threshold: Literal["argmax", "max_f1"] = "argmax"
    positive: Any = None
    bins: Sequence[float] | None = None
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
    aligned, aligned_from = alignment_of(evidence, a, settings.aligned)
    aligned_words = say_alignment(aligned, a, evidence)
    predicted, decision = decide(evidence, rows, settings.threshold)
    positive = positive_output(evidence, settings.positive)
    n = len(rows.label)
    sample = resamples(n, rng=rng, B=settings.B, subject=subject)

    decided = Decided(rows.label, predicted, probability)
    if a is not None:
        decided = replace(decided, attribute=a.values, levels=len(a.levels), name=a.name)
    metrics = behaviour.describe(decided, aligned, aligned_from, positive, settings.bins)
    intervals = behaviour.intervals(metrics, sample, settings.level)
    reliability = calibration.reliability(probability, rows.label)

    names = Names(label_name, evidence.card.classes, decided.name, a.levels if a else ())
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
    )


def decide(evidence: Evidence, rows: Decisions, threshold: str) -> tuple[np.ndarray, str]:
    """The decisions (n,), and in words how they were made."""
    if threshold == "argmax":
        return rows.probability.argmax(axis=1), "argmax"
    if threshold != "max_f1":
        raise SettingError(f"threshold {threshold!r} is not known: argmax or max_f1")
    if rows.logits.shape[1] != 2:
        raise NotRun(f"the max-F1 threshold is for two classes and {evidence.card.name} has {rows.logits.shape[1]}")
    tuned = evidence.on("val").decisions()
    known = tuned.label >= 0
    cut = groups.max_f1_threshold(tuned.label[known], tuned.probability[known, 1])
    if np.isnan(cut):
        raise NotRun("the max-F1 threshold needs positive validation rows, and there are none")
    return (rows.probability[:, 1] >= cut).astype(int), f"max-F1 threshold {cut:.3g} on validation rows"


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

    def sentence(self, m: Measurement) -> str:
        accuracy = m.get("accuracy")
        if not m.has("worst-group accuracy") or np.isnan(m.get("worst-group accuracy").value):
            return f"{accuracy.value:.1%} of the {m.n_rows} test decisions are right."
        worst = m.get("worst-group accuracy")
        return (
            f"{accuracy.value:.1%} of the {m.n_rows} test decisions are right, and in the worst group ({_worst_group(m)}) "
            f"{worst.value:.1%} ({worst.low:.1%} to {worst.high:.1%})."
        )

    def estimates(self, m: Measurement) -> list[Estimate]:
        found = []
        for name in SHOWN:
            if m.has(name):
                heading = "Performance"
                if name in FAIRNESS:
                    heading = "Fairness (lower is fairer)"
                shown = {"group": heading, "unit": _unit(name, m), "note": NOTES.get(name, ""), "n": m.metrics.rows(name)}
                found.append(Estimate.of(name, m.get(name), ROW, **shown))
        return found

    def checks(self, m: Measurement) -> list[Check]:
        groups_known = bool(m.attribute) and m.kind != "continuous"
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
