"""ShorT's measurement of one model: its encoding of the attribute, its performance, its fairness, on the same test rows."""

from __future__ import annotations

import math

import numpy as np

from rightreasons.audits.short import decisions as deciding
from rightreasons.audits.short import rows as rows_
from rightreasons.audits.short.decisions import Decisions
from rightreasons.audits.short.encoding import Readout, read_numbers, read_values
from rightreasons.audits.short.measurement import Encoding, Fairness, Measurement, Performance
from rightreasons.audits.short.rows import Question, Rows
from rightreasons.audits.short.settings import Settings
from rightreasons.evidence import Card, Evidence
from rightreasons.stats import resampling
from rightreasons.stats.resampling import Resamples, exchange_within_label, interval, p_value, resamples


def measured(evidence: Evidence, settings: Settings, rng: np.random.Generator) -> Measurement:
    fitting, drawing, shuffling = rng.spawn(3)
    question = rows_.question_of(evidence, settings)
    test = rows_.tested_rows(evidence, question)
    fit, fit_on = rows_.fitting_rows(evidence, question, settings.rows, fitting)
    sample = resamples(len(test), rng=drawing, B=settings.B, subject=test.cohort.subject)
    read = read_numbers if question.is_continuous else read_values
    readout = read(fit, test, settings, int(fitting.integers(2**31)))
    card, label_name = evidence.card, test.cohort.label_name
    target = "" if card.target == label_name else card.target
    training = rows_.training_of(evidence, question)
    if target:
        spreads = np.full(len(question.signed_levels), math.nan)
        performance, fairness = deciding.no_decisions(settings)
        association, null = rows_.no_association(question), None
    else:
        gate = rows_.gate_of(training, question, settings)
        decisions = deciding.decisions_of(evidence, test, question, settings, gate.shape)
        performance, fairness, null = _behaviour(decisions, test, question, settings, sample, shuffling, readout)
        association, spreads = gate.association, rows_.spreads(test, question, gate.shape)
    return Measurement(
        model=card.name,
        regime=card.regime,
        architecture=card.architecture,
        seed=card.seed,
        scale=scale_of(card, question.attribute.name),
        target=target,
        attribute=question.attribute.name,
        kind=question.attribute.kind,
        label_name=label_name,
        positive=str(test.cohort.classes[question.positive]),
        rows=rows_.fingerprint(test),
        n=len(test),
        n_subjects=None if test.cohort.subject is None else sample.units,
        missing=int((~test.kept).sum()),
        encoding=_encoding(readout, sample, settings.level, null, len(fit), fit_on),
        performance=performance,
        fairness=fairness,
        association=association,
        smallest=rows_.smallest_subgroup(test, question),
        training=rows_.distribution(training, fit, question),
        trained_on="" if training is None else training.fingerprint,
        spreads=spreads,
    )


def _behaviour(
    decisions: Decisions,
    test: Rows,
    question: Question,
    settings: Settings,
    sample: Resamples,
    rng: np.random.Generator,
    readout: Readout,
) -> tuple[Performance, Fairness, np.ndarray]:
    """Performance and fairness; and the encoding, (P,), under the exchanges that the fairness metrics went through."""
    performance, intervals, draws = deciding.resampled(decisions, test, sample, settings.level)
    exchange = exchange_within_label(test.y, test.a, test.cohort.subject)
    parts = [*(metric.null for metric in decisions.metrics), readout.exchanged]
    *null, encoding = deciding.exchanged(parts, exchange, len(test), settings.permutations, rng)
    return performance, deciding.fairness_of(decisions, test, question, intervals, draws, np.stack(null)), encoding


def _encoding(readout: Readout, sample: Resamples, level: float, null: np.ndarray | None, n_fit: int, fit_on: str) -> Encoding:
    """The readout's score with its interval; and its p from the scores under exchange (P,), where there are any."""
    value, draws = readout.both(resampling.whole(sample.n))[0], sample.apply(readout.both)
    reason = "an attribute value has no rows within a label"
    more = -1 if readout.unit == "MAE" else 1
    return Encoding(
        unit=readout.unit,
        within=interval(value[0], draws[:, 0], level, reason),
        marginal=interval(value[1], draws[:, 1], level, reason),
        p=math.nan if null is None else p_value(more * float(value[0]), more * null, "greater"),
        chance=readout.chance,
        no_information=readout.no_information,
        label_alone=readout.label_alone,
        draws=draws[:, 0],
        marginal_draws=draws[:, 1],
        n_fit=n_fit,
        fit_on=fit_on,
        converged=readout.converged,
    )


def scale_of(card: Card, attribute: str) -> float:
    """The scale of the attribute's gradient in a model's training, from its card; NaN where there was none."""
    if "scale" in card.settings:
        return float(card.settings["scale"])
    objective = card.settings.get("objective")
    if isinstance(objective, list | tuple) and len(objective) > 1 and isinstance(objective[1], dict):
        named = objective[1]
        if "scales" in named and attribute in named.get("attributes", ()):
            return float(named["scales"][list(named["attributes"]).index(attribute)])
    return 0.0 if card.regime == "erm" else math.nan
