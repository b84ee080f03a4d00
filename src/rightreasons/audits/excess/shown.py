"""Is it the attribute that the features show, or something that only goes with it?"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

import numpy as np

from rightreasons.audits.excess.pieces import UNDEFINED, Shown
from rightreasons.audits.excess.rows import Side
from rightreasons.stats import record
from rightreasons.stats.partial_pull import partial_pull_draws
from rightreasons.stats.refit import raked_weights, refit
from rightreasons.stats.resampling import Interval, Resamples, interval, whole

MOST_DRAWS = 100
LABELS_WEIGH = 3.0  # spread of the label's columns beside the features': a readout may always adjust for the label


def shown(
    audit: Side,
    test: Side,
    columns: tuple[np.ndarray, np.ndarray],
    towards: Mapping[Hashable, int],
    sample: Resamples,
    rng: np.random.Generator,
) -> Shown:
    """How often rows are recorded otherwise than their features plainly show, and which of the two the answers follow.

    Parameters
    ----------
    columns : (n_audit, p) and (n_test, p) of the features
    towards : value → column of the answers
    """
    values = np.unique(test.attribute.values)
    if len(values) != 2 or not np.isin(audit.attribute.values, values).all():
        return Shown(reason="asked of attributes with two values")
    recorded = [(rows.attribute.values == values[1]).astype(np.int64) for rows in (audit, test)]
    score = readout_score(audit, test, columns, recorded[0], rng)
    of_all = record.curve(score, recorded[1], test.label)
    few = replace(sample, states=sample.states[:MOST_DRAWS])
    draws = few.apply(lambda counts: record.asymptote_draws(score, recorded[1], test.label, counts, of_all))
    plainly = values[(of_all.places[test.label] + of_all.slope * score > 0).astype(np.int64)]
    return Shown(
        low=interval(of_all.low, draws[:, 0]),
        high=interval(of_all.high, draws[:, 1]),
        otherwise=interval(of_all.otherwise, draws.mean(axis=1)),
        ratio=of_all.ratio,
        followed=_pull_within(test, plainly, test.attribute.values, towards, few),
        record_followed=_pull_within(test, test.attribute.values, plainly, towards, few),
    )


def readout_score(
    audit: Side, test: Side, columns: tuple[np.ndarray, np.ndarray], recorded: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(n_test,) score of spread 1 of a linear readout of the recorded value, given the label, fitted on audit rows."""
    C = len(audit.classes)
    with_label = []
    for rows, z in zip((audit, test), columns, strict=True):
        with_label.append(np.concatenate([z, LABELS_WEIGH * columns[0].std() * np.eye(C)[rows.label]], axis=1))
    weight = raked_weights(audit.label, [recorded])
    head = refit(with_label[0], recorded, 2, weight, rng=rng, subject=audit.cohort.subject)
    logits = head(with_label[1])
    score = logits[:, 1] - logits[:, 0]
    return score / max(float(score.std()), np.finfo(float).tiny)


def _pull_within(
    test: Side, codes: np.ndarray, other: np.ndarray, towards: Mapping[Hashable, int], sample: Resamples
) -> Interval:
    """The pull of one column among rows that are alike in another."""

    def draw(counts: np.ndarray) -> np.ndarray:
        return partial_pull_draws(test.label, test.answers, codes, towards, [other], counts)

    value = float(draw(whole(len(codes)))[0])
    if np.isnan(value):
        return replace(UNDEFINED, reason="too few rows are recorded otherwise than they show")
    return interval(value, sample.apply(draw))
