"""Performance and fairness of a model's decisions ("Assessing fairness"), each under resampling and under exchange."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rightreasons.audits.short.encoding import ByCounts, ByDonors
from rightreasons.audits.short.measurement import FLIPS, SHAPE, SIGNED, Fairness, Performance
from rightreasons.audits.short.rows import Question, Rows
from rightreasons.audits.short.settings import Settings
from rightreasons.errors import SettingError
from rightreasons.evidence import Evidence
from rightreasons.families import suggest
from rightreasons.head import outputs_for
from rightreasons.stats import fairness, groups, resampling
from rightreasons.stats.associations import Shape
from rightreasons.stats.resampling import Counts, Exchange, Interval, Resamples, interval

GAPS = ("equalised_odds", "demographic_parity", "max_gap")  # metrics that compare groups
BLOCK = 4_000_000  # entries of a block of exchanges


# ---- deciding ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """How probabilities become decisions for the positive class.

    Attributes
    ----------
    output : of the positive class
    threshold : of its probability; NaN where being among the `top_k` outputs decides
    words : how it was chosen
    """

    output: int
    threshold: float
    words: str
    top_k: int = 0

    def __call__(self, probability: np.ndarray) -> np.ndarray:
        """Decisions (n,), 0 or 1, from probabilities (n, C)."""
        if self.top_k:
            best = np.argsort(-probability, axis=1, kind="stable")[:, : self.top_k]
            return (best == self.output).any(axis=1).astype(np.int64)
        return (probability[:, self.output] >= self.threshold).astype(np.int64)


def decision_rule(evidence: Evidence, question: Question, settings: Settings) -> Rule:
    """The top outputs for more than two classes, else a threshold: of best F1 on validation rows, or 0.5."""
    classes = evidence.card.classes
    output = int(outputs_for(evidence.on("test").cohort.classes, classes)[question.positive])
    if len(classes) > 2:
        k = min(settings.top_k, len(classes) - 1)
        return Rule(output, math.nan, f"top {k}", k)
    if settings.threshold not in ("max_f1", "argmax"):
        raise SettingError(f"threshold {settings.threshold!r} is not known: max_f1 or argmax")
    if settings.threshold == "argmax":
        return Rule(output, 0.5, "0.5")
    if "val" not in evidence.cohorts or "logits" not in evidence.on("val"):
        return Rule(output, 0.5, "0.5, because there are no validation rows")
    tuned = evidence.on("val").decisions()
    known = tuned.cohort.label >= 0
    truth = (tuned.cohort.label[known] == question.positive).astype(np.int64)
    threshold = groups.max_f1_threshold(truth, tuned.probability[known, output])
    if math.isnan(threshold):
        return Rule(output, 0.5, "0.5, no positive val rows")
    return Rule(output, float(threshold), "best F1 on validation rows")


# ---- metrics -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A fairness metric as a function of resamples and of exchanges; `reason` says why it may be undefined."""

    name: str
    draws: ByCounts
    null: ByDonors
    reason: str = ""


def unsigned_metrics(
    test: Rows, predicted: np.ndarray, score: np.ndarray, question: Question, settings: Settings
) -> list[Metric]:
    """The paper's metrics. A continuous attribute without bins has no groups, hence none of `GAPS`."""
    for name in settings.metrics:
        if name not in fairness.METRICS:
            raise SettingError(f"no fairness metric {name!r}; {suggest(name, fairness.METRICS)}")
    _refuse_narrow_bins(question, settings.bins)
    metrics, columns, of = [], (test.y, predicted, test.a), settings.of
    for name in settings.metrics:
        if not question.is_continuous:
            disparity = fairness.disparity(name, *columns, of, score=score, kind="categorical")
        elif name not in GAPS:
            disparity = fairness.disparity(name, *columns, kind="continuous")
        elif settings.bins is not None:
            disparity = fairness.disparity(name, *columns, of, score=score, bins=settings.bins)
        else:
            continue
        metrics.append(Metric(name, disparity.draws, disparity.null, disparity.reason))
    return metrics


def _refuse_narrow_bins(question: Question, bins: Sequence[float] | None) -> None:
    a = question.attribute
    if bins is None or not question.is_continuous:
        return
    known = a.values[a.present]
    low, high = known.min(), known.max()
    if low < min(bins) or high > max(bins):
        raise SettingError(f"bins={list(bins)} leave out test rows: {a.name} runs from {low:g} to {high:g}")


def signed_metrics(test: Rows, predicted: np.ndarray, question: Question, shape: Shape | None) -> list[Metric]:
    """The disparity with its sign, of every attribute value that has one, or per unit and along the shape: it decides."""
    a, levels = question.attribute, question.signed_levels
    metrics = []
    for level in levels:
        name = SIGNED if level is None or len(levels) == 1 else f"{SIGNED}: {a.levels[level]}"
        disparity = fairness.signed_disparity(test.y, predicted, test.a, level, kind=a.kind)
        metrics.append(Metric(name, disparity.draws, disparity.null, disparity.reason))
    if shape is not None:
        # Each number stands for the log odds that its bin has in training: a slope of 1 follows them as they are.
        along = fairness.signed_disparity(test.y, predicted, shape(test.a), kind="continuous")
        metrics.append(Metric(f"{SIGNED}: {SHAPE}", along.draws, along.null, along.reason))
    return metrics


def counterfactual_gap(evidence: Evidence, test: Rows, rule: Rule, predicted: np.ndarray) -> list[Metric]:
    """How often the decision differs for the twin, which differs in the attribute alone; empty without twins."""
    if "twin" not in evidence.cohorts or "logits" not in evidence.on("twin") or test.cohort.case is not None:
        return []
    twin = evidence.on("twin")
    other = dict(zip(twin.cohort.id, rule(twin.decisions().probability), strict=True))
    flips = np.full(len(test), np.nan)
    for row, (image, decision) in enumerate(zip(test.cohort.id, predicted, strict=True)):
        if image in other:
            flips[row] = float(other[image] != decision)
    known = ~np.isnan(flips)
    if not known.any():
        return []
    columns = np.stack([np.where(known, flips, 0.0), known], axis=1)

    def draws(counts: Counts) -> np.ndarray:
        flipped, number = resampling.sums(counts, columns).T
        return np.divide(flipped, number, out=np.full(len(counts), np.nan), where=number > 0)

    def null(donors: np.ndarray) -> np.ndarray:
        return np.full(len(donors), np.nan)  # twins have nothing to exchange

    return [Metric(FLIPS, draws, null)]


# ---- under resampling and under exchange ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decisions:
    """Decisions of the test rows about the positive class: their score (n,), the decision (n,), the rule, and the metrics."""

    score: np.ndarray
    predicted: np.ndarray
    rule: Rule
    metrics: tuple[Metric, ...]
    n_signed: int


def decisions_of(evidence: Evidence, test: Rows, question: Question, settings: Settings, shape: Shape | None = None) -> Decisions:
    probability = evidence.on("test").decisions().probability[test.kept]
    rule = decision_rule(evidence, question, settings)
    predicted = rule(probability)
    signed = signed_metrics(test, predicted, question, shape)
    metrics = (
        *unsigned_metrics(test, predicted, probability[:, rule.output], question, settings),
        *counterfactual_gap(evidence, test, rule, predicted),
        *signed,
    )
    return Decisions(probability[:, rule.output], predicted, rule, metrics, len(signed))


def resampled(
    decisions: Decisions, test: Rows, sample: Resamples, level: float
) -> tuple[Performance, list[Interval], np.ndarray]:
    """AUC, and every fairness metric with its draws (m, B), over the same resamples of the test rows."""

    def every(counts: Counts) -> np.ndarray:
        auc = resampling.auc_draws(test.y == 1, decisions.score, counts)
        return np.stack([auc, *(metric.draws(counts) for metric in decisions.metrics)], axis=1)

    value, draws = every(resampling.whole(len(test)))[0], sample.apply(every)
    intervals = [interval(v, d, level) for v, d in zip(value, draws.T, strict=True)]
    performance = Performance(intervals[0], draws[:, 0], decisions.rule.threshold, decisions.rule.words)
    return performance, intervals[1:], draws[:, 1:].T.copy()


def exchanged(parts: Sequence[ByDonors], exchange: Exchange, n: int, P: int, rng: np.random.Generator) -> np.ndarray:
    """(m, P) of every part when the attribute is exchanged within label, P times; all share the exchanges."""
    block = max(1, min(P, BLOCK // n))
    blocks = []
    for start in range(0, P, block):
        donors = np.stack([exchange.permutation(rng) for _ in range(min(block, P - start))])
        blocks.append(np.stack([part(donors) for part in parts]))
    return np.concatenate(blocks, axis=1)


def fairness_of(
    decisions: Decisions, test: Rows, question: Question, intervals: Sequence[Interval], draws: np.ndarray, null: np.ndarray
) -> Fairness:
    """The metrics with what resamples (m, B) and exchanges (m, P) say of them."""
    value = np.array([i.value for i in intervals])
    return Fairness(
        metrics=tuple(metric.name for metric in decisions.metrics),
        n_signed=decisions.n_signed,
        value=value,
        low=np.array([i.low for i in intervals]),
        high=np.array([i.high for i in intervals]),
        p=np.array([_p(v, shuffled) for v, shuffled in zip(value, null, strict=True)]),
        reason=tuple(metric.reason for metric in decisions.metrics),
        draws=draws,
        null=null,
        no_exchange=resampling.exchange_within_label(test.y, test.a, test.cohort.subject).reason,
        monotone=_monotone(decisions, test, question),
    )


def _monotone(decisions: Decisions, test: Rows, question: Question) -> np.ndarray:
    """(2,) p of a U at label 1 and 0."""
    if not question.is_continuous:
        return np.full(2, np.nan)
    return np.array([fairness.monotonicity(decisions.predicted, test.a, rows=test.y == y).p for y in (1, 0)])


def _p(value: float, null: np.ndarray) -> float:
    if not len(null) or np.isnan(null).all():
        return math.nan
    return resampling.p_value(value, null)


# ---- a model of the attribute --------------------------------------------------------------------------------------------


def no_decisions(settings: Settings) -> tuple[Performance, Fairness]:
    """Of a model that predicts the attribute: it has an encoding and decides nothing about the label."""
    reason = "predicts another column than the label"
    auc = Interval(math.nan, math.nan, math.nan, reason=reason, level=settings.level)
    nothing = np.zeros(0)
    fairness_of_none = Fairness(
        metrics=(),
        n_signed=0,
        value=nothing,
        low=nothing,
        high=nothing,
        p=nothing,
        reason=(),
        draws=np.zeros((0, settings.B)),
        null=np.zeros((0, settings.permutations)),
        no_exchange="",
        monotone=np.full(2, np.nan),
    )
    return Performance(auc, np.full(settings.B, np.nan), math.nan, ""), fairness_of_none
