"""Groups: what do the outputs say, overall and by (label, attribute) group?

Describes behaviour and gives no verdict: a gap between groups can come from a shortcut, from harder images or from chance.
Worst-group accuracy and conflict shortcut rate: ART, sec. 4. Fairness metrics: ShorT, Methods.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rightreasons.audits._alignment import UNKNOWN_TRAINING, alignment_of, say_alignment
from rightreasons.audits._contract import Context, Need, Role, estimate, refuse_mixed_cases
from rightreasons.data.cohort import Attribute
from rightreasons.errors import NotRun, SettingError
from rightreasons.evidence import Decisions, Evidence
from rightreasons.families import suggest
from rightreasons.findings import Bars, Cell, Check, Curves, Estimate, Exhibit, Finding, Row, Table
from rightreasons.head import outputs_for
from rightreasons.measurements import spread
from rightreasons.stats import calibration, fairness, groups
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.resampling import Interval, interval, resamples, share_interval, whole

QUESTION = "What do the outputs say, overall and in every group?"
ROW: Row = "behaviour"

# Shares of rows: where all rows agree, a bootstrap has no width and Wilson's interval takes its place.
SHARES = ("accuracy", "group accuracy", "worst-group accuracy", "conflict shortcut rate")

Draws = Callable[[np.ndarray], np.ndarray]


def needs(threshold: str = "argmax") -> tuple[Need, ...]:
    """Logits of the test rows; of audit rows to learn π where training rows are unknown; of val rows for a threshold."""
    optional = Need("test", "audit", "logits", optional=True)
    tuned = (Need("test", "val", "logits"),) if threshold == "max_f1" else ()
    return (Need("test", "test", "logits"), optional, *tuned)


def roles() -> tuple[Role, ...]:
    return ()


@dataclass(frozen=True)
class Measurement:
    """What one model's outputs say: one entry per metric and group.

    Attributes
    ----------
    metric, group : names; group is "" overall, "sex = f" for an attribute value, "y = 1, sex = f" for a group
    value, low, high, size : (k,) estimates with their intervals, and the rows they rest on
    confidence, accuracy, count : (15,) the reliability curve, NaN in empty bins
    """

    model: str
    attribute: str
    kind: str
    decision: str
    metric: tuple[str, ...]
    group: tuple[str, ...]
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    size: np.ndarray
    reason: tuple[str, ...]
    undefined: np.ndarray
    draws: int
    n_rows: int
    n_subjects: int | None
    missing: int
    left_out: int
    training_known: bool
    aligned: str
    aligned_from: str
    small: str
    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray

    def get(self, metric: str, group: str = "") -> Interval:
        """One entry, as an interval."""
        k = list(zip(self.metric, self.group, strict=True)).index((metric, group))
        return Interval(
            float(self.value[k]), float(self.low[k]), float(self.high[k]), self.draws, int(self.undefined[k]), self.reason[k]
        )

    def groups_of(self, metric: str) -> tuple[str, ...]:
        return tuple(g for m, g in zip(self.metric, self.group, strict=True) if m == metric and g)

    def scalars(self) -> dict[str, float | int | str]:
        """The metrics over all rows, for a row of a table."""
        found: dict[str, float | int | str] = {"attribute": self.attribute, "decision": self.decision, "n_rows": self.n_rows}
        for metric in (m for m, g in zip(self.metric, self.group, strict=True) if not g):
            found |= spread(metric.replace("-", "_").replace(" ", "_"), self.get(metric))
        return found


@dataclass(frozen=True)
class Result:
    """Measurements of one or several models (seeds) on the same rows."""

    measurements: tuple[Measurement, ...]
    context: Context = field(default_factory=Context)

    def finding(self) -> Finding:
        first = self.measurements[0]
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            sentence=_sentence(first),
            estimates=tuple(_estimates(first)),
            checks=tuple(_checks(first)),
            exhibits=tuple(_exhibits(self.measurements)),
        )


def measure(
    evidence: Evidence,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    aligned: Mapping[Any, Any] | None = None,
    threshold: Literal["argmax", "max_f1"] = "argmax",
    positive: Any = None,
    bins: Sequence[float] | None = None,
    B: int = 10_000,
    level: float = 0.95,
) -> Measurement:
    """Metrics of the test rows with bootstrap intervals (by subject where subjects are known).

    Parameters
    ----------
    aligned : attribute value → the label it stands for (π); by default learnt from the training rows by lift, or, where those
        are unknown, from the model's errors on audit rows
    threshold : decide by argmax, or at the threshold of best F1 on validation rows (two classes)
    positive : label value that fairness metrics take against the rest; the last of two classes by default
    bins : edges that cut a continuous attribute for the metrics that need groups
    B : resamples
    """
    view = evidence.on("test")
    whole_set = view.decisions()
    a = whole_set.cohort.attribute(attribute) if whole_set.cohort.attributes else None
    if a is not None:
        refuse_mixed_cases(view, a.name)
    keep = (whole_set.label >= 0) & (True if a is None else a.present)
    if not keep.any():
        raise NotRun(f"no test row has both a label and {a.name if a else 'an attribute'}")
    rows = whole_set.select(np.flatnonzero(keep))
    a = rows.cohort.attribute(attribute) if a is not None else None
    predicted, how = _decide(evidence, rows, threshold)
    pi, source = alignment_of(evidence, a, aligned)
    chosen = _positive(evidence, positive)
    entries = _entries(rows, predicted, a, pi, source, chosen, bins, _names(evidence, rows))
    sample = resamples(len(rows.label), rng=rng, B=B, subject=rows.cohort.subject)
    points = np.array([float(draw(whole(len(rows.label)))[0]) for _, _, _, draw, _ in entries])
    drawn = sample.apply(lambda counts: np.stack([draw(counts) for _, _, _, draw, _ in entries], axis=1))
    weight = sample.units / len(rows.label)  # independent units per row: below 1 where subjects have several
    smallest = min((n for metric, _, n, _, _ in entries if metric == "group accuracy" and n >= SMALLEST_GROUP), default=0)
    found = [
        share_interval(v, d, weight * (smallest if metric == "worst-group accuracy" else n), level, why)
        if metric in SHARES
        else interval(v, d, level, why)
        for v, d, (metric, _, n, _, why) in zip(points, drawn.T, entries, strict=True)
    ]
    curve = calibration.reliability(rows.probability, rows.label)
    return Measurement(
        model=evidence.card.name,
        attribute=a.name if a else "",
        kind=a.kind if a else "",
        decision=how,
        metric=tuple(e[0] for e in entries),
        group=tuple(e[1] for e in entries),
        value=np.array([i.value for i in found]),
        low=np.array([i.low for i in found]),
        high=np.array([i.high for i in found]),
        size=np.array([e[2] for e in entries]),
        reason=tuple(i.reason for i in found),
        undefined=np.array([i.undefined for i in found]),
        draws=B,
        n_rows=len(rows.label),
        n_subjects=None if rows.cohort.subject is None else sample.units,
        missing=int((~keep).sum()),
        left_out=view.left_out,
        training_known=evidence.training is not None,
        aligned=say_alignment(pi, a, evidence),
        aligned_from=source,
        small=_say_small(rows, a, evidence),
        confidence=curve.confidence,
        accuracy=curve.accuracy,
        count=curve.count,
    )


def conclude(measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator) -> Result:
    found = tuple(measurements["test"])
    first = found[0]
    context = Context(attribute=first.attribute, n_rows=first.n_rows, n_subjects=first.n_subjects)
    return Result(found, context)


# ---- measuring -----------------------------------------------------------------------------------------------------------

Entry = tuple[str, str, int, Draws, str]  # metric, group, rows, draws, reason why it may be undefined


def _entries(
    rows: Decisions,
    predicted: np.ndarray,
    a: Attribute | None,
    pi: Mapping[Hashable, Hashable],
    source: str,
    positive: int | None,
    bins: Sequence[float] | None,
    names: Sequence[str],
) -> list[Entry]:
    everything = np.arange(len(rows.label))
    found = _performance("", everything, rows, predicted)
    if a is None:
        return found
    label, codes, n = rows.label, a.values, len(everything)
    if a.kind == "categorical":
        found += [
            ("group-balanced accuracy", "", n, lambda c: groups.group_balanced_accuracy_draws(label, predicted, codes, c), ""),
            (
                "worst-group accuracy",
                "",
                n,
                lambda c: groups.worst_group_accuracy_draws(label, predicted, codes, c),
                f"no group of at least {SMALLEST_GROUP} rows",
            ),
        ]
        conflict = groups.conflicts(label, predicted, codes, pi)[0]
        why = source if not pi else "no conflicting rows" if not conflict.any() else ""
        found.append(
            (
                "conflict shortcut rate",
                "",
                int(conflict.sum()),
                lambda c: groups.conflict_shortcut_rate_draws(label, predicted, codes, pi, c),
                why,
            )
        )
        why = source if not pi else "no label has rows with and without a value of the attribute that stands for one"
        found.append(("pull", "", n, lambda c: groups.pull_draws(label, rows.probability, codes, pi, c), why))
        for code, level in enumerate(a.levels):
            subset = np.flatnonzero(codes == code)
            if len(subset):
                found += _performance(f"{a.name} = {level}", subset, rows, predicted)
        found += _by_group(rows, predicted, a, names)
    else:
        for metric in ("worst-group accuracy", "conflict shortcut rate", "pull"):
            found.append((metric, "", n, lambda c: np.full(len(c), np.nan), f"{a.name} is continuous: needs bins"))
    return found + _fairness(rows, predicted, a, positive, bins)


def _performance(group: str, subset: np.ndarray, rows: Decisions, predicted: np.ndarray) -> list[Entry]:
    label, guess, p = rows.label[subset], predicted[subset], rows.probability[subset]
    several = "one class only" if len(np.unique(label)) < 2 else ""

    def entry(name: str, draw: Callable[..., np.ndarray], *columns: Any, reason: str = "") -> Entry:
        return (name, group, len(subset), lambda counts: draw(*columns, counts[:, subset]), reason)

    return [
        entry("accuracy", groups.accuracy_draws, label, guess),
        entry("balanced accuracy", groups.balanced_accuracy_draws, label, guess, reason=several),
        entry("AUC", groups.auc_draws, label, p, reason=several),
        entry("F1", _f1_draws if p.shape[1] > 2 else groups.f1_draws, label, guess, reason="no positive row or decision"),
        entry("ECE", lambda p_, y, c: calibration.ece_draws(p_, y, c), p, label),
        entry("Brier", lambda p_, y, c: calibration.brier_draws(p_, y, c), p, label),
    ]


def _f1_draws(label: np.ndarray, guess: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Macro F1 over the classes that occur, also where only two of the model's do."""
    present = np.union1d(label, guess)
    return np.mean([groups.f1_draws((label == c).astype(int), (guess == c).astype(int), counts) for c in present], axis=0)


def _by_group(rows: Decisions, predicted: np.ndarray, a: Attribute, names: Sequence[str]) -> list[Entry]:
    """Accuracy of every (label, attribute) group: one label each, so nothing else is defined there."""
    label = rows.label
    found: list[Entry] = []
    for y in np.unique(label):
        for code, level in enumerate(a.levels):
            subset = np.flatnonzero((label == y) & (a.values == code))
            if len(subset):
                right = predicted[subset] == y

                def draw(counts: np.ndarray, subset: np.ndarray = subset, right: np.ndarray = right) -> np.ndarray:
                    return groups.accuracy_draws(np.ones(len(subset), int), right.astype(int), counts[:, subset])

                found.append(("group accuracy", f"{names[y]}, {a.name} = {level}", len(subset), draw, ""))
    return found


def _names(evidence: Evidence, rows: Decisions) -> tuple[str, ...]:
    """What each output stands for: "y = 1"."""
    what = evidence.card.target or rows.cohort.label_name
    return tuple(f"{what} = {value}" for value in evidence.card.classes)


def _fairness(
    rows: Decisions, predicted: np.ndarray, a: Attribute, positive: int | None, bins: Sequence[float] | None
) -> list[Entry]:
    found: list[Entry] = []
    label, guess = (rows.label == positive).astype(int), (predicted == positive).astype(int)
    for metric in fairness.METRICS:
        name, n = metric.replace("_", " "), len(rows.label)
        if positive is None:
            found.append((name, "", n, lambda c: np.full(len(c), np.nan), "more than two classes: name one with positive="))
            continue
        cut = bins if metric not in fairness.LOGISTIC else None
        # A continuous attribute stays continuous in the logistic fits; bins serve the metrics that compare groups.
        kind = None if cut is not None else a.kind
        known = fairness.disparity(metric, label, guess, a.values, kind=kind, bins=cut)

        found.append((name, "", known.rows, known.draws, known.reason))
    return found


def _decide(evidence: Evidence, rows: Decisions, threshold: str) -> tuple[np.ndarray, str]:
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


def _positive(evidence: Evidence, positive: Any) -> int | None:
    classes = evidence.card.classes
    if positive is not None:
        if str(positive) not in map(str, classes):
            known = suggest(str(positive), map(str, classes))
            raise SettingError(f"positive={positive!r} is no output of {evidence.card.name}; {known}")
        return int(outputs_for([positive], classes)[0])
    return 1 if len(classes) == 2 else None


def _say_small(rows: Decisions, a: Attribute | None, evidence: Evidence) -> str:
    if a is None or a.kind == "continuous":
        return ""
    names, asked = _names(evidence, rows), np.unique(rows.label)
    size = {(y, code): int(((rows.label == y) & (a.values == code)).sum()) for y in asked for code in range(len(a.levels))}
    return "; ".join(f"{names[y]}, {a.name} = {a.levels[k]}: {n}" for (y, k), n in size.items() if n < SMALLEST_GROUP)


# ---- saying --------------------------------------------------------------------------------------------------------------


def _sentence(m: Measurement) -> str:
    accuracy = m.get("accuracy")
    if "worst-group accuracy" not in m.metric or np.isnan(m.get("worst-group accuracy").value):
        return f"{accuracy.value:.1%} of the {m.n_rows} test decisions are right."
    worst = m.get("worst-group accuracy")
    names = {g: m.get("group accuracy", g).value for g in m.groups_of("group accuracy")}
    where = min((g for g in names if names[g] == worst.value), default=min(names, key=lambda g: names[g]))
    return (
        f"{accuracy.value:.1%} of the {m.n_rows} test decisions are right, and in the worst group ({where}) {worst.value:.1%} "
        f"({worst.low:.1%} to {worst.high:.1%})."
    )


MAIN = ("worst-group accuracy", "accuracy", "group-balanced accuracy", "balanced accuracy", "AUC", "F1")
UNITS = {"ECE": "calibration error", "Brier": "Brier score", "pull": "probability"}
FAIRNESS = tuple(m.replace("_", " ") for m in fairness.METRICS)
LOGISTIC = tuple(m.replace("_", " ") for m in fairness.LOGISTIC)
NOTES = {
    "accuracy": "test-weighted: every row counts once",
    "group-balanced accuracy": "every (label, attribute) group counts the same",
    "worst-group accuracy": "percentile interval of the minimum, which lies a little low when groups are close",
    "conflict shortcut rate": "share of the rows whose attribute points to another label that are given that label",
    "pull": "how much more probable a label is where the attribute stands for it, within the label; harder images cancel in it",
    "max gap": "of balanced accuracy",
}


def _estimates(m: Measurement) -> list[Estimate]:
    found = []
    for name in (*MAIN, "conflict shortcut rate", "pull", "ECE", "Brier", *FAIRNESS):
        if name in m.metric:
            group = "Fairness (lower is fairer)" if name in FAIRNESS else "Performance"
            unit = _logistic_unit(m) if name in LOGISTIC else UNITS.get(name, "share")
            size = int(m.size[list(zip(m.metric, m.group, strict=True)).index((name, ""))])
            found.append(estimate(name, m.get(name), ROW, group=group, unit=unit, note=NOTES.get(name, ""), n=size))
    return found


def _logistic_unit(m: Measurement) -> str:
    return f"log odds per unit of {m.attribute}" if m.kind == "continuous" else "log odds ratio"


def _checks(m: Measurement) -> list[Check]:
    entries = zip(m.metric, m.undefined, m.group, m.value, strict=True)
    unstable = [name for name, undefined, group, value in entries if undefined and not group and not np.isnan(value)]
    return [
        Check(
            name="training rows known",
            passed=m.training_known,
            note="" if m.training_known else f"{UNKNOWN_TRAINING}: whether test rows were trained on cannot be checked",
        ),
        Check(
            name=f"every group has at least {SMALLEST_GROUP} rows",
            passed=None if m.kind == "continuous" or not m.attribute else not m.small,
            note=f"left out of worst-group accuracy: {m.small}" if m.small else "",
        ),
        Check(
            name="every row has a label and the attribute",
            passed=not m.missing,
            note=f"{m.missing} rows left out" if m.missing else "",
        ),
        Check(
            name="no test row was fitted or tuned on",
            passed=not m.left_out if m.training_known else None,
            note=f"{m.left_out} rows left out" if m.left_out else "",
        ),
        Check(
            name="defined in every resample",
            passed=not unstable,
            note=f"undefined in some resamples: {', '.join(unstable)}" if unstable else "",
        ),
    ]


def _exhibits(found: Sequence[Measurement]) -> list[Exhibit]:
    m = found[0]
    exhibits: list[Exhibit] = []
    named = m.groups_of("group accuracy")
    if named:
        bars = [m.get("group accuracy", g) for g in named]
        exhibits.append(
            Bars(
                title="Accuracy by group",
                caption=f"Share of right decisions ({m.decision}) in every (label, {m.attribute}) group, with 95 % intervals; "
                "the line is the accuracy over all rows. "
                + (f"{m.attribute} stands for a label: {m.aligned} ({m.aligned_from})." if m.aligned else ""),
                labels=[f"{g} (n = {_size(m, 'group accuracy', g)})" for g in named],
                series={"accuracy": [b.value for b in bars]},
                low={"accuracy": [b.low for b in bars]},
                high={"accuracy": [b.high for b in bars]},
                reference=m.get("accuracy").value,
                reference_label="all rows",
                value_label="accuracy",
            )
        )
    exhibits.append(_by_attribute(m))
    filled = m.count > 0
    exhibits.append(
        Curves(
            title="Reliability",
            caption="Accuracy of the decisions of equal confidence; on the diagonal, confidence means what it says. "
            f"ECE {m.get('ECE').value:.3f}, 15 equal bins.",
            x=m.confidence[filled],
            series={"accuracy": m.accuracy[filled]},
            x_label="confidence of the predicted class",
            y_label="accuracy",
            diagonal=True,
        )
    )
    if len(found) > 1:
        exhibits.append(_by_model(found))
    return exhibits


def _size(m: Measurement, metric: str, group: str) -> int:
    return int(m.size[list(zip(m.metric, m.group, strict=True)).index((metric, group))])


def _by_attribute(m: Measurement) -> Table:
    parts = ("", *m.groups_of("AUC"))
    rows = [
        [metric, *(_cell(m.get(metric, part)) for part in parts)]
        for metric in ("accuracy", "balanced accuracy", "AUC", "F1", "ECE", "Brier")
    ]
    return Table(
        title="Performance by attribute",
        caption="Each with its 95 % bootstrap interval. ECE and Brier: lower is better.",
        columns=("metric", *(f"{part or 'all rows'} (n = {_size(m, 'accuracy', part)})" for part in parts)),
        rows=rows,
    )


def _by_model(found: Sequence[Measurement]) -> Table:
    metrics = [name for name in MAIN if name in found[0].metric]
    rows = [[m.model, *(_cell(m.get(name)) for name in metrics)] for m in found]
    values = np.array([[m.get(name).value for name in metrics] for m in found])
    rows.append(["mean over models", *values.mean(axis=0)])
    rows.append(["standard deviation", *values.std(axis=0, ddof=1)])
    return Table(
        title="Model by model",
        caption="The same test rows and resamples for every model.",
        columns=("model", *metrics),
        rows=rows,
    )


def _cell(i: Interval) -> Cell:
    return Cell(value=i.value, low=i.low, high=i.high, reason=i.reason)
